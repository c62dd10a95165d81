"""Differences around the work of two runs: placement, machine, versions."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from framekiln.contract.row_errors import DECODE
from framekiln.reporting.compare.runs import Run
from framekiln.reporting.formatting import MISSING

_PROFILE = {"profile_name": "name", "waves": "waves"}
_MACHINE = {
    "processor": "processor",
    "memory_gb": "memory, GB",
    "gpu_names": "GPUs of the driver's machine",
    "python": "Python",
    "system": "system",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between two runs."""

    where: str  # a step, "profile", "machine" or "version"
    what: str
    first: str
    second: str


def changes(first: Run, second: Run) -> list[Change]:
    """Return the differences of what both run.json hold; nothing where one is missing."""
    if not (first.record and second.record):
        return []
    return [
        *_differing("profile", first.record, second.record, _PROFILE),
        *_differing("profile", first.part("choices"), second.part("choices"), {"vram_cap": "VRAM cap, GB"}),
        *_placements(first, second),
        *_differing("machine", first.record, second.record, _MACHINE),
        *_differing("machine", *({"nodes": _nodes(run.record.get("machines"))} for run in (first, second))),
        *_differing("version", first.part("versions"), second.part("versions")),
    ]


def _placements(first: Run, second: Run) -> Iterator[Change]:
    yield from _differing(DECODE, *(run.part("decode_workers") for run in (first, second)))
    for step in first.part("steps"):
        yield from _differing(step, *(run.part("steps", step, "placement") for run in (first, second)))


def _nodes(machines: Any) -> str:
    """Return the number of nodes of each kind: `2 × 16 CPUs, 1 GPUs`."""
    nodes = [node for node in machines if isinstance(node, Mapping)] if isinstance(machines, list) else []
    kinds = Counter(f"{node.get('cpus', 0):g} CPUs, {node.get('gpus', 0):g} GPUs" for node in nodes)
    return "; ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())) or MISSING


def _differing(
    where: str, first: Mapping[str, Any], second: Mapping[str, Any], titles: Mapping[str, str] | None = None
) -> Iterator[Change]:
    """Yield the keys that both have with different values: those with titles, or all under their names."""
    for key, title in (titles or {key: key for key in first}).items():
        if key in first and key in second and first[key] != second[key]:
            yield Change(where=where, what=title, first=_text(first[key]), second=_text(second[key]))


def _text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return " | ".join(map(_text, value))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or MISSING
    return MISSING if value is None or value == "" else str(value)
