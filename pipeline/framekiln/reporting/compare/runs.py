"""An output as one side of a comparison, finished or not.

Of an output that the last run computed only in part (resumed, a shard, a retry) the tables are whole, but its seconds
are those of a part.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ConfigError, DamagedError
from framekiln.contract.row_errors import DECODE
from framekiln.contract.user_files import expand
from framekiln.output.ledger import MARKS, Ledger
from framekiln.output.object_store import Store
from framekiln.output.recognise import check_is_output
from framekiln.output.unit_table import tabulated_files, unit_of
from framekiln.profiling.record_log import CALLS, read
from framekiln.profiling.run_profile import run_of
from framekiln.profiling.stats.steps import StepStatistics, step_statistics
from framekiln.runtime.run.change_report import Facts, stored_facts
from framekiln.runtime.run.progress import FINISHED, unfinished
from framekiln.runtime.run.record import read_run_record
from framekiln.runtime.second_pass.second_pass import UnitRows

_NEEDED = ("decode", "steps", "figures", "frames", "waves", "seconds", "state")  # keys of run.json
_NEARLY = 0.99  # of the rows: a killed process may not have counted its last packet, which is no other run's work


@dataclass(frozen=True, kw_only=True)
class Run:
    """One output."""

    path: str  # as given
    store: Store
    record: Mapping[str, Any]  # run.json
    notes: tuple[str, ...]  # what cannot be compared, a sentence each

    def part(self, *keys: str) -> Mapping[str, Any]:
        """Return a dictionary in run.json by its path of keys; empty if it is missing."""
        value = self.record
        for key in keys:
            value = value.get(key) or {}
        return value

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """By step, decoding first."""
        steps = {DECODE: self.record["decode"], **self.record["steps"]}
        return {name: str(step["fingerprint"]) for name, step in steps.items()}

    def facts(self, step: str) -> Facts | None:
        """Return the facts behind a step's fingerprint; None where the run did not write them."""
        return stored_facts(self.store, f"{step}-{self.fingerprints[step]}")

    @cached_property
    def partial_steps(self) -> Mapping[str, int]:
        """First-pass steps, and decoding, that other runs computed in part, with the rows of this run."""
        frames, waves = self.record["frames"], self.record["waves"]
        expected = {DECODE: frames * max(1, len(waves))} | {step: frames for wave in waves for step in wave}
        expected |= {step: chosen for step, (chosen, _) in self.part("chosen").items()}  # rows chosen by a condition
        passes = self.part("throughput", "steps") or self.part("figures")
        computed = {step: passes.get(step, {}).get("rows", 0) for step in expected}
        return {step: rows for step, rows in computed.items() if rows < _NEARLY * expected[step]}

    def unchosen(self, step: str, path: str) -> Collection[tuple[str, int]]:
        """Return the keys of rows in a file of `frames/` that a step's condition skipped; none without parts."""
        unit = unit_of(path) or ""
        folder, decode = (f"{name}-{self.fingerprints.get(name, '')}" for name in (step, DECODE))
        found = {name: tuple(self._ledger.parts(name, decode, unit) or ()) for name in (decode, folder)}
        if not all(found.values()):
            return ()
        rows = UnitRows(unit=unit, parts=found)
        mask = rows.unchosen(self.store, folder)
        if mask is None:
            return ()
        keys = rows.read(self.store, {decode: MARKS}).filter(pa.array(mask))
        return set(zip(*(keys[key].to_pylist() for key in KEYS), strict=True))

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.store)

    @property
    def cut(self) -> bool:
        """True if the run that wrote the tables is unfinished."""
        return bool(self.record["state"] != FINISHED)

    @cached_property
    def media(self) -> dict[str, tuple[int, str]]:
        """By media_id, size in bytes and digest (empty if unknown), of files with rows in the tables."""
        return {name: (item.size, item.digest) for name, item in tabulated_files(self.store).items()}

    @cached_property
    def statistics(self) -> dict[str, StepStatistics]:
        """By step, its statistics from its calls' records; empty if none were kept."""
        return self._statistics_and_damage[0]

    @property
    def damage(self) -> str:
        """Reason why existing records are unreadable; empty if they are readable, or missing."""
        return self._statistics_and_damage[1]

    @cached_property
    def _statistics_and_damage(self) -> tuple[dict[str, StepStatistics], str]:
        if self.recorded is None:
            return {}, ""
        try:
            return {step.step: step for step in step_statistics(read(self.store, CALLS, self.recorded))}, ""
        except DamagedError as error:
            return {}, str(error)

    @cached_property
    def recorded(self) -> str | None:
        """The name of the run that wrote the records; None without records."""
        return run_of(self.store, self.record)


def read_run(path: str) -> Run:
    """Read an output.

    Raises ConfigError: its run.json is missing, damaged, foreign, or of another version. Raises OutputError: the folder
    is missing, or no file system is known for the URL.
    """
    store = check_is_output(Store(path))
    record = read_run_record(store, _NEEDED)
    cut = unfinished(store, record)
    figures = "" if cut is None or cut.later else " Its seconds, cost, energy and errors are not compared."
    unended = f"{path} is unfinished. {cut.sentence}{figures}" if cut is not None else ""
    run = Run(path=path, store=store, record=record, notes=())
    rows = ", ".join(f"{step} {rows:,}" for step, rows in run.partial_steps.items())
    partial = (
        f"Earlier runs or other shards made part of {path}: the compared run computed fewer than its "
        f"{record['frames']:,} frames ({rows}). Its seconds, cost, energy, and errors in these steps are not "
        "compared. Rates and times are those of its own rows."
    )
    return replace(run, notes=(*([unended] if unended else []), *([partial] if rows else [])))


def read_sides(sides: Sequence[str | Sequence[str]]) -> list[list[Run]]:
    """Read the sides of a comparison; a list, or commas, join repeated runs of one side: `A1,A2,A3`.

    Raises ConfigError: fewer than two sides, or one output given twice. Raises UserError: see `read_run`.
    """
    paths = [_split(side) if isinstance(side, str) else list(side) for side in sides]
    if len(paths) < 2 or not all(paths):
        problem = "Give two outputs or more to compare, as in `framekiln compare OUT_A OUT_B`."
        raise ConfigError(problem, code="FK-COMPARE-TOO-FEW")
    seen: set[str] = set()
    for path in (path for side in paths for path in side):
        place = path if "://" in path else os.path.realpath(expand(path))
        if place in seen:
            problem = f"The output {path!r} is given twice; compare different outputs."
            raise ConfigError(problem, code="FK-COMPARE-TWICE")
        seen.add(place)
    return [[read_run(path) for path in side] for side in paths]


def _split(word: str) -> list[str]:
    is_folder = "://" not in word and os.path.isdir(expand(word))  # noqa: PTH112 - pathlib may raise
    return [word] if is_folder else [part for part in word.split(",") if part]
