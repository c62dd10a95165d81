"""The rows that a run would compute: rows that conditions choose, less the values of earlier runs.

A run finds them as it goes. A plan checks the parts beforehand, and writes none. It sees units that an earlier run has
decoded, if the deciding columns are stored.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import DamagedError
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger, Part
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.runtime.chosen_rows import RowChooser
from framekiln.runtime.parts import Parts
from framekiln.runtime.run.change_report import Outlook
from framekiln.runtime.run.request import RunUnits
from framekiln.runtime.second_pass.second_pass import unit_rows
from framekiln.runtime.second_pass.table_steps import Tables
from framekiln.runtime.spared_frames import find_left_out, open_part
from framekiln.runtime.step_results import Outcome, advance, failed_rows, nulls

MOST_PARTS = 400  # parts, of some 10 ms each on a disk, 0.1 s in a bucket; a longer plan counts whole files
RowsLeft = dict[str, Counter[str]]
"""By step, each file's rows to compute; unknown steps are missing."""


def count_rows(outlook: Sequence[Outlook], plan: Plan, store: Store, units: RunUnits) -> list[Outlook]:
    """Return the outlook with rows in place of whole files, wherever parts of earlier runs show them."""
    ledger, left = Ledger(store), frozenset[str]().union(*(one.left for one in outlook))
    seen = [unit for unit in units.all if any(media.media_id in left for media in unit.media)]
    known = {unit.name: ledger.parts(plan.decode.folder, plan.decode.folder, unit.name) or [] for unit in seen}
    if sum(map(len, known.values())) > MOST_PARTS:
        return list(outlook)
    looker = _Looker(plan, store, ledger)
    found = [(unit, looker.look(unit, known[unit.name], units.wanted)) for unit in seen]
    return [_narrow(one, found) for one in outlook]


def _narrow(outlook: Outlook, found: Sequence[tuple[Unit, RowsLeft]]) -> Outlook:
    rows, unknown = Counter[str](), set[str]()
    for unit, by_step in found:
        if outlook.step in by_step:
            rows.update(by_step[outlook.step])
        else:
            unknown.update(media.media_id for media in unit.media)
    left = frozenset(name for name in outlook.left if rows[name] or name in unknown)
    spared = len(outlook.left) - len(left)
    total = None if left & unknown else sum(rows[name] for name in left)
    return replace(outlook, done=outlook.done + spared, todo=outlook.todo - spared, left=left, rows=total)


@dataclass(frozen=True)
class _Looker:
    """The steps of a plan, applied to the units of an output."""

    plan: Plan
    store: Store
    ledger: Ledger

    def look(self, unit: Unit, known: Sequence[Part], wanted: frozenset[str]) -> RowsLeft:
        """Return a unit's rows to compute; `known`: decoding's parts of it."""
        parts, chooser = Parts(self.store), RowChooser(self.store)
        looks = [self._look_at(parts, chooser, part) for part in known]
        found = {step.name: Counter[str]() for step in self.plan.steps if all(step.name in each for each in looks)}
        for name, rows in (item for each in looks for item in each.items() if item[0] in found):
            found[name].update(rows)
        if not known:
            return {}
        for row in unit_rows(self.plan, self.ledger, [unit], wanted):
            for step in (each for each in self.plan.second if each.others):
                with suppress(FileNotFoundError, DamagedError):  # of a table that it reads
                    found[step.name] = Counter(Tables(step, self.plan, self.store).count_changed(row))
        return found

    def _look_at(self, parts: Parts, chooser: RowChooser, part: Part) -> RowsLeft:
        """Return a packet's rows to compute, by the stored columns."""
        packet, found = open_part(parts, self.plan.decode, part), RowsLeft()
        unknown, later = set[str](), set[str]()  # steps; columns with values that the run will compute
        for step in (replace(each, drops=()) for each in self.plan.first):
            test = step.condition.test
            is_whole = self.ledger.has((self.plan.decode.folder, step.folder), part.unit)  # however it was cut
            is_there = is_whole or (part.start, part.stop) in self.ledger.spans(step.folder).get(part.unit, ())
            if is_there and (stored := parts.read(replace(step, recalled=is_whole), part)) is not None:
                left, outcome = np.zeros(packet.rows.num_rows, bool), stored
            elif step.needs & unknown or (test is not None and test.names & later):
                unknown.add(step.name)
                later.update(step.stage.outputs.names)
                continue
            else:
                passed = find_left_out(chooser, step, packet.rows)
                known = parts.find_known(step, packet, ~passed) if step.others else None
                columns = nulls(step.table_schema, len(passed)) if known is None else known.columns
                left = ~passed if known is None else ~passed & ~known.taken
                outcome = Outcome(columns, [], passed if step.is_narrowed else None)
            if left.any():
                later.update(step.stage.outputs.names)
            packet = replace(packet, rows=advance(packet.rows, step, outcome))
            found[step.name] = Counter(packet.rows[KEYS[0]].filter(pa.array(left)).to_pylist())
        unseen = {step.name for step in self.plan.first} - found.keys()
        for step in self.plan.second:
            if step.is_narrowed and not step.others and not step.condition.is_given and step.needs.isdisjoint(unseen):
                left = ~failed_rows(packet.rows, step.needs)
                found[step.name] = Counter(packet.rows[KEYS[0]].filter(pa.array(left)).to_pylist())
        return found
