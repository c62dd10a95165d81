"""Removal of an output's damaged files before a run, so that the run computes them again."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from framekiln.contract.columns import PLACES, SOURCE
from framekiln.contract.output_names import (
    COLUMNS,
    DAMAGED,
    DIGESTS,
    ERRORS,
    FACTS,
    FRAMES,
    PROFILE,
    REPORT,
    ROW_SETS,
    UNITS,
)
from framekiln.contract.stage import Stage
from framekiln.output.ledger import ERRORS_SUFFIX
from framekiln.output.object_store import Store
from framekiln.output.parquet import exact
from framekiln.output.recognise import later_tables
from framekiln.planning.plan import Plan
from framekiln.planning.step import is_file_column, parts_schema
from framekiln.runtime.check.check import damaged_tables, listed_damage, parts_without_images
from framekiln.runtime.second_pass.second_pass import OF_A_RUN, SecondPass

_NAMED = 3  # most files in a message


class Mending:
    """The removal of damaged files from the folders that a run writes tables into."""

    def __init__(
        self, store: Store, plan: Plan, owners: Sequence[SecondPass], on_message: Callable[[str], None]
    ) -> None:
        """Keep the arguments; `on_message` gets a sentence that names removed files."""
        self._store, self._plan, self._owners, self._on_message = store, plan, owners, on_message

    def remove_known(self) -> None:
        """Remove files that `framekiln check` found damaged, and parts with missing or empty images.

        No other step would notice a lost image.
        """
        folders = {*self._list_folders(), FACTS, PROFILE}
        known = listed_damage(self._store)
        self._remove([path for path in known if path == REPORT or path.rpartition("/")[0] in folders])
        self._store.remove(DAMAGED)
        with_images = [step.folder for step in self._plan.first if any(map(is_file_column, step.stage.outputs))]
        self._remove([path for path, _ in parts_without_images(self._store, with_images)])

    def remove_damaged(self) -> bool:
        """Remove tables that cannot be read, and return whether there were any."""
        stages = {step.folder: step.stage for step in self._plan.steps}
        damaged = damaged_tables(self._store, self._list_folders(), expected_parts(self._plan.decode.folder, stages))
        self._remove(damaged)
        return bool(damaged)

    def _list_folders(self) -> list[str]:
        tables = {folder for owner in self._owners for folder in owner.live([])}
        earlier = later_tables(self._store)  # also of steps that this run is without
        tables |= {folder for folder in earlier if all(map(OF_A_RUN.fullmatch, self._store.names(folder)))}
        parts = [f"{COLUMNS}/{name}" for name in self._store.folders(COLUMNS)]
        return [UNITS, DIGESTS, ROW_SETS, *parts, *sorted(tables)]

    def _remove(self, damaged: Sequence[str]) -> None:
        for path in damaged:
            self._store.remove(path)
            for other in self._find_dependent(path):
                self._store.remove(other)
        if damaged:
            more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
            names = ", ".join(damaged[:_NAMED])
            self._on_message(f"Damaged files of the output are removed, to be computed again: {names}{more}.")

    def _find_dependent(self, path: str) -> list[str]:
        """Return the files that are void without a table of failures: the part, or tables of the same rows."""
        folder, _, name = path.rpartition("/")
        if name.endswith(ERRORS_SUFFIX):
            return [path.removesuffix(ERRORS_SUFFIX) + ".parquet"]
        if folder != ERRORS:
            return []
        tag = "-".join(name.split("-")[-2:])
        return [f"{table}/{tag}" for owner in self._owners for table in owner.live([]).keys() - owner.kept - {ERRORS}]


def expected_parts(decode: str, stages: Mapping[str, Stage]) -> dict[str, pa.Schema]:
    """Return the columns that all tables of an output have, by folder; the stages by that of their parts."""
    first = {
        f"{COLUMNS}/{folder}": exact(parts_schema(stage)) for folder, stage in stages.items() if stage.scope.first_pass
    }
    return {f"{COLUMNS}/{decode}": SOURCE, **first, **expected_tables(stages)}


def expected_tables(stages: Mapping[str, Stage]) -> dict[str, pa.Schema]:
    """Return the columns of the tables that users read, by folder; keys of `stages` are any names."""
    frames, expected = [*SOURCE, *PLACES], dict[str, pa.Schema]()
    for stage in stages.values():
        if stage.scope.first_pass:
            frames += parts_schema(stage)
            continue
        expected |= {name: exact(table.schema) for name, table in stage.tables.items()}
    return {FRAMES: exact(pa.schema(frames)), **expected}
