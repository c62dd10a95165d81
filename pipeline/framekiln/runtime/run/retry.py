"""Retries of failed rows only: after a cause is corrected, other rows keep their results.

A mark beside a part names its rows to retry. Until they are done, the part counts as missing, and a run keeps its other
rows. Files that could not be decoded get a new unit, which replaces them in their old one. If marking is interrupted,
nothing is lost: the marks stay, and any run continues from there.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import FrameKey
from framekiln.contract.errors import Reason
from framekiln.contract.output_names import COLUMNS, ERRORS
from framekiln.contract.row_errors import DECODE, PASSED_OVER
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.units import Unit, retry_unit
from framekiln.output.ledger import MARKS, Part
from framekiln.output.object_store import Store
from framekiln.output.unit_table import write_units
from framekiln.planning.plan import Plan
from framekiln.runtime.second_pass.second_pass import ASSEMBLE, SecondPass, UnitRows


@dataclass(frozen=True, kw_only=True)
class FailureFilter:
    """The failures to retry, by step and kind; None: any. Files that are no media match by their kind only."""

    step: str | None = None
    kind: str | None = None

    def matches(self, step: str, kind: str) -> bool:
        wanted = kind != PASSED_OVER if self.kind is None else kind == self.kind
        return self.step in (None, step) and wanted


def find_unreached(before: Mapping[str, Any] | None) -> FailureFilter | None:
    """Return the files of a bucket that did not answer the run before (its run.json); None if there are none."""
    has_some = Reason.UNREACHABLE in (before or {}).get("errors", {})
    return FailureFilter(step=DECODE, kind=Reason.UNREACHABLE) if has_some else None


class Retry:
    """The failures in finished units that match a filter, and everything that depends on their rows."""

    def __init__(self, store: Store, plan: Plan, units: Sequence[UnitRows], failures: FailureFilter) -> None:
        """Find the failures; mark nothing yet."""
        self._store, self._plan, self._units, self._failures = store, plan, units, failures
        self._rows: Counter[tuple[str, str]] = Counter()  # by step and kind; for decoding, files
        self._others: set[str] = set()  # kinds of failures that do not match
        self._parts: dict[tuple[str, Part], set[FrameKey]] = defaultdict(set)  # rows by step folder and part
        self._files: dict[str, set[str]] = {}  # incompletely decoded files, by unit
        self._steps: dict[str, set[str]] = defaultdict(set)  # steps with new results, by unit
        self._errors = store.names(ERRORS)
        for unit in units:
            self._find(unit)

    def summary(self) -> str:
        if not self._rows:
            others = f" Failures here are of the kinds: {', '.join(sorted(self._others))}." if self._others else ""
            return f"No failure matches, so nothing is retried.{others}"
        phrases = []
        for step, rows in groupby(sorted(self._rows.items()), key=lambda item: item[0][0]):
            kinds = {kind: count for (_, kind), count in rows}
            what = "files that were not read completely" if step == DECODE else f"failures of {step}"
            each = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            phrases.append(f"{sum(kinds.values())} {what} ({each})")
        return f"Retried: {'; '.join(phrases)}."

    def mark(self, formed: Sequence[Unit], owners: Sequence[SecondPass]) -> None:
        """Mark the rows for the next run. First delete tables computed from them, so that none is out of date.

        `formed`: all units of the output. Tables that `owners` keep from run to run stay.
        """
        for unit in self._units:
            everything, changed = unit.unit in self._files, self._steps.get(unit.unit, set())
            stale = {step.name for step in self._plan.second if everything or ({step.name} | step.depends) & changed}
            stale |= {ASSEMBLE} if everything or changed else set()
            for owner in (owner for owner in owners if owner.name in stale):
                live = owner.live(self._units if owner.over_all else [unit])
                for path in (f"{folder}/{name}" for folder in live.keys() - owner.kept for name in live[folder]):
                    self._store.remove(path)
        for (folder, part), keys in self._parts.items():
            rows = pa.table([pa.array(column) for column in zip(*sorted(keys), strict=True)], schema=MARKS)
            self._store.write_table(f"{COLUMNS}/{folder}/{part.retry_name}", rows)
        again = [retry_unit(unit, self._files[unit.name]) for unit in formed if unit.name in self._files]
        write_units(self._store, again)

    def _find(self, unit: UnitRows) -> None:
        for row in self._match(DECODE, unit.failures(self._store, self._plan.decode.folder, empty_too=True)):
            if row["media_id"] not in self._files.get(unit.unit, ()):
                self._files.setdefault(unit.unit, set()).add(row["media_id"])
                self._rows[DECODE, row["kind"]] += 1
        for step in self._plan.first:
            dependent = [each for each in self._plan.first if each is step or step.name in each.depends]
            for part in unit.parts[step.folder]:
                keys = set()
                for row in self._read(f"{COLUMNS}/{step.folder}/{part.errors_name}", step.name):
                    self._rows[step.name, row["kind"]] += 1
                    keys.add((row["media_id"], row["frame_index"]))
                for later in dependent if keys else ():
                    self._steps[unit.unit].add(later.name)
                    for own in unit.parts[later.folder]:
                        if own.start < part.stop and part.start < own.stop:
                            self._parts[later.folder, own] |= keys
        for step in self._plan.second:
            for name in self._errors:
                if name.startswith(f"{step.name}-{unit.unit}-"):
                    rows = self._read(f"{ERRORS}/{name}", step.name)
                    self._rows.update((step.name, row["kind"]) for row in rows)
                    self._steps[unit.unit] |= {step.name} if rows else set()

    def _read(self, path: str, step: str) -> list[dict[str, Any]]:
        """Return a step's matching failures in one of its tables; none without such a table."""
        if not self._store.exists(path):
            return []
        return self._match(step, self._store.read_table(path, expected=FAILURES))

    def _match(self, step: str, failures: pa.Table) -> list[dict[str, Any]]:
        rows = failures.to_pylist()
        matching = [row for row in rows if self._failures.matches(step, row["kind"])]
        self._others |= {row["kind"] for row in rows} - {row["kind"] for row in matching}
        return matching
