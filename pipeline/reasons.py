"""What a run will compute again, and why, in words: a fingerprint says that something changed, never what.

So the facts behind each fingerprint are written into the output before anything is computed by them. What a step would
do now is compared with the facts that lie there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.assembly import unit_of
from pipeline.ledger import COLUMNS, Ledger, read_units, unchanged
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.plan import Plan
from pipeline.second import FRAMES, UnitRows
from pipeline.stage import Scope
from pipeline.step import DecodeStep, Step
from pipeline.storage import Store
from pipeline.tables import Tables

FACTS = "facts"
UNKNOWN = "computed by an unknown earlier setting"
Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What happened to the files since earlier runs into the output."""

    new: int = 0
    changed: int = 0
    regrouped: int = 0  # unchanged ones that shared a unit with one that changed or went
    removed: tuple[str, ...] = ()  # media_ids that the tables have rows of

    def words(self) -> str:
        """Why files are decoded that no earlier run has: empty where there are none."""
        said = [
            _count(self.new, "new file"),
            _count(self.changed, "changed file"),
            _count(self.regrouped, "file", " whose unit lost a file"),
        ]
        return ", ".join(filter(None, said))


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a step has to do."""

    step: str
    done: int  # files
    todo: int
    why: str  # empty where nothing is to do


def facts_path(step: Step | DecodeStep) -> str:
    """Where the facts behind a step's fingerprint are written down."""
    return f"{FACTS}/{step.folder}.json"


def remember(store: Store, plan: Plan) -> None:
    """Write down the facts behind every fingerprint of a plan, before anything is computed by them."""
    there = set(store.names(FACTS))
    steps: tuple[Step | DecodeStep, ...] = (plan.decode, *plan.steps)
    for step in steps:
        if facts_path(step).removeprefix(f"{FACTS}/") not in there:
            store.write(facts_path(step), json.dumps(step.facts, indent=2, default=str).encode())


def find_changes(store: Store, listing: Sequence[Media], fresh: Sequence[Unit]) -> Changes:
    """How the listing differs from what earlier runs saw; `fresh` are the units that it needs besides theirs."""
    made = {name for path in store.names(FRAMES) if (name := unit_of(path))}
    units = read_units(store)
    known: dict[str, list[Media]] = {}
    for one in (media for unit in units for media in unit.media):
        known.setdefault(one.media_id, []).append(one)
    to_read = [media for unit in fresh for media in unit.media]
    here = {media.media_id for media in listing}
    new = sum(media.media_id not in known for media in to_read)
    same = sum(any(unchanged(one, media) for one in known.get(media.media_id, ())) for media in to_read)
    return Changes(
        new=new,
        changed=len(to_read) - new - same,
        regrouped=same,
        removed=tuple(sorted({m.media_id for unit in units if unit.name in made for m in unit.media} - here)),
    )


def outlooks(
    plan: Plan,
    store: Store,
    units: Sequence[Unit],
    fresh: Collection[Unit],
    rows: Sequence[UnitRows],
    changes: Changes,
    *,
    deep: bool = True,
) -> list[Outlook]:
    """For decoding and every step, how many files are to do and why.

    Args:
        plan: the steps.
        store: the output; absent is as good as empty.
        units: all that was asked for, those in `fresh` among them.
        fresh: units that no earlier run knew.
        rows: the units that the whole first pass is done with.
        changes: of files.
        deep: look for every table of the second pass; false takes what earlier runs began for done.
    """
    ledger, earlier = Ledger(store), _Earlier(store)
    new, files = {unit.name for unit in fresh}, {unit.name: len(unit.media) for unit in units}
    result = []
    steps: tuple[Step | DecodeStep, ...] = (plan.decode, *plan.steps)
    for step in steps:
        over_all = isinstance(step, Step) and step.stage.scope is Scope.DATASET
        if isinstance(step, Step) and not step.first_pass:
            todo = {unit.name for unit in units} - {row.unit for row in rows}
            if (over_all and todo) or not (deep or earlier.without_facts or earlier.knows(step)):
                todo = {unit.name for unit in units}
            elif deep or earlier.without_facts:
                todo |= {row.unit for piece in Tables(step, plan, store).pieces(rows) for row in piece}
        else:
            decode = plan.decode.folder
            todo = {unit.name for unit in units if ledger.parts(step.folder, decode, unit.name) is None}
        why = [changes.words()] if todo & new else []
        if todo - new and not (over_all and why and earlier.knows(step)):
            why.append(earlier.why(step))
        count = sum(files[name] for name in todo)
        said = "; ".join(filter(None, why))
        result.append(Outlook(step=step.name, done=sum(files.values()) - count, todo=count, why=said))
    return result


