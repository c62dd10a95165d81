"""The producers and readers of columns and tables: the order of steps, and each column's last reader.

The plan drops a column after its last reader, so that pixels travel no further. If a step's weights are missing, the
run ends, continues without it and all its readers, or uses random weights.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from framekiln.contract.columns import MEDIA_ID, ON_REQUEST, PLACES, SOURCE, is_pixel_column, pixel_column
from framekiln.contract.errors import ConfigError, WeightsError, check_known
from framekiln.contract.stage import Scope, Stage
from framekiln.planning.condition import Condition
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.stage_building import find_fix
from framekiln.planning.step import Step
from framekiln.weights.lockfile import WeightsEntry, check_licences, explain_missing, fetch_command
from framekiln.weights.resolver import find_weights, with_stand_ins

K = TypeVar("K", bound=Hashable)
Stages = Mapping[str, Stage]
Producers = Mapping[str, str]
"""Steps by their column, or by their table (name with a trailing slash)."""


def is_decoded(column: str) -> bool:
    """Return whether decoding produces a column on request: pixels or sound."""
    return is_pixel_column(column) or column in ON_REQUEST


def needs(stage: Stage) -> tuple[str, ...]:
    """Return the columns and tables that a stage and its condition read, as keys of `Producers`."""
    return (*stage.received, *map(_make_key, stage.input_tables), *stage.reads_besides)


def sources(stage: Stage, producers: Producers) -> list[str]:
    """Return the steps that a stage reads, once for each column and table."""
    return [producers[key] for key in needs(stage) if key in producers]


def find_deciding(stage: Stage, condition: Condition, producers: Producers) -> list[str]:
    """Return the steps that decide a stage's values, without steps that only decide which rows it computes.

    If its condition reads tables, the fingerprint holds the chosen rows themselves.
    """
    late = stage.reads_besides if condition.tables else ()
    return [producers[key] for key in needs(stage) if key in producers and (key not in late or key in stage.received)]


def is_optional(producer: str, stage: Stage, producers: Producers) -> bool:
    """Return whether a stage reads only optional columns of a step."""
    read = {key for key in needs(stage) if producers.get(key) == producer}
    return read <= {*stage.reads_also} - {*stage.reads_besides}


def leave_to(chosen: Sequence[str], stages: Stages) -> Stages:
    """Return the stages that can stay beside the chosen ones.

    A stage that adds a column of a chosen step is left out, unless a chosen step reads its other columns or tables.
    Then all readers of its results are left out too. So a function `sharpness` can be chosen even if the pipeline has a
    step with a column of that name.
    """
    own = {column for name in chosen for column in stages[name].outputs.names}
    makers = {
        key: name for name, stage in stages.items() for key in (*stage.outputs.names, *map(_make_key, stage.tables))
    }
    read = list(chosen)
    for name in read:  # grows during the loop
        read += {makers[key] for key in needs(stages[name]) if key in makers and key not in own} - {*read}
    left = {name: stage for name, stage in stages.items() if name in read or own.isdisjoint(stage.outputs.names)}
    gone = {column for name in stages.keys() - left.keys() for column in stages[name].outputs.names} - own
    while late := [name for name, stage in left.items() if name not in chosen and not gone.isdisjoint(needs(stage))]:
        for name in late:
            stage = left.pop(name)
            gone |= {*stage.outputs.names, *map(_make_key, stage.tables)}
    return left


def find_producers(stages: Stages) -> Producers:
    """Return the step of each column and of each table.

    Raises ConfigError: two steps produce the same column or table, or no step produces one that is read.
    """
    producers: dict[str, str] = {}
    owners: dict[str, str] = {}  # by the column in lower case: conditions in SQL do not tell letters' cases apart
    for name, stage in stages.items():
        for column in stage.outputs.names:
            if (owner := owners.get(column.lower())) is not None:
                raise ConfigError(
                    f"Steps {owner!r} and {name!r} both add a column {column!r}, in whatever case; rename one column, "
                    "or leave out one of them and what reads it.",
                    code="FK-COLUMN-TWICE",
                )
            owners[column.lower()] = name
            if column.lower() in (*SOURCE.names, *PLACES.names) or is_decoded(column.lower()):
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
    problem = f"Step {name!r} reads a table {table!r} that no step writes."
    check_known(table, tables, problem, code="FK-UNKNOWN-TABLE", find_fix=lambda key: find_fix(_make_key(key)))
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
        problem = f"Step {name!r} reads a column {column!r} that neither decoding nor a step adds."
        decoded = [*SOURCE.names, pixel_column(0), pixel_column(224), *ON_REQUEST]
        check_known(column, [*decoded, *producers], problem, code="FK-UNKNOWN-COLUMN", find_fix=find_fix)
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
    """Return steps with producers before readers, then those without a model first, then in the pipeline's order.

    Raises ConfigError: steps read each other in a circle.
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
    """Sort keys after the keys that they need, otherwise in order; also return the keys in a circle."""
    order: list[K] = []
    waiting = list(needs)
    while (ready := next((key for key in waiting if set(needs[key]) <= set(order)), None)) is not None:
        order.append(ready)
        waiting.remove(ready)
    return order, waiting


