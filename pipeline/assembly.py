"""The end of a run: `frames/` and `errors/` are put together, and what no longer belongs goes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pyarrow as pa

from pipeline.calls import nulls
from pipeline.columns import SOURCE
from pipeline.errors import OutputError
from pipeline.failure import traced
from pipeline.journal import Journal
from pipeline.plan import Plan
from pipeline.sample import Report
from pipeline.second import ERRORS, FRAMES, SecondPass, UnitRows, columns_of
from pipeline.stage import Placement
from pipeline.step import marked
from pipeline.storage import Store

_OF_A_RUN = re.compile(r"(?:.*-)?(?:all|[0-9a-f]{16})-[0-9a-f]{12}\.parquet")
_OF_A_UNIT = re.compile(r"(?:.*-)?(?P<unit>[0-9a-f]{16})-[0-9a-f]{12}\.parquet")

ASSEMBLE = "assemble"


class Assembly:
    """`frames/` and `errors/`: what people query, put together from the parts."""

    name, cpus, over_all = ASSEMBLE, 1.0, False
    processes: Placement | None = None

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._columns = columns_of(plan, [*SOURCE.names, *(c for step in plan.first for c in step.stage.outputs.names)])
        self._facts = plan.first_folders

    def pieces(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Units whose rows are not yet in `frames/`."""
        return [(unit,) for unit in units if not self._store.exists(f"{FRAMES}/{unit.tag(*self._facts)}")]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """By folder, the names of the files that belong to these units."""
        names = {unit.tag(*self._facts) for unit in units}
        return {FRAMES: names, ERRORS: names}

    def set_up(self) -> None:
        """Nothing to make ready."""

    def __call__(self, piece: tuple[UnitRows, ...], report: Report, journal: Journal) -> None:  # noqa: ARG002
        """Write one unit's rows and errors."""
        (unit,) = piece
        name = unit.tag(*self._facts)
        first = [unit.failures(self._store, step.folder) for step in self._plan.first]
        failures = pa.concat_tables([unit.failures(self._store, self._plan.decode.folder, empty_too=True), *first])
        if failures.num_rows:
            dummies = {dummy for step in self._plan.first for dummy in step.dummies}
            steps = {step.name: step.fingerprint for step in self._plan.first}
            steps[self._plan.decode.name] = self._plan.decode.fingerprint
            told = traced(failures, unit.inputs, steps)
            self._store.write_table(f"{ERRORS}/{name}", told.cast(marked(told.schema, dummies)))
        table = unit.read(self._store, self._columns)
        schema = frames_schema(self._plan)
        self._store.write_table(f"{FRAMES}/{name}", table.cast(schema) if table.num_columns else nulls(schema, 0))


def frames_schema(plan: Plan) -> pa.Schema:
    """The columns of `frames/`, with their descriptions and units, marked where some came from random weights."""
    schema = pa.schema([*SOURCE, *(item for step in plan.first for item in step.table_schema)])
    return marked(schema, {dummy for step in plan.first for dummy in step.dummies})


def sweep(
    store: Store, owners: Sequence[SecondPass], units: Sequence[UnitRows], share: Collection[str] | None = None
) -> int:
    """Delete files of tables that no longer belong; returns how many.

    Args:
        store: the output.
        owners: who writes the tables.
        units: what was asked for.
        share: names of units whose files are ours to delete, of a shard; None: all files are.
    """
    live: dict[str, set[str]] = {}
    for owner in owners:
        for folder, names in owner.live(units).items():
            live.setdefault(folder, set()).update(names)
    found = ((folder, name) for folder, names in live.items() for name in set(store.names(folder)) - names)
    stale = [f"{folder}/{name}" for folder, name in found if share is None or unit_of(name) in share]
    for path in stale:
        store.remove(path)
    return len(stale)


def refuse_foreign(store: Store, owners: Sequence[SecondPass]) -> None:
    """Stop before files are swept that no run wrote: a folder of photos may be called frames, too.

    Raises:
        OutputError: there is one in a table's folder.
    """
    for folder in sorted({folder for owner in owners for folder in owner.live([])}):
        if other := next((name for name in store.names(folder) if _foreign(name)), None):
            raise OutputError(
                f"{store.url(folder)!r} holds {other!r}, which no run wrote, and runs delete what is not theirs there; "
                "move it, or choose another --output."
            )


def _foreign(name: str) -> bool:
    """Whether a file in a table's folder is somebody's; hidden ones are file managers' and go with what they are of."""
    return not name.startswith(".") and _OF_A_RUN.fullmatch(name) is None


def unit_of(name: str) -> str | None:
    """The unit that a table's file was made of; None for a file of several."""
    match = _OF_A_UNIT.fullmatch(name)
    return match["unit"] if match else None
