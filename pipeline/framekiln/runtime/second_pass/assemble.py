"""`frames/` and `errors/`, assembled from finished units at any time, and the files that no longer belong there."""

import re
from collections.abc import Collection, Sequence

import pyarrow as pa

from framekiln.contract.columns import MEDIA_ID, SOURCE, URI
from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.contract.placement import Placement
from framekiln.contract.row_errors import traced
from framekiln.media.files import uri_of
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.planning.step import marked
from framekiln.profiling.events import Report
from framekiln.runtime.calls.packet_caller import nulls
from framekiln.runtime.recovery.attempt_log import AttemptLog
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows, columns_of

_OF_A_RUN = re.compile(r"(?:.*-)?(?:all|[0-9a-f]{16})-[0-9a-f]{12}\.parquet")
_OF_A_UNIT = re.compile(r"(?:.*-)?(?P<unit>[0-9a-f]{16})-[0-9a-f]{12}\.parquet")

ASSEMBLE = "assemble"
_URI_PLACE = 1  # after media_id


class Assembly:
    """The tables `frames/` and `errors/`, assembled from the parts."""

    name, cpus, over_all = ASSEMBLE, 1.0, False
    kept: frozenset[str] = frozenset()
    processes: Placement | None = None

    def __init__(self, plan: Plan, store: Store) -> None:
        """Keep the plan's names and schemas, without its stages: a process without their code can assemble too."""
        self._store, self._decode = store, plan.decode.folder
        self._columns = columns_of(plan, [*SOURCE.names, *(c for step in plan.first for c in step.stage.outputs.names)])
        self._facts, self._schema = plan.first_folders, frames_schema(plan)
        self._steps = [step.folder for step in plan.first]
        self._dummies = {dummy for step in plan.first for dummy in step.dummies}
        self._fingerprints = fingerprints(plan)

    def missing(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Return the units with rows that are not in `frames/` yet."""
        written = set(self._store.names(FRAMES))
        return [(unit,) for unit in units if self.name_of(unit) not in written]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """Return the names of the files that belong to these units, by folder."""
        names = {self.name_of(unit) for unit in units}
        return {FRAMES: names, ERRORS: names}

    def set_up(self) -> None:
        """Do nothing."""

    def __call__(self, units: tuple[UnitRows, ...], report: Report, log: AttemptLog) -> None:  # noqa: ARG002
        """Write one unit's errors, then its rows."""
        self.assemble(*units)

    def assemble(self, unit: UnitRows) -> None:
        """Write one unit's errors, then its rows."""
        name = self.name_of(unit)
        first = [unit.failures(self._store, folder) for folder in self._steps]
        failures = pa.concat_tables([unit.failures(self._store, self._decode, empty_too=True), *first])
        if failures.num_rows:
            errors = traced(failures, unit.inputs, self._fingerprints)
            self._store.write_table(f"{ERRORS}/{name}", errors.cast(marked(errors.schema, self._dummies)))
        table = unit.read(self._store, self._columns)
        if table.num_columns:
            where = {media.media_id: uri_of(media.path) for media in unit.files}
            uris = [where[name] for name in table[MEDIA_ID.name].to_pylist()]
            table = table.add_column(_URI_PLACE, URI, pa.array(uris, URI.type))
        rows = table.cast(self._schema) if table.num_columns else nulls(self._schema, 0)
        self._store.write_table(f"{FRAMES}/{name}", rows)

    def name_of(self, unit: UnitRows) -> str:
        """Return the name of a unit's tables; files that were moved with their times get new ones."""
        return unit.tag(*self._facts, [uri_of(media.path) for media in unit.files])


def fingerprints(plan: Plan) -> dict[str, str]:
    """Return what decides the rows of `frames/`: the fingerprints of decoding and of the first pass, by step."""
    return {plan.decode.name: plan.decode.fingerprint, **{step.name: step.fingerprint for step in plan.first}}


def frames_schema(plan: Plan) -> pa.Schema:
    """Return the columns of `frames/` with descriptions and units, marked if some came from random weights."""
    schema = pa.schema([*SOURCE, *(item for step in plan.first for item in step.table_schema)])
    schema = schema.insert(_URI_PLACE, URI)
    return marked(schema, {dummy for step in plan.first for dummy in step.dummies})


def sweep(
    store: Store, owners: Sequence[SecondPass], units: Sequence[UnitRows], share: Collection[str] | None = None
) -> int:
    """Delete files of tables that no longer belong, and return their number.

    A shard may delete the files of a `share` of the units; None for all.
    """
    live: dict[str, set[str]] = {}
    for owner in owners:
        for folder, names in owner.live(units).items():
            live.setdefault(folder, set()).update(names)
    others = [f"{folder}/{name}" for folder, names in live.items() for name in set(store.names(folder)) - names]
    stale = [path for path in others if share is None or unit_of(path) in share]
    for path in stale:
        store.remove(path)
    return len(stale)


def refuse_foreign(store: Store, owners: Sequence[SecondPass]) -> None:
    """Check that every file in the tables' folders was written by a run: a folder of photos may be called frames, too.

    Raises:
        OutputError: a file was not.
    """
    for folder in sorted({folder for owner in owners for folder in owner.live([])}):
        names = [name for name in store.names(folder) if not name.startswith(".")]  # file managers write hidden ones
        if other := next((name for name in names if _OF_A_RUN.fullmatch(name) is None), None):
            raise OutputError(
                f"{store.url(folder)!r} holds {other!r}, which no run wrote and the sweep at the end would delete. "
                "Move it, or choose another --output.",
                code="FK-FOREIGN-FILE",
            )


def unit_of(path: str) -> str | None:
    """Return the unit behind a table's file, by its name or path; None for a file of several units."""
    match = _OF_A_UNIT.fullmatch(path.rpartition("/")[2])
    return match["unit"] if match else None
