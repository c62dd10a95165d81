"""A report of what a run will compute again, and why.

A fingerprint shows that something changed, but not what. So the facts behind each fingerprint are stored in the output
before their first use. The report compares a step's current facts with the stored ones. Through them a wider condition
finds the values of runs with other conditions, and computes only the new rows.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from framekiln.contract.errors import ConfigError, DamagedError
from framekiln.contract.output_names import COLUMNS, FACTS
from framekiln.contract.stage import Scope
from framekiln.contract.words import counted
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units, tabulated_units
from framekiln.planning.plan import Plan
from framekiln.planning.step import DecodeStep, Step, is_file_column
from framekiln.runtime.run.request import RunUnits
from framekiln.runtime.second_pass.earlier_tables import list_earlier
from framekiln.runtime.second_pass.second_pass import expected_rows
from framekiln.runtime.second_pass.table_steps import Tables

UNKNOWN = "computed by an unknown earlier setting"
Facts = Mapping[str, Any]
_DIGESTS = ("among", "rows")  # keys of sets of rows, in a condition's facts


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes of the files since earlier runs into the output."""

    new: int = 0
    changed: int = 0
    removed: tuple[str, ...] = ()  # media_ids with rows in the tables

    def reason(self) -> str:
        """Return why files are decoded for the first time; empty if there are none."""
        kinds = [(self.new, "new file"), (self.changed, "changed file")]
        return ", ".join(counted(number, noun) for number, noun in kinds if number)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The remaining work of a step."""

    step: str
    done: int  # files
    todo: int
    why: str  # empty if nothing is left
    left: frozenset[str] = frozenset()  # media ids of the remaining files
    rows: int | None = None  # their rows to compute; None: only known during the run


def remember(store: Store, plan: Plan) -> None:
    """Store the facts behind every fingerprint of a plan before their first use."""
    stored = set(store.names(FACTS))
    steps: tuple[Step | DecodeStep, ...] = (plan.decode, *plan.steps)
    for step in steps:
        if (name := f"{step.folder}.json") not in stored:
            store.write(f"{FACTS}/{name}", json.dumps(step.facts, indent=2, default=str).encode())


def refuse_changed(store: Store, plan: Plan) -> None:
    """Check that each step would give the same results as before. Raises ConfigError: one would not."""
    known = {name.removesuffix(".json") for name in store.names(FACTS)}
    begun = {name.rpartition("-")[0] for name in known}  # others were not reached before an interruption
    if changed := [step.name for step in plan.steps if step.name in begun and step.folder not in known]:
        raise ConfigError(
            f"{', '.join(changed)} would give other results than before, since settings, weights or versions have "
            "changed; use `framekiln run`, which computes all their rows again.",
            code="FK-RETRY-CHANGED",
        )


def find_changes(store: Store, listing: Sequence[MediaFile], fresh: Sequence[Unit]) -> Changes:
    """Return the differences between the listing and earlier runs' files; `fresh`: its new units."""
    tabulated = tabulated_units(store)
    units = read_units(store)
    known = {media.media_id for unit in units for media in unit.media}
    to_read = [media for unit in fresh for media in unit.media]
    here = {media.media_id for media in listing}
    new = sum(media.media_id not in known for media in to_read)
    return Changes(
        new=new,
        changed=len(to_read) - new,
        removed=tuple(sorted({m.media_id for unit in units if unit.name in tabulated for m in unit.media} - here)),
    )


def outlooks(plan: Plan, store: Store, units: RunUnits, changes: Changes) -> list[Outlook]:
    """Return the work of decoding and of every step: files, and the reason. The output need not exist."""
    ledger, earlier = Ledger(store), _Earlier(store)
    new = {unit.name for unit in units.fresh}
    files = {unit.name: [m.media_id for m in unit.media if m.media_id not in unit.stale] for unit in units.all}
    rows = [expected_rows(unit, units.wanted) for unit in units.all]
    result = []
    steps: tuple[Step | DecodeStep, ...] = (plan.decode, *plan.steps)
    for step in steps:
        over_all = isinstance(step, Step) and step.stage.scope is Scope.DATASET
        replaced = False
        if isinstance(step, Step) and not step.first_pass:
            missing = [row for call in Tables(step, plan, store).missing(rows) for row in call]
            todo, written = {row.unit for row in missing}, set(store.names(next(iter(step.stage.tables))))
            alone = (replace(row, origins=()) for row in missing)
            replaced = not written.isdisjoint(name for row in alone for name in list_earlier(step, row))
        else:
            decode = plan.decode.folder
            todo = {unit.name for unit in units.all if ledger.parts(step.folder, decode, unit.name) is None}
        why = [changes.reason()] if todo & new else []
        if todo - new and not (over_all and why and earlier.knows(step)):
            why.append(earlier.why(step, replaced=replaced))
        count, every = (sum(len(files[name]) for name in names) for names in (todo, files))
        reason, left = "; ".join(filter(None, why)), frozenset().union(*(files[name] for name in todo))
        result.append(Outlook(step=step.name, done=every - count, todo=count, why=reason, left=left))
    return result


