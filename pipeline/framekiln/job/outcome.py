"""The output of a run: tables at any time; at its end, run.json and the report.

At any time a row is in `frames/` once, and the table never mixes columns of two settings. So tables of earlier runs
decide which units may be written before the end. A unit waits if they hold rows of its files. All units wait if other
steps or settings made them (`held`). Earlier tables are removed at the end of the first pass, when all new rows can be
written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import GoneError, OutputError
from framekiln.contract.output_names import ERRORS, FRAMES, PREVIEW
from framekiln.contract.row_errors import DECODE, PASSED_OVER
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.units import Unit
from framekiln.output.kept_tables import KeptTables
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units, unit_of
from framekiln.planning.limits import run_targets
from framekiln.planning.plan import Plan
from framekiln.profiling.records import now
from framekiln.profiling.run_profile import RunProfile, profile_of
from framekiln.profiling.stats.progress import RunTotals
from framekiln.runtime.run.progress import FINISHED, LATER
from framekiln.runtime.run.record import read_earlier, write_run_record
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload
from framekiln.runtime.second_pass.second_pass import Assembly, SecondPass, UnitRows, expected_rows, fingerprints

_ROWS = ""  # key beside the kinds of errors


class TablesSoFar:
    """The tables that a run has written so far."""

    def __init__(
        self, store: Store, work: Workload, owners: Sequence[SecondPass], before: Mapping[str, Any] | None
    ) -> None:
        """Look at earlier runs' tables; `before`: their run.json, None if there is none or it is unreadable."""
        self._store, self._work, self.assembly = store, work, Assembly(work.plan, store)
        rows = [expected_rows(unit, work.wanted) for unit in work.units]
        self.held = _would_mix(store, work.plan, owners, rows, before)
        self._earlier = frozenset[str]()  # media of units with files of `frames/` by earlier runs
        if not self.held and (names := set(store.names(FRAMES))):
            stale = {unit_of(name) for name in names - self.assembly.live(rows)[FRAMES]}
            units = [unit for unit in read_units(store) if unit.name in stale] if stale else []
            self._earlier = frozenset(media.media_id for unit in units for media in unit.media)
        self.counts: dict[str, Counter[str]] = {}  # rows of a file of `frames/`, or errors of one of `errors/` by kind
        self.files_done = 0
        self._open: dict[str, Unit] = {unit.name: unit for unit in work.units}

    def release(self) -> None:
        """Start over after tables of earlier runs were removed."""
        self.held, self._earlier = False, frozenset()
        self.files_done, self._open = 0, {unit.name: unit for unit in self._work.units}

    def due(self) -> list[UnitRows]:
        """Return the units with rows that can be written now; call `done` for each afterwards."""
        finished = self._work.finished(self._store, list(self._open.values()))
        missing = {unit.unit for (unit,) in self.assembly.missing(finished)}
        for unit in finished:
            if self.held or unit.unit not in missing:
                self.done(unit)
        return [unit for unit in finished if unit.unit in self._open and self._earlier.isdisjoint(_list_ids(unit))]

    def done(self, unit: UnitRows) -> None:
        """Count a unit as done: its rows are in the tables, or will be when earlier tables go."""
        del self._open[unit.unit]
        self.files_done += len(_list_ids(unit))
        if unit.media is None:  # otherwise its rows differ from its parts, and the table must be read
            rows = max((part.stop for part in unit.parts[self._work.plan.decode.folder]), default=0)
            self.counts[f"{FRAMES}/{self.assembly.name_of(unit)}"] = Counter({_ROWS: rows})


def count_rows(store: Store, known: dict[str, Counter[str]], *, anew: bool = True) -> tuple[int, Counter[str]]:
    """Return the numbers of frames and of errors by kind in the tables.

    `known` keeps the counts of each file, so that it is opened at most once. Without `anew`, files that it lacks are
    left out.
    """
    kinds: Counter[str] = Counter()
    for folder in (FRAMES, ERRORS):
        for path in (f"{folder}/{name}" for name in store.names(folder)):
            if anew and path not in known:
                with suppress(GoneError):  # another shard may have replaced it
                    if folder == FRAMES:
                        known[path] = Counter({_ROWS: store.count_rows(path)})
                    else:
                        errors = store.read_table(path, ["kind"], expected=FAILURES)
                        known[path] = Counter(errors["kind"].to_pylist())
            kinds.update(known.get(path, ()))
    return kinds.pop(_ROWS, 0), kinds


def _list_ids(unit: UnitRows) -> frozenset[str]:
    return frozenset(media.media_id for media in unit.files) if unit.media is None else unit.media


