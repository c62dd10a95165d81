"""What is different around the work: where steps ran, on what machine, by which versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.failure import DECODE
from pipeline.telemetry.compare.runs import Run

_MACHINE: Mapping[str, str] = {
    "processor": "processor",
    "memory_gb": "memory, GB",
    "gpu_names": "GPUs of the driver's machine",
    "python": "Python",
    "system": "system",
}
LOADERS = "loaders"
NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing in two runs."""

    where: str  # a step, "profile", "machine" or "version"
    what: str
    first: str
    second: str


def changes(first: Run, second: Run) -> list[Change]:
    """All that run.json tells of both and that is not the same; nothing where one has no run.json."""
    if not (first.record and second.record):
        return []
    return [*_profile(first, second), *_placements(first, second), *_machine(first, second), *_versions(first, second)]


def _profile(first: Run, second: Run) -> Iterator[Change]:
    yield from _differing("profile", {"name": "profile_name", "waves": "waves"}, first.record, second.record)
    yield from _differing("profile", {"VRAM cap, GB": "vram_cap"}, first.part("choices"), second.part("choices"))


def _placements(first: Run, second: Run) -> Iterator[Change]:
    """What ran: earlier versions wrote down the workers that were asked for, and nothing of decoding."""
    told = bool(first.part(LOADERS) and second.part(LOADERS))
    yield from _differing(DECODE, {key: key for key in first.part(LOADERS)}, first.part(LOADERS), second.part(LOADERS))
    for step in first.part("steps"):
        places = [run.part("steps", step, "placement") for run in (first, second)]
        if all(places):
            keys = {key: key for key in {**places[0], **places[1]} if told or key != "workers"}
            yield from _differing(step, keys, *places)


def _machine(first: Run, second: Run) -> Iterator[Change]:
    yield from _differing("machine", {title: key for key, title in _MACHINE.items()}, first.record, second.record)
    nodes = [_nodes(run.record.get("machines")) for run in (first, second)]
    if nodes[0] != nodes[1]:
        yield Change(where="machine", what="nodes", first=nodes[0], second=nodes[1])


def _nodes(machines: Any) -> str:
    """Nodes of one kind counted: `2 x 16 CPUs, 1 GPU`."""
    found = [one for one in machines if isinstance(one, Mapping)] if isinstance(machines, list) else []
    kinds = Counter(f"{one.get('cpus', 0):g} CPUs, {one.get('gpus', 0):g} GPUs" for one in found)
    return "; ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())) or NOTHING


def _versions(first: Run, second: Run) -> Iterator[Change]:
    found = first.part("versions"), second.part("versions")
    yield from _differing("version", {key: key for key in {**found[0], **found[1]}}, *found)


def _differing(
    where: str, keys: Mapping[str, str], first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[Change]:
    """Of what both may tell, by title, what is not equal; a key that one lacks is none of these."""
    for title, key in keys.items():
        if key in first and key in second and first[key] != second[key]:
            yield Change(where=where, what=title, first=_said(first[key]), second=_said(second[key]))


def _said(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(one, list) for one in value):
        return " | ".join(map(_said, value))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or NOTHING
    return NOTHING if value is None or value == "" else str(value)