class _Earlier:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = [name.removesuffix(".json") for name in store.names(FACTS)]
        self._folders = store.folders(COLUMNS)

    def knows(self, step: Step | DecodeStep) -> bool:
        """Return whether an earlier run began the step with the same facts."""
        return step.folder in self._known

    def why(self, step: Step | DecodeStep, *, replaced: bool) -> str:
        """Return why a step's earlier results cannot be used; `replaced`: results of another condition exist."""
        others = [name for name in self._known if name.rpartition("-")[0] == step.name and name != step.folder]
        if self.knows(step):
            if not isinstance(step, Step) or step.first_pass:
                return "not finished by an earlier run"
            if replaced:
                return "tables of another condition took their place"
            if others:
                return "another setting's tables took their place, or its files have changed since"
            return "not finished, or its files have changed since"
        if others:
            word = "decode rule" if isinstance(step, DecodeStep) else "setting"
            now = json.loads(json.dumps(step.facts, default=str))
            earlier = [facts for name in others if (facts := stored_facts(self._store, name)) is not None]
            phrases = min((differences(facts, now, word) for facts in earlier), key=len, default=[])
            return ", ".join(phrases) or UNKNOWN  # compared with the nearest earlier settings
        tables = step.stage.tables if isinstance(step, Step) else ()
        has_results = any(folder.rpartition("-")[0] == step.name for folder in self._folders)
        return UNKNOWN if has_results or any(map(self._store.names, tables)) else "the step is new"


def stored_facts(store: Store, folder: str) -> Facts | None:
    """Return the facts of a fingerprint by its folder's name; None if they are absent or damaged."""
    with suppress(DamagedError, FileNotFoundError):
        facts = store.read_json(f"{FACTS}/{folder}.json")
        return facts if isinstance(facts, dict) else None
    return None


def differences(before: Facts, now: Facts, word: str) -> list[str]:
    """Return a phrase for each difference between the facts of two fingerprints; `word` names a setting."""
    pairs = ((key, before.get(key), now.get(key)) for key in ("use", "version"))
    phrases = [f"{key} {old} -> {new}" for key, old, new in pairs if old != new]
    phrases += _compare_settings(word, before.get("settings", {}), now.get("settings", {}))
    conditions = [facts.get("rows") or {} for facts in (before, now)]
    words = [{key: facts[key] for key in facts if key not in _DIGESTS} for facts in conditions]
    others = _compare_settings("condition", *words)
    phrases += others or ["the list of chosen rows changed"] * (conditions[0] != conditions[1])
    weights = [facts.get("weights", []) for facts in (before, now)]
    if weights[0] != weights[1]:
        random = [any(str(one).startswith("random ") for one in each) for each in weights]
        mixed = {
            (True, False): "real weights instead of random ones",
            (False, True): "random weights instead of real ones",
        }
        phrases.append(mixed.get((random[0], random[1]), "weights changed"))
    files = [facts.get("files", []) for facts in (before, now)]
    if files[0] != files[1] and len(files[0]) == len(files[1]):  # a file that is named first is a new setting
        phrases.append("files that a setting names have changed")
    reads, are = before.get("reads", {}), now.get("reads", {})
    for name in sorted(reads.keys() & are.keys()):  # others belong to a condition that was added or removed
        if reads[name] != are[name]:
            phrases.append("decode rule changed" if name == "decode" else f"input step {name!r} changed")
    return phrases


def _compare_settings(word: str, before: Facts, now: Facts) -> list[str]:
    phrases = []
    for key in sorted({*before, *now}):
        if key not in before:
            phrases.append(f"{word} {key!r} is new")
        elif key not in now:
            phrases.append(f"{word} {key!r} has gone")
        elif before[key] != now[key]:
            phrases.append(f"{word} {key!r} changed {_shorten(before[key])} -> {_shorten(now[key])}")
    return phrases


def _shorten(value: object) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def with_others(plan: Plan, store: Store) -> Plan:
    """Return the plan with `others` of each step: folders with the same values, computed for other rows."""
    there = set(store.folders(COLUMNS))
    known = [path.removesuffix(".json") for path in store.names(FACTS)]
    others = {
        step.name: _find(step, [name for name in known if name in there or not step.first_pass], store)
        for step in plan.steps
        if _may_reuse(step)
    }

    def extend(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(replace(step, others=others.get(step.name, ())) for step in steps)

    waves = tuple(replace(wave, steps=extend(wave.steps)) for wave in plan.waves)
    if not any(others.values()):
        return plan
    return replace(plan, first=extend(plan.first), waves=waves, second=extend(plan.second))


def _find(step: Step, known: Sequence[str], store: Store) -> tuple[str, ...]:
    """Return the folders with equal values of rows or clips; the folder of all rows comes first."""
    names = [name for name in known if name.rpartition("-")[0] == step.name and name != step.folder]
    alike = {name: (stored_facts(store, name) or {}).get("alike", name.rpartition("-")[2]) for name in names}
    same = [name for name in names if alike[name] == step.alike]
    return tuple(sorted(same, key=lambda name: name != f"{step.name}-{step.alike}"))


def _may_reuse(step: Step) -> bool:
    """Return whether another condition's values can be used: clips' files lie in folders of their condition."""
    if not step.first_pass:
        names = (table.schema.names for table in step.stage.tables.values())
        return step.stage.scope is Scope.MEDIA and all("media_id" in each for each in names)
    return step.stage.scope is Scope.ROW or not any(map(is_file_column, step.stage.outputs))
