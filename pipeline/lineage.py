"""Which step makes a column or table, which steps read it, and where a column is read last.

The plan drops a column there, so that pixels never travel further than they must.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipeline.columns import MEDIA_ID, ON_REQUEST, SOURCE, is_pixels
from pipeline.errors import ConfigError, did_you_mean
from pipeline.stage import Scope, Stage
from pipeline.step import Step

Stages = Mapping[str, Stage]
Makers = Mapping[str, str]
"""By column, or by table with a slash behind its name, the step that makes it."""


def is_decoded(column: str) -> bool:
    """Whether decoding makes a column on request: pixels or sound."""
    return is_pixels(column) or column in ON_REQUEST


def needs(stage: Stage) -> tuple[str, ...]:
    """The columns and tables that a stage reads, as `Makers` names them."""
    return (*stage.inputs, *map(_folder, stage.reads))


def find_makers(stages: Stages) -> Makers:
    """Who adds each column, and who writes each table.

    Raises:
        ConfigError: two steps make one column or table, or one is read that nobody makes.
    """
    makers: dict[str, str] = {}
    for name, stage in stages.items():
        for column in stage.outputs.names:
            if column in makers:
                both = f"Steps {makers[column]!r} and {name!r} both add a column {column!r}"
                raise ConfigError(f"{both}; leave one of them out, or rename its column.")
            if column in SOURCE.names or is_decoded(column):
                raise ConfigError(f"Step {name!r} adds a column {column!r}, a name that decoding already uses.")
            makers[column] = name
        for table in stage.tables:
            if (other := makers.setdefault(_folder(table), name)) != name:
                both = f"Steps {other!r} and {name!r} both write a table {table!r}"
                raise ConfigError(f"{both}; leave one of them out.")
    for name, stage in stages.items():
        for column in stage.inputs:
            _check_input(name, stage, column, makers)
        for table in stage.reads:
            _check_table(name, table, stages, makers)
    return makers


def _folder(table: str) -> str:
    return f"{table}/"


def _check_table(name: str, table: str, stages: Stages, makers: Makers) -> None:
    maker = makers.get(_folder(table))
    if maker is None:
        known = did_you_mean(table, [made[:-1] for made in makers if made.endswith("/")])
        raise ConfigError(f"Step {name!r} reads a table {table!r} that no step writes.{known}")
    if stages[name].scope.first_pass:
        raise ConfigError(f"Step {name!r} reads the table {table!r}, but tables are made after the first pass.")
    of_files = stages[maker].scope is Scope.MEDIA and MEDIA_ID.name in stages[maker].tables[table].schema.names
    if stages[name].scope is Scope.MEDIA and not of_files:
        raise ConfigError(f"Step {name!r} works file by file, which the table {table!r} of {maker!r} does not.")


def _check_input(name: str, stage: Stage, column: str, makers: Makers) -> None:
    if not (is_decoded(column) or column in SOURCE.names or column in makers):
        known = did_you_mean(column, [*SOURCE.names, *makers])
        raise ConfigError(f"Step {name!r} reads a column {column!r} that no step adds.{known}")
    if is_decoded(column) and not stage.scope.first_pass:
        raise ConfigError(f"Step {name!r} reads {column!r}, but a second-pass step is given derived columns only.")
    if makers.get(column) == name:
        raise ConfigError(f"Step {name!r} reads a column {column!r} that it adds itself.")
    if column in makers and stage.halo:
        maker = makers[column]
        raise ConfigError(f"Step {name!r} looks ahead: it can read decoded columns only, not {column!r} of {maker!r}.")


def with_producers(names: Iterable[str], stages: Stages, makers: Makers) -> set[str]:
    """The named steps and all whose columns or tables they read."""
    todo, chosen = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in chosen:
            chosen.add(name)
            todo += [makers[made] for made in needs(stages[name]) if made in makers]
    return chosen


def in_order(names: set[str], stages: Stages, makers: Makers) -> list[str]:
    """Producers before readers; else the loaders' work before models, and as the pipeline file has it.

    Raises:
        ConfigError: steps read each other in a circle.
    """
    kind = {name: (not stages[name].scope.first_pass, bool(stages[name].weights)) for name in names}
    waiting = sorted((name for name in stages if name in names), key=kind.__getitem__)
    order: list[str] = []
    while waiting:
        ready = next((n for n in waiting if all(makers[c] in order for c in needs(stages[n]) if c in makers)), None)
        if ready is None:
            raise ConfigError(f"Steps {', '.join(map(repr, sorted(waiting)))} read each other's results in a circle.")
        order.append(ready)
        waiting.remove(ready)
    return order


def with_drops(steps: Sequence[Step], decoded: Sequence[str]) -> tuple[Step, ...]:
    """First-pass steps in order, each with the columns that leave the packet there.

    A column leaves at its last reader; one that is added and never read does not enter.
    """
    carried = {*decoded, *(name for step in steps for name in step.stage.outputs.names)}
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        last |= {name: position for name in (*step.stage.outputs.names, *step.stage.inputs) if name in carried}
    here = [tuple(sorted(name for name, at in last.items() if at == position)) for position in range(len(steps))]
    return tuple(replace(step, drops=drops) for step, drops in zip(steps, here, strict=True))
