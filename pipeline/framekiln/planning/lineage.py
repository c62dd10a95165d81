"""The producers and readers of columns and tables: the order of steps, and where a column is read last.

The plan drops a column there, so that pixels travel no further than they must.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from framekiln.contract.columns import MEDIA_ID, ON_REQUEST, SOURCE, URI, is_pixel_column
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.stage import Scope, Stage
from framekiln.planning.step import Step

K = TypeVar("K", bound=Hashable)
Stages = Mapping[str, Stage]
Producers = Mapping[str, str]
"""Steps by the column, or by the table with a slash after its name, that they produce."""


def is_decoded(column: str) -> bool:
    """Return whether decoding produces a column on request: pixels or sound."""
    return is_pixel_column(column) or column in ON_REQUEST


def needs(stage: Stage) -> tuple[str, ...]:
    """Return the columns and tables that a stage reads, by their keys in `Producers`."""
    return (*stage.inputs, *map(_make_key, stage.input_tables))


def sources(stage: Stage, producers: Producers) -> list[str]:
    """Return the steps that a stage reads, once for each column and table."""
    return [producers[key] for key in needs(stage) if key in producers]


def find_producers(stages: Stages) -> Producers:
    """Return the step that adds each column and the step that writes each table.

    Raises:
        ConfigError: two steps produce the same column or table, or a step reads one that no step produces.
    """
    producers: dict[str, str] = {}
    for name, stage in stages.items():
        for column in stage.outputs.names:
            if column in producers:
                raise ConfigError(
                    f"Steps {producers[column]!r} and {name!r} both add a column {column!r}; remove one of them, or "
                    "rename its column.",
                    code="FK-COLUMN-TWICE",
                )
            if column in (*SOURCE.names, URI.name) or is_decoded(column):
                raise ConfigError(
                    f"Step {name!r} adds a column {column!r}, a name that decoding uses; rename the column.",
                    code="FK-COLUMN-RESERVED",
                )
            producers[column] = name
        for table in stage.tables:
            if (other := producers.setdefault(_make_key(table), name)) != name:
                raise ConfigError(
                    f"Steps {other!r} and {name!r} both write a table {table!r}; remove one of them.",
                    code="FK-TABLE-TWICE",
                )
    for name, stage in stages.items():
        for column in stage.inputs:
            _check_column(name, stage, column, producers)
        for table in stage.input_tables:
            _check_table(name, table, stages, producers)
    return producers


def _make_key(table: str) -> str:
    return f"{table}/"


def _check_table(name: str, table: str, stages: Stages, producers: Producers) -> None:
    tables = {key[:-1]: producer for key, producer in producers.items() if key.endswith("/")}
    check_known(table, tables, f"Step {name!r} reads a table {table!r} that no step writes.", code="FK-UNKNOWN-TABLE")
    if stages[name].scope.first_pass:
        raise ConfigError(
            f"Step {name!r} reads the table {table!r}, but tables are written after the first pass; give its stage the "
            "scope MEDIA or DATASET.",
            code="FK-TABLE-TOO-EARLY",
        )
    producer = stages[tables[table]]
    by_file = producer.scope is Scope.MEDIA and MEDIA_ID.name in producer.tables[table].schema.names
    if stages[name].scope is Scope.MEDIA and not by_file:
        raise ConfigError(
            f"Step {name!r} works file by file, and the rows of the table {table!r} of {tables[table]!r} have no file; "
            "give its stage the scope DATASET.",
            code="FK-TABLE-NOT-BY-FILE",
        )


def _check_column(name: str, stage: Stage, column: str, producers: Producers) -> None:
    if not is_decoded(column):
        problem = f"Step {name!r} reads a column {column!r} that no step adds."
        check_known(column, [*SOURCE.names, *producers], problem, code="FK-UNKNOWN-COLUMN")
    elif not stage.scope.first_pass:
        raise ConfigError(
            f"Step {name!r} reads {column!r}, but a second-pass step is given no pixels and no sound; read a column "
            "that a step derives from them.",
            code="FK-PIXELS-TOO-LATE",
        )
    if producers.get(column) == name:
        raise ConfigError(
            f"Step {name!r} reads a column {column!r} that it adds itself; remove it from its inputs.",
            code="FK-OWN-COLUMN",
        )
    if column in producers and stage.halo:
        raise ConfigError(
            f"Step {name!r} looks ahead, so it can read decoded columns only, not {column!r} of {producers[column]!r}.",
            code="FK-HALO-COLUMN",
        )


def with_producers(names: Iterable[str], stages: Stages, producers: Producers) -> set[str]:
    """Return the named steps and all producers behind them."""
    waiting, chosen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen.add(name)
            waiting += sources(stages[name], producers)
    return chosen


def in_order(names: set[str], stages: Stages, producers: Producers) -> list[str]:
    """Return steps with producers before readers, else those without a model first, else as in the pipeline file.

    Raises:
        ConfigError: steps read each other in a circle.
    """
    kind = {name: (not stages[name].scope.first_pass, bool(stages[name].weights)) for name in names}
    sorted_names = sorted((name for name in stages if name in names), key=kind.__getitem__)
    order, waiting = ordered({name: sources(stages[name], producers) for name in sorted_names})
    if waiting:
        raise ConfigError(
            f"Steps {', '.join(map(repr, sorted(waiting)))} read each other's results in a circle; remove one of these "
            "inputs.",
            code="FK-CIRCLE",
        )
    return order


def ordered(needs: Mapping[K, Collection[K]]) -> tuple[list[K], list[K]]:
    """Sort keys after the keys that they need, else in their order; also return the keys in a circle."""
    order: list[K] = []
    waiting = list(needs)
    while (ready := next((key for key in waiting if set(needs[key]) <= set(order)), None)) is not None:
        order.append(ready)
        waiting.remove(ready)
    return order, waiting


def with_drops(steps: Sequence[Step], decoded: Sequence[str]) -> tuple[Step, ...]:
    """Return first-pass steps in order, each with the columns that leave the packet there.

    A column leaves at its last reader. One that is added and never read does not enter.
    """
    carried = {*decoded, *(name for step in steps for name in step.stage.outputs.names)}
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        last |= {name: position for name in (*step.stage.outputs.names, *step.stage.inputs) if name in carried}
    here = [tuple(sorted(name for name, at in last.items() if at == position)) for position in range(len(steps))]
    return tuple(replace(step, drops=drops) for step, drops in zip(steps, here, strict=True))
