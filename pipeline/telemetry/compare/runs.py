"""An output as one side of a comparison: what is known of its run, however far that came and whoever wrote it.

Whatever is missing is said in a sentence and left out; only where nothing can be compared is it an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.assembly import unit_of
from pipeline.errors import ConfigError, DamagedError
from pipeline.failure import DECODE
from pipeline.ledger import COLUMNS, Ledger, read_units
from pipeline.reasons import FACTS, Facts
from pipeline.second import FRAMES
from pipeline.storage import Store
from pipeline.telemetry.compare import share
from pipeline.telemetry.compare.calls import Calls, read_calls, run_of
from pipeline.telemetry.run_file import NAME, read_run_file

_USED = (
    *("started", "seconds", "frames", "profile_name", "decode", "steps", "figures", "errors"),
    *("machines", "python", "system", "processor", "memory_gb", "versions"),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What lies in one output."""

    path: str  # as a person named it
    store: Store
    record: Mapping[str, Any]  # run.json, keys missing where another version wrote it; empty where there is none
    notes: tuple[str, ...]  # what cannot be compared, a sentence each

    def part(self, *keys: str) -> Mapping[str, Any]:
        """A dictionary in run.json by its path of keys; empty where there is none."""
        found: Any = self.record
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """By step, decoding first: by run.json, else by the facts that a run writes down before it begins."""
        said = {DECODE: self.part("decode"), **self.part("steps")} if self.record else {}
        known = {name: str(step["fingerprint"]) for name, step in said.items() if _has(step, "fingerprint")}
        return known or self._begun()

    def facts(self, step: str) -> Facts | None:
        """What a step's fingerprint was taken of, as the run wrote it down; None where it did not."""
        path = f"{FACTS}/{step}-{self.fingerprints.get(step, '')}.json"
        found: Facts | None = json.loads(self.store.read(path)) if self.store.exists(path) else None
        return found

    def told(self, step: str) -> Facts:
        """What run.json says of them: weights by name, and nothing of what the step reads."""
        if step == DECODE:
            return {"settings": {k: v for k, v in self.part(DECODE).items() if k not in ("fingerprint", "columns")}}
        known = self.part("steps", step)
        weights = known.get("weights")
        told = {key: known[key] for key in ("use", "version") if key in known}
        return told | {
            "settings": self.part("steps", step, "settings"),
            "weights": weights if isinstance(weights, list) else [],
        }

    @cached_property
    def of_others(self) -> Mapping[str, int]:
        """Steps of which other runs made rows too, and how many this one made; empty where it made all."""
        return share.of_others(self.record)

    @cached_property
    def media(self) -> dict[str, tuple[int, str]]:
        """By media_id, size in bytes and digest (empty where unknown), of the files whose rows are in the tables."""
        made = {unit for name in self.store.names(FRAMES) if (unit := unit_of(name))}
        units = sorted(read_units(self.store), key=lambda unit: unit.attempt)
        alive = [unit for unit in units if not made or unit.name in made]
        return {item.media_id: (item.size, item.digest) for unit in alive for item in unit.media}

    @cached_property
    def calls(self) -> dict[str, Calls]:
        """By step, the records of its calls; empty where none were kept."""
        return self._read[0]

    @property
    def damage(self) -> str:
        """Why the records that are there cannot be read; empty where they can, or there are none."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[dict[str, Calls], str]:
        try:
            return read_calls(self.store, self.recorded), ""
        except DamagedError as error:
            return {}, str(error)

    @cached_property
    def recorded(self) -> str | None:
        """The name of the run whose records these are; None where there are none."""
        return run_of(self.store, self.record)

    def rows_so_far(self, step: str) -> int:
        """Rows of a first-pass step's parts."""
        spans = Ledger(self.store).spans(f"{step}-{self.fingerprints.get(step, '')}")
        return sum(stop - start for found in spans.values() for start, stop in found)

    def _begun(self) -> dict[str, str]:
        names = [name.removesuffix(".json").rpartition("-") for name in self.store.names(FACTS)]
        there = set(self.store.folders(COLUMNS))
        ordered = sorted(names, key=lambda name: "-".join((name[0], name[2])) in there)
        found = {step: mark for step, _, mark in ordered}
        return dict(sorted(found.items(), key=lambda item: item[0] != DECODE))


def read_run(path: str) -> Run:
    """Look into an output.

    Raises:
        ConfigError: it is none, or its run.json is damaged or none of ours.
        OutputError: no file system is known for the URL.
    """
    store = Store(path).as_folder()
    try:
        record = read_run_file(store)
    except FileNotFoundError:
        return _unfinished(path, store)
    missing = [key for key in _USED if key not in record]
    lacking = (
        f"The {NAME} in {path} was written by another version of Framemill and lacks {', '.join(missing)}: "
        "what rests on that is left out."
        if missing
        else ""
    )
    notes = tuple(said for said in (lacking, share.note(path, record)) if said)
    return Run(path=path, store=store, record=record, notes=notes)


def _unfinished(path: str, store: Store) -> Run:
    """An output whose run was killed before its end, or what is no output at all."""
    if "://" not in path and not Path(path).expanduser().is_dir():
        raise ConfigError(f"There is no folder {path!r}; give the output of a run.")
    if not {COLUMNS, FACTS} & set(store.folders()):
        raise ConfigError(
            f"{path!r} is no output of Framemill: it has neither a {NAME} nor a folder {COLUMNS}; give the folder that "
            "--output named."
        )
    note = (
        f"No run into {path} has come to its end, so it has no {NAME}: its work, the rows of its parts and records "
        "of its calls are compared, not its machine, placement and results."
    )
    return Run(path=path, store=store, record={}, notes=(note,))


def read_sides(words: Sequence[str]) -> list[list[Run]]:
    """Sides of a comparison; repeated runs of one are joined by commas: `A1,A2,A3`.

    Raises:
        ConfigError: fewer than two sides, one output named twice, or as `read_run`.
    """
    paths = [[word] if _is_folder(word) else [part for part in word.split(",") if part] for word in words]
    if len(paths) < 2 or not all(paths):
        raise ConfigError("Give two outputs or more to compare, as in `framemill compare OUT_A OUT_B`.")
    seen: set[str] = set()
    for path in (path for side in paths for path in side):
        place = path if "://" in path else os.path.realpath(Path(path).expanduser())
        if place in seen:
            raise ConfigError(f"The output {path!r} is given twice; a run is compared with another one.")
        seen.add(place)
    return [[read_run(path) for path in side] for side in paths]


def _is_folder(word: str) -> bool:
    return "://" not in word and Path(word).expanduser().is_dir()


def _has(step: object, key: str) -> bool:
    return isinstance(step, Mapping) and key in step
