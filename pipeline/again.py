"""Rows that failed are tried again, and no others: after a cause was mended, a night's work need not be done anew.

A mark beside a part names the rows of it that are to be computed again; until that is done the part counts as missing,
and a run that meets it keeps its other rows. Files that could not be decoded get a unit of their own, which stands for
them from then on. Nothing is lost when this stops half-way: the marks stay, and any run goes on from there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipeline.assembly import ASSEMBLE
from pipeline.columns import KEYS, SOURCE
from pipeline.failure import DECODE
from pipeline.ledger import COLUMNS, Part, write_units
from pipeline.media.units import Unit, again
from pipeline.plan import Plan
from pipeline.second import ERRORS, SecondPass, UnitRows
from pipeline.step import Step
from pipeline.storage import Store

Key = tuple[str, int]
MARK_SCHEMA = pa.schema([SOURCE.field(name) for name in KEYS])


@dataclass(frozen=True, kw_only=True)
class Which:
    """The failures that are meant; None for any."""

    step: str | None = None
    kind: str | None = None

    def means(self, step: str, kind: str) -> bool:
        """Whether a failure is among them."""
        return self.step in (None, step) and self.kind in (None, kind)


@dataclass
class Found:
    """What will be tried again."""

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)  # by step and kind; files where it is decoding
    parts: dict[tuple[str, Part], set[Key]] = field(default_factory=lambda: defaultdict(set))  # by step folder and part
    files: dict[str, set[str]] = field(default_factory=dict)  # that could not be decoded, or not all of them, by unit
    steps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # whose results change, by unit

    def told(self) -> str:
        """One sentence."""
        if not self.rows:
            return "Nothing that failed is meant by that: nothing is tried again."
        steps = dict.fromkeys(step for step, _ in sorted(self.rows))
        return "Tried again: " + "; ".join(self._told_of(step) for step in steps) + "."

    def _told_of(self, step: str) -> str:
        kinds = {kind: count for (name, kind), count in self.rows.items() if name == step}
        what = "files that were not read whole" if step == DECODE else f"failures of {step}"
        return f"{sum(kinds.values())} {what} ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"


def find(store: Store, plan: Plan, units: Sequence[UnitRows], which: Which) -> Found:
    """The failures of finished units that are meant, and whatever was made of their rows."""
    found = Found()
    for unit in units:
        for row in unit.failures(store, plan.decode.folder, empty_too=True).to_pylist():
            if which.means(DECODE, row["kind"]) and row["media_id"] not in found.files.get(unit.unit, ()):
                found.files.setdefault(unit.unit, set()).add(row["media_id"])
                found.rows[DECODE, row["kind"]] += 1
        for step in plan.first:
            for part, key, kind in _failed(store, unit, step, which):
                found.rows[step.name, kind] += 1
                _spread(found, plan, unit, step, part, key)
    return found


def _failed(store: Store, unit: UnitRows, step: Step, which: Which) -> Iterator[tuple[Part, Key, str]]:
    for part in unit.parts[step.folder]:
        path = f"{COLUMNS}/{step.folder}/{part.errors_name}"
        if store.exists(path):
            for row in store.read_table(path).to_pylist():
                if which.means(step.name, row["kind"]):
                    yield part, (row["media_id"], row["frame_index"]), row["kind"]


def _spread(found: Found, plan: Plan, unit: UnitRows, step: Step, part: Part, key: Key) -> None:
    """A row's result, and what later steps made of its absence."""
    for later in plan.first:
        if later is step or step.name in later.depends:
            found.steps[unit.unit].add(later.name)
            for own in unit.parts[later.folder]:
                if own.start < part.stop and part.start < own.stop:
                    found.parts[later.folder, own].add(key)


def mark(
    store: Store,
    plan: Plan,
    formed: Sequence[Unit],
    units: Sequence[UnitRows],
    owners: Sequence[SecondPass],
    which: Which,
) -> Found:
    """Have the next run try again what failed; tables that are made of it go first, so that none is out of date.

    Args:
        store: the output.
        plan: of the run that failed.
        formed: the output's units.
        units: those of them that are finished.
        owners: who writes the tables.
        which: what is meant.
    """
    found = find(store, plan, units, which)
    _find_later(store, plan, units, which, found)
    for unit in units:
        changed = found.steps.get(unit.unit, set())
        if changed or unit.unit in found.files:
            everything = unit.unit in found.files
            stale = {step.name for step in plan.second if everything or ({step.name} | step.depends) & changed}
            _forget(store, [owner for owner in owners if owner.name in stale or owner.name == ASSEMBLE], unit, units)
    for (folder, part), keys in found.parts.items():
        rows = pa.table([pa.array(column) for column in zip(*sorted(keys), strict=True)], schema=MARK_SCHEMA)
        store.write_table(f"{COLUMNS}/{folder}/{part.again_name}", rows)
    write_units(store, [again(unit, found.files[unit.name]) for unit in formed if unit.name in found.files])
    return found


def _find_later(store: Store, plan: Plan, units: Sequence[UnitRows], which: Which, found: Found) -> None:
    """Files on which a step of the second pass failed."""
    names = store.names(ERRORS)
    for step in plan.second:
        for unit in units:
            for name in (name for name in names if name.startswith(f"{step.name}-{unit.unit}-")):
                kinds = store.read_table(f"{ERRORS}/{name}", ["kind"])["kind"].to_pylist()
                meant = Counter((step.name, kind) for kind in kinds if which.means(step.name, kind))
                found.rows += meant
                if meant:
                    found.steps[unit.unit].add(step.name)


def _forget(store: Store, owners: Sequence[SecondPass], unit: UnitRows, units: Sequence[UnitRows]) -> None:
    """Remove what the owners wrote of a unit."""
    for owner in owners:
        for folder, names in owner.live(units if owner.over_all else [unit]).items():
            for name in names:
                store.remove(f"{folder}/{name}")