def _would_mix(
    store: Store, plan: Plan, owners: Sequence[SecondPass], rows: Sequence[UnitRows], before: Mapping[str, Any] | None
) -> bool:
    """Return whether tables of other steps or settings exist, which must not mix with new rows."""
    steps = (before or {}).get("steps", {})
    known = {name: step.get("fingerprint") for name, step in steps.items()}
    first = {name: known.get(name) for wave in (before or {}).get("waves", ()) for name in wave}
    first[DECODE] = (before or {}).get("decode", {}).get("fingerprint")
    same = {step.name: known.get(step.name) == step.fingerprint for step in plan.second}
    same[Assembly.name] = first == fingerprints(plan)
    for owner in (owner for owner in owners if not same[owner.name]):
        written = {folder: set(store.names(folder)) for folder in owner.live([]) if folder != ERRORS}
        live = owner.live(rows) if any(written.values()) else {}
        if any(names - live[folder] for folder, names in written.items() if names):
            return True
    return False


@dataclass(frozen=True, kw_only=True)
class RunSoFar:
    """A run that holds the output's lease: its request, its work, and its progress."""

    store: Store  # the output, opened for this run
    request: RunRequest
    work: Workload
    figures: RunTotals  # totals of its steps; they fill while it computes
    started: float  # seconds since the epoch

    def result(self, counted: tuple[int, Counter[str]], profile: RunProfile | None = None) -> RunResult:
        """Return the result so far, with the number of frames, and of errors by kind."""
        frames, kinds = counted
        return RunResult(
            work=self.work,
            frames=frames,
            passed_over=kinds.pop(PASSED_OVER, 0),
            errors=kinds,
            started=self.started,
            seconds=now() - self.started,
            figures=self.figures,
            profile=profile,
        )

    def profile(self) -> RunProfile | None:
        """Return the profile of its records; None if they are unreadable, which must not end a run."""
        with suppress(OutputError, OSError):
            targets = run_targets(self.request.profile.targets)
            return profile_of(self.store, self.store.run, targets, self.work.rooms)
        return None

    def conclude(self) -> RunResult:
        """Write run.json and the report, and return the result.

        Raises DamagedError: a table is damaged. Raises OutputError: the output cannot be written.
        """
        from framekiln.reporting.html import NAME, write_report  # loads templates and charts, which no worker needs
        from framekiln.reporting.html.limits import write_limits

        store, request, profile = self.store, self.request, self.profile()
        with KeptTables(store.root, store.run) as tables:
            made = self.result(self._read_counts() or count_rows(tables, {}), profile)
            result = replace(made, chosen=self._count_chosen(), absent_rows=self._count_absent(tables))
            is_new = write_run_record(store, request, result)
            recordings = tuple(request.profilers.report(store)) if self.work.left else ()
            report = None
            with suppress(FileNotFoundError):  # a shard replaces tables
                report = write_report(tables) if is_new or not store.exists(NAME) else store.url(NAME)
                if request.preview is not None and (is_new or not store.exists(PREVIEW)):
                    write_limits(tables, self.work.plan)
                elif request.preview is None and is_new:
                    store.remove(PREVIEW)  # earlier preview of fewer files
        return replace(result, recordings=recordings, report=report)

    def _count_chosen(self) -> dict[str, list[int]]:
        """Return how many of all rows each conditional step computed; units with parts count whole files."""
        store, work = self.store, self.work
        narrowed = [step for step in work.plan.first if step.is_narrowed]
        earlier = read_earlier(store) or {}
        before = earlier.get("chosen") or {}
        if not (work.changed or earlier.get("shard")) and before.keys() == {step.name for step in narrowed}:
            return dict(before)
        units = work.finished(store) if narrowed else []
        rows = sum(part.stop - part.start for unit in units for part in unit.parts[work.plan.decode.folder])
        unchosen = {step.name: [unit.unchosen(store, step.folder) for unit in units] for step in narrowed}
        numbers = {name: sum(int(mask.sum()) for mask in masks if mask is not None) for name, masks in unchosen.items()}
        return {name: [rows - number, rows] for name, number in numbers.items()}

    def _count_absent(self, tables: Store) -> int:
        """Return how many rows of `--rows` are not in `frames/`; a shard does not know other shards' files."""
        asked = next((step.condition.among for step in self.work.plan.steps if step.condition.among), None)
        if asked is None or self.request.shard is not None:
            return 0
        wanted = tables.read_table(asked.path, KEYS)
        is_asked = pc.is_in(pc.field(KEYS[0]), pc.unique(wanted[KEYS[0]]))
        there = tables.dataset(FRAMES, wanted.schema).to_table(columns=list(KEYS), filter=is_asked)
        return int(wanted.join(there, list(KEYS), join_type="left anti").num_rows)

    def _read_counts(self) -> tuple[int, Counter[str]] | None:
        """Return the counts of the run that wrote the tables; None if something may have changed since."""
        before = read_earlier(self.store) or {}
        is_of_all = before.get("state") == FINISHED and LATER not in before and before.get("shard") is None
        changed = self.work.changed or self.request.shard is not None
        if changed or not is_of_all:
            return None
        return before["frames"], Counter({**before["errors"], PASSED_OVER: before["passed_over"]})