class _Earlier:
    """The facts that lie in an output."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = [name.removesuffix(".json") for name in store.names(FACTS)]
        self._folders = store.folders(COLUMNS)
        self.without_facts = not self._known  # of an output that an older version began

    def knows(self, step: Step | DecodeStep) -> bool:
        """Whether an earlier run began it with the same facts."""
        return step.folder in self._known

    def why(self, step: Step | DecodeStep) -> str:
        """Why what an earlier run left does not do."""
        if self.knows(step):
            over_all = isinstance(step, Step) and step.stage.scope is Scope.DATASET
            return "not finished, or its files are others now" if over_all else "not finished by an earlier run"
        others = [folder for folder in self._known if folder.rpartition("-")[0] == step.name]
        if others:
            word = "decode rule" if isinstance(step, DecodeStep) else "setting"
            now = json.loads(json.dumps(step.facts, default=str))
            said = [differences(json.loads(self._store.read(f"{FACTS}/{name}.json")), now, word) for name in others]
            return ", ".join(sorted(said, key=len)[0]) or UNKNOWN  # the nearest of earlier settings
        tables = step.stage.tables if isinstance(step, Step) else ()
        there = any(folder.rpartition("-")[0] == step.name for folder in self._folders)
        return UNKNOWN if there or any(map(self._store.names, tables)) else "the step is new"


def differences(before: Facts, now: Facts, word: str) -> list[str]:
    """In words, each of the facts behind one fingerprint that is another behind the other.

    Args:
        before: facts as they lie in an output.
        now: others, in the same form.
        word: what its settings are called: "setting", or "decode rule" of decoding.
    """
    keys = [key for key in ("use", "version") if before.get(key) != now.get(key)]
    said = [f"{key} {before.get(key)} -> {now.get(key)}" for key in keys]
    said += _settings(word, before.get("settings", {}), now.get("settings", {}))
    if before.get("weights") != now.get("weights"):
        said.append(_weights(before.get("weights", []), now.get("weights", [])))
    if before.get("files") != now.get("files"):
        said.append("files that a setting names have changed")
    reads, are = before.get("reads", {}), now.get("reads", {})
    for name in sorted({*reads, *are}):
        if reads.get(name) != are.get(name):
            said.append("decode rule changed" if name == "decode" else f"input step {name!r} changed")
    return said


def _settings(word: str, before: Facts, now: Facts) -> list[str]:
    said = []
    for key in sorted({*before, *now}):
        if key not in before:
            said.append(f"{word} {key!r} is new")
        elif key not in now:
            said.append(f"{word} {key!r} has gone")
        elif before[key] != now[key]:
            said.append(f"{word} {key!r} changed {_short(before[key])} -> {_short(now[key])}")
    return said


def _weights(before: Sequence[str], now: Sequence[str]) -> str:
    random = [any(str(one).startswith("random ") for one in weights) for weights in (before, now)]
    if random == [True, False]:
        return "real weights instead of random ones"
    return "random weights instead of real ones" if random == [False, True] else "weights changed"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _count(number: int, word: str, more: str = "") -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}{more}" if number else ""
