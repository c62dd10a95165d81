"""Retries of failed rows, and of no others: after a cause is mended, other rows keep their results.

A mark beside a part names its rows to be retried. Until that is done the part counts as missing, and a run keeps its
other rows. Files that could not be decoded get a new unit, which replaces them in theirs. If marking stops half-way
nothing is lost: the marks stay, and any run continues from there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa

from framekiln.contract.output_names import COLUMNS, ERRORS
from framekiln.contract.row_errors import DECODE, PASSED_OVER
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.units import Unit, retry_unit
from framekiln.output.ledger import MARKS, Part
from framekiln.output.object_store import Store
from framekiln.output.unit_table import write_units
from framekiln.planning.plan import Plan
from framekiln.planning.step import Step
from framekiln.runtime.second_pass.second_pass import ASSEMBLE, SecondPass, UnitRows

Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class FailureFilter:
    """The failures to be retried, by step and kind; None for any. Files that are no media match by their kind alone."""

    step: str | None = None
    kind: str | None = None

    def matches(self, step: str, kind: str) -> bool:
        """Return whether a failure is to be retried."""
        wanted = kind != PASSED_OVER if self.kind is None else kind == self.kind
        return self.step in (None, step) and wanted


@dataclass
class MarkedFailures:
    """The failures that match a filter, and all that depends on their rows."""

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)  # by step and kind; for decoding, files
    parts: dict[tuple[str, Part], set[Key]] = field(default_factory=lambda: defaultdict(set))  # by step folder and part
    files: dict[str, set[str]] = field(default_factory=dict)  # files that were not decoded completely, by unit
    steps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # steps with new results, by unit

    def summary(self) -> str:
        """Return one sentence for the user."""
        if not self.rows:
            return "No failure matches: nothing is retried."
        phrases = []
        for step, rows in groupby(sorted(self.rows.items()), key=lambda item: item[0][0]):
            kinds = {kind: count for (_, kind), count in rows}
            what = "files that were not read completely" if step == DECODE else f"failures of {step}"
            each = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            phrases.append(f"{sum(kinds.values())} {what} ({each})")
        return f"Retried: {'; '.join(phrases)}."


def find_failures(store: Store, plan: Plan, units: Sequence[UnitRows], failures: FailureFilter) -> MarkedFailures:
    """Return the failures of the first pass in finished units, and all that depends on their rows."""
    marked = MarkedFailures()
    for unit in units:
        for row in unit.failures(store, plan.decode.folder, empty_too=True).to_pylist():
            if failures.matches(DECODE, row["kind"]) and row["media_id"] not in marked.files.get(unit.unit, ()):
                marked.files.setdefault(unit.unit, set()).add(row["media_id"])
                marked.rows[DECODE, row["kind"]] += 1
        for step in plan.first:
            for part, key, kind in _find_failed_rows(store, unit, step, failures):
                marked.rows[step.name, kind] += 1
                for later in plan.first:
                    if later is step or step.name in later.depends:
                        marked.steps[unit.unit].add(later.name)
                        for own in unit.parts[later.folder]:
                            if own.start < part.stop and part.start < own.stop:
                                marked.parts[later.folder, own].add(key)
    return marked


def _find_failed_rows(
    store: Store, unit: UnitRows, step: Step, failures: FailureFilter
) -> Iterator[tuple[Part, Key, str]]:
    for part in unit.parts[step.folder]:
        path = f"{COLUMNS}/{step.folder}/{part.errors_name}"
        if store.exists(path):
            for row in store.read_table(path, expected=FAILURES).to_pylist():
                if failures.matches(step.name, row["kind"]):
                    yield part, (row["media_id"], row["frame_index"]), row["kind"]


def mark_for_retry(
    store: Store,
    plan: Plan,
    formed: Sequence[Unit],
    units: Sequence[UnitRows],
    owners: Sequence[SecondPass],
    failures: FailureFilter,
) -> MarkedFailures:
    """Mark failures for the next run. Tables computed from them are deleted first, so that none is out of date.

    `formed` are all units of the output, `units` the finished ones.
    """
    marked = find_failures(store, plan, units, failures)
    _add_second_pass(store, plan, units, failures, marked)
    for unit in units:
        changed = marked.steps.get(unit.unit, set())
        if changed or unit.unit in marked.files:
            everything = unit.unit in marked.files
            stale = {step.name for step in plan.second if everything or ({step.name} | step.depends) & changed}
            _delete(store, [owner for owner in owners if owner.name in stale or owner.name == ASSEMBLE], unit, units)
    for (folder, part), keys in marked.parts.items():
        rows = pa.table([pa.array(column) for column in zip(*sorted(keys), strict=True)], schema=MARKS)
        store.write_table(f"{COLUMNS}/{folder}/{part.retry_name}", rows)
    write_units(store, [retry_unit(unit, marked.files[unit.name]) for unit in formed if unit.name in marked.files])
    return marked


def _add_second_pass(
    store: Store, plan: Plan, units: Sequence[UnitRows], failures: FailureFilter, marked: MarkedFailures
) -> None:
    names = store.names(ERRORS)
    for step in plan.second:
        for unit in units:
            for name in (name for name in names if name.startswith(f"{step.name}-{unit.unit}-")):
                kinds = store.read_table(f"{ERRORS}/{name}", ["kind"], expected=FAILURES)["kind"].to_pylist()
                matches = Counter((step.name, kind) for kind in kinds if failures.matches(step.name, kind))
                marked.rows += matches
                if matches:
                    marked.steps[unit.unit].add(step.name)


def _delete(store: Store, owners: Sequence[SecondPass], unit: UnitRows, units: Sequence[UnitRows]) -> None:
    """Delete the files that owners wrote for a unit, except tables that they keep from run to run."""
    for owner in owners:
        stale = owner.live(units if owner.over_all else [unit])
        for folder in stale.keys() - owner.kept:
            for name in stale[folder]:
                store.remove(f"{folder}/{name}")
