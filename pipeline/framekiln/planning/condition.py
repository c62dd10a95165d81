"""Conditions on the rows that a step computes: costly steps run only where needed.

A row that a step skips has nulls in its columns and is no error. Steps that read these columns skip it too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.output_names import FRAMES
from framekiln.contract.stage import Stage
from framekiln.contract.words import counted
from framekiln.planning.expression import BESIDE, Expression
from framekiln.planning.settings import Strict, validated


class FrameRule(Strict):
    """The frames of each video that a step computes, by their position; a photo's one frame is always computed."""

    every: int | None = Field(None, ge=1)  # each n-th row of a film
    per_second: float | None = Field(None, gt=0)  # this many frames a second of its time
    first: int | None = Field(None, ge=1)  # rows of a film
    shots: Literal["middle", "sharpest"] | None = None  # one frame of each shot

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("takes one of every, per_second, first and shots, as {per_second: 1}")
        return self

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(["shots"] if self.shots else [])

    @property
    def names(self) -> frozenset[str]:
        return frozenset(["sharpness"] if self.shots == "sharpest" else [])


@dataclass(frozen=True, kw_only=True)
class RowSet:
    """Rows of an output, stored there as a table of media_id and frame_index."""

    path: str  # path in the output
    digest: str  # digest of its rows
    count: int
    keys: pa.Table | None = field(default=None, compare=False, repr=False)  # keys of an unwritten set, as in a plan


@dataclass(frozen=True, kw_only=True)
class Condition:
    """All conditions that a row must meet; without any, all rows are computed."""

    on: FrameRule | None = None
    where: Expression | None = None
    among: RowSet | None = None  # rows of a saved selection
    settled: RowSet | None = None  # rows that `on` and `where` choose, if tables decide
    every_nth: int = 1  # decoding's distance of a video's rows in frames

    @property
    def is_given(self) -> bool:
        """Return whether some rows may be skipped."""
        return any(part is not None for part in (self.on, self.where, self.among))

    @property
    def tables(self) -> frozenset[str]:
        """The tables that decide; then the rows are known only after the second pass."""
        return frozenset[str]().union(*(part.tables for part in (self.on, self.where) if part is not None))

    @property
    def names(self) -> frozenset[str]:
        """The deciding columns, and other words of the expression."""
        return frozenset[str]().union(*(part.names for part in (self.on, self.where) if part is not None))

    @property
    def rule(self) -> FrameRule | None:
        """The rule that chooses frames as they are decoded."""
        return None if self.on is None or self.on.shots else self.on

    @property
    def test(self) -> Expression | None:
        """The expression to evaluate on each packet."""
        return None if self.tables else self.where

    @property
    def sets(self) -> tuple[RowSet, ...]:
        return tuple(rows for rows in (self.among, self.settled) if rows is not None)

    @property
    def words(self) -> str:
        """The condition in the pipeline file's form; empty without one."""
        rule = self.on.model_dump(exclude_none=True) if self.on else {}
        parts = [
            f"on {key}: {value:g}" if isinstance(value, float) else f"on {key}: {value}" for key, value in rule.items()
        ]
        parts += [f"where {self.where.text}"] if self.where else []
        parts += [counted(self.among.count, "selected row")] if self.among else []
        return ", ".join(parts)

    def facts(self) -> Mapping[str, Any]:
        """Return the fingerprint's facts: the condition's words, and digests of sets."""
        return {
            **({"on": self.on.model_dump(exclude_none=True)} if self.on else {}),
            **({"where": self.where.text} if self.where else {}),
            **({"among": self.among.digest} if self.among else {}),
            **({"rows": self.settled.digest if self.settled else None} if self.tables else {}),
        }


EVERY_ROW = Condition()


@dataclass(frozen=True, kw_only=True)
class RowSets:
    """A run's sets of rows for its steps' conditions."""

    among: RowSet | None = None  # rows of `--rows`
    whole: frozenset[str] = frozenset()  # steps unaffected by `--rows`, since they have all rows
    settled: Mapping[str, RowSet] = field(default_factory=dict)  # by step

    def add(self, name: str, condition: Condition) -> Condition:
        """Return a step's condition with its sets."""
        among = None if name in self.whole else self.among
        return replace(condition, among=among, settled=self.settled.get(name))


def read_condition(name: str, on: Any, where: str | None) -> Condition:
    """Return the condition of the named step. Raises ConfigError: a part of it is wrong."""
    where_said = f"step {name!r}, where"
    if not (on is None or isinstance(on, FrameRule | Mapping)):
        message = f"step {name!r}, on: {on!r} is no rule; write one such as {{per_second: 1}} or {{shots: middle}}."
        raise ConfigError(message, code="FK-INVALID-SETTING")
    rule = validated(FrameRule, on, f"step {name!r}, on") if isinstance(on, Mapping) else on
    return Condition(on=rule, where=None if where is None else Expression.read(str(where), where_said))


def find_reads(
    name: str, condition: Condition, own: Stage, stages: Sequence[Stage], find_fix: Callable[[str], str]
) -> tuple[str, ...]:
    """Return the columns and `tables/` of other steps that a condition reads; check names and types.

    Args:
        name: of the step.
        condition: its condition.
        own: its stage.
        stages: of the other steps.
        find_fix: returns a sentence on a missing column or `table/`, or nothing.

    Raises:
        ConfigError: a name is unknown, or a type is wrong.
    """
    if condition == EVERY_ROW:
        return ()
    columns = {item.name: item for stage in stages for item in stage.outputs}
    tables = {table: content.schema for stage in stages for table, content in stage.tables.items()}
    for table in sorted(condition.tables - {FRAMES}):
        problem = f"The condition of step {name!r} reads a table {table!r} that no step writes."
        check_known(table, tables, problem, code="FK-UNKNOWN-TABLE", find_fix=lambda key: find_fix(f"{key}/"))
    if (rule := condition.on) is not None and (missing := min(rule.names - columns.keys(), default="")):
        problem = f"Step {name!r} has on: {{shots: {rule.shots}}}, which reads a column {missing!r}."
        check_known(missing, columns, problem, code="FK-UNKNOWN-COLUMN", find_fix=find_fix)
    if condition.where is not None:
        if mine := condition.names & set(own.outputs.names) - columns.keys():
            raise ConfigError(
                f"step {name!r}, where: {min(mine)!r} is what the step itself computes; set the condition on steps "
                "that read it, or choose rows of the result by `framekiln select --where`.",
                code="FK-SELECTION-COLUMN",
            )
        there = [(key, tables[table]) for key, table in BESIDE.items() if table in tables]
        made = {"duplicate": pa.bool_(), "identities": pa.list_(pa.int64())}
        beside = [pa.field(key, made[key]) if key in made else table.field(key) for key, table in there]
        schema = pa.schema([*SOURCE, *columns.values(), *beside])
        condition.where.check(schema, tables.items(), f"step {name!r}, where", find_fix)
    return (*sorted(condition.names & columns.keys()), *(f"{table}/" for table in sorted(condition.tables - {FRAMES})))