def with_drops(steps: Sequence[Step], decoded: Sequence[str]) -> tuple[Step, ...]:
    """Return first-pass steps in order, each with the columns that leave the packet after it.

    A column leaves after its last reader. An added column without readers never enters.
    """
    carried = {*decoded, *(name for step in steps for name in step.stage.outputs.names)}
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        last |= {name: position for name in (*step.stage.outputs.names, *step.reads) if name in carried}
    here = [tuple(sorted(name for name, at in last.items() if at == position)) for position in range(len(steps))]
    return tuple(replace(step, drops=drops) for step, drops in zip(steps, here, strict=True))


@dataclass(frozen=True, kw_only=True)
class WeightsStatus:
    """The weights of all steps: files that are here, and problems with the others."""

    found: Mapping[str, Path]
    problems: Mapping[str, str]  # why weights are missing, by their name
    lock: Mapping[str, WeightsEntry]  # by name of weights
    left_out: Mapping[str, str] = field(default_factory=dict)  # steps left out by skipping, in order, and why
    stand_ins: tuple[str, ...] = ()  # sentences on files that replace missing ones

    @property
    def command(self) -> str:
        """The command that fetches the missing weights; empty if there is none."""
        return fetch_command(self.lock[name] for name in self.problems)

    def of(self, names: Iterable[str]) -> dict[str, Path]:
        return {name: self.found[name] for name in names if name in self.found}


def available_steps(
    stages: Stages, producers: Producers, options: PlanOptions, lock: Mapping[str, WeightsEntry], *, check: bool
) -> tuple[list[str], WeightsStatus]:
    """Return the steps that run, in order, and their weights; without `check`, missing weights raise nothing.

    Raises ConfigError: the lockfile has no such entry, or steps read each other in a circle. Raises WeightsError:
    weights are missing, their licence was not accepted, or no step is left.
    """
    wanted = options.stages or tuple(stages)
    order = in_order(with_producers(wanted, stages, producers), stages, producers)
    names = [weight for step in order for weight in stages[step].weights]
    lock, stand_ins = with_stand_ins(names, lock, weights_dir=options.weights_dir)
    found, problems = find_weights(names, weights_dir=options.weights_dir, lock=lock)
    left_out = _leave_out(order, stages, producers, problems, random=options.missing_weights == "dummy")
    status = WeightsStatus(found=found, problems=problems, lock=lock, left_out=left_out, stand_ins=stand_ins)
    if options.missing_weights != "fail":  # steps read only by skipped ones do not run either
        rest = [name for name in wanted if name not in status.left_out]
        order = in_order(with_producers(rest, stages, producers), stages, producers)
    if check:
        _check(order, stages, status, options)
    for name in order:  # a step whose condition reads this one's results cannot serve it
        stages[name].reads_also = tuple(
            key
            for key in stages[name].optional_inputs
            if (own := producers.get(key)) in order and name not in with_producers([own], stages, producers)
        )
    return in_order({*order}, stages, producers), status


def _leave_out(
    order: Sequence[str], stages: Stages, producers: Producers, problems: Mapping[str, str], *, random: bool
) -> dict[str, str]:
    left_out: dict[str, str] = {}
    for step in order:
        missing = [problems[name].rstrip(".") for name in stages[step].weights if name in problems]
        unavailable = [(key, producers[key]) for key in needs(stages[step]) if producers.get(key) in left_out]
        if missing and not (random and stages[step].dummy_weights):
            left_out[step] = "; ".join(missing) + (", and it does not support random weights" if random else "")
        elif unavailable:
            left_out[step] = "it reads " + ", ".join(f"{key!r} of {producer!r}" for key, producer in unavailable)
    return left_out


def _check(order: Sequence[str], stages: Stages, status: WeightsStatus, options: PlanOptions) -> None:
    used = [name for step in order for name in stages[step].weights]
    if options.missing_weights == "fail" and any(name in status.problems for name in used):
        problems = {status.lock[name]: problem for name, problem in status.problems.items()}
        message = explain_missing(problems)
        raise WeightsError(
            f"{message}\nTo continue without {', '.join(status.left_out)}: --missing-weights skip",
            code="FK-WEIGHTS-MISSING",
        )
    if not order:
        reasons = "; ".join(f"{step}: {reason}" for step, reason in status.left_out.items())
        fix = f"; get them by `{status.command}`" if status.command else ""
        raise WeightsError(
            f"No step is left to run without the missing weights ({reasons}){fix}.", code="FK-NO-STEPS-LEFT"
        )
    entries = [status.lock[name] for name in dict.fromkeys(used) if name in status.found]
    check_licences(entries, accepted=options.accept_license)
