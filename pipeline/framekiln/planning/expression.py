"""SQL expressions of users over an output's rows: the names in them, checked before anything runs.

The language is DuckDB's. An expression sees only registered tables: no files, network or extensions.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.output_names import FRAMES

_LIMITS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_END = ('near ")"', 'near "FROM"')  # errors that show the end of the query around a condition
_MISSING = re.compile(r'column "?([^"\s]+)"? not found', re.IGNORECASE)
_NUMBER = re.compile(rb"[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
BESIDE = {"shot": "shots", "duplicate": "duplicates", "scene": "scenes", "identities": "identities"}
"""Columns of a row that are not in `frames/`, and the table that holds each."""


def connect() -> Any:
    """Return a connection to an empty database in memory."""
    import duckdb  # imported only to read expressions: it takes 40 ms

    return duckdb.connect(config=_LIMITS)


def without_halves(schema: pa.Schema) -> pa.Schema:
    """Return a schema without float16, which embeddings have: DuckDB rejects a table with it."""
    return pa.schema([item.with_type(_widen_type(item.type)) for item in schema], metadata=schema.metadata)


def widen(table: pa.Table) -> pa.Table:
    """Return a table without float16; see `without_halves`."""
    return table.cast(without_halves(table.schema))


def _widen_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(dtype):
        return pa.float32()
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(_widen_type(dtype.value_type), dtype.list_size)
    if pa.types.is_list(dtype):
        return pa.list_(_widen_type(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([item.with_type(_widen_type(item.type)) for item in dtype])
    return dtype


def explain(
    error: Exception, option: str, place: str, columns: Iterable[str], find_fix: Callable[[str], str] = lambda _: ""
) -> ConfigError:
    """Return DuckDB's complaint about an expression as one sentence.

    Args:
        error: the complaint.
        option: where the user wrote the expression.
        place: the table or output without the missing column.
        columns: its columns, and those of tables that the expression's subqueries read.
        find_fix: returns a sentence on a missing column; if empty, the nearest name is proposed.
    """
    text = str(error).partition("\n")[0].strip()
    if missing := _MISSING.search(text):
        fix = find_fix(missing[1]) or did_you_mean(missing[1], columns)
        return ConfigError(f"{option}: {place} has no column {missing[1]!r}.{fix}", code="FK-SELECTION-COLUMN")
    return ConfigError(f"{option}: {text.rstrip('.!')}.", code="FK-SELECTION-SQL")


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A condition on rows of `frames/`, with the names in it."""

    text: str
    names: frozenset[str]  # names of columns and variables
    queried: frozenset[str]  # tables that its subqueries read; `frames` if rows are compared with others

    @property
    def tables(self) -> frozenset[str]:
        """The tables needed before a row is judged."""
        return self.queried | {table for name, table in BESIDE.items() if name in self.names}

    @classmethod
    def read(cls, text: str, option: str) -> "Expression":
        """Parse an expression. Raises ConfigError: it is not DuckDB's SQL.

        >>> Expression.read("sharpness > 20 and not duplicate", "where").tables
        frozenset({'duplicates'})
        """
        tree, bare = _parse(_query(text)), _parse(f"SELECT {text}")
        if tree["error"] or bare["error"]:
            problem = str((tree if tree["error"] else bare)["error_message"])
            if tree["error"] and problem.endswith(_END) and text.count("(") >= text.count(")"):
                problem = "it ends too early"
            raise ConfigError(f"{option}: {text!r}: {problem}.", code="FK-SELECTION-SQL")
        nodes = [*_walk(tree["statements"])]
        tables = [node["table_name"] for node in nodes if node.get("type") == "BASE_TABLE"]
        tables.remove(FRAMES)  # the table of the condition itself
        return cls(text=text, names=_find_names(nodes), queried=frozenset(tables))

    def check(
        self,
        schema: pa.Schema,
        tables: Iterable[tuple[str, pa.Schema]],
        option: str,
        find_fix: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Check names and types. `schema`: all readable columns; `tables`: readable tables' schemas by name.

        Raises ConfigError: a column or table is missing, or a type is wrong.
        """
        import duckdb

        connection, known = connect(), list(schema.names)
        for name, columns in ((FRAMES, schema), *tables):
            known += columns.names if name in self.queried else []
            kinds = without_halves(columns)
            connection.register(name, pa.table([pa.nulls(1, item.type) for item in kinds], names=kinds.names))
        try:
            relation = connection.sql(_query(self.text))  # no external access
            kind = relation.types[0]
            relation.fetchall()  # shows invalid values, as in sharpness > 'high'
        except duckdb.Error as error:
            raise explain(error, option, "the rest of the pipeline", known, find_fix) from error
        self.check_kind(kind, option)

    def check_kind(self, kind: object, option: str) -> None:
        """Check the type of the expression's values. Raises ConfigError: they are not true or false."""
        if str(kind) != "BOOLEAN":
            message = (
                f"{option}: {self.text!r} is of type {kind}; write a condition (true or false), as in sharpness > 20."
            )
            raise ConfigError(message, code="FK-SELECTION-SQL")


def find_names(text: str) -> frozenset[str]:
    """Return the names of columns in SQL expressions, without words in texts and comments; none if they are no SQL.

    >>> sorted(find_names("category = 'scene' and not duplicate, crc * 2 AS shot -- people"))
    ['category', 'crc', 'duplicate']
    """
    return _find_names(_parse(f"SELECT {text}").get("statements"))


def _find_names(tree: Any) -> frozenset[str]:
    references = (node["column_names"] for node in _walk(tree) if node.get("class") == "COLUMN_REF")
    return frozenset(name for names in references for name in names)


def find_limits(text: str) -> list[tuple[str, float]]:
    """Return each column that an expression compares with a number, with that number, without repeats.

    >>> find_limits("sharpness > 200 and -0.5 <= noise and category = 'dog'")
    [('sharpness', 200.0), ('noise', -0.5)]
    """
    query, pairs = _query(text).encode(), dict[tuple[str, float], None]()
    for node in _walk(_parse(query.decode()).get("statements")):
        if node.get("class") in ("COMPARISON", "BETWEEN"):
            sides = [node[key] for key in ("left", "right", "input", "lower", "upper") if key in node]
            columns = [side["column_names"] for side in sides if side["class"] == "COLUMN_REF"]
            numbers = [
                float(found[0])  # as the user wrote it: the tree's form differs between versions of DuckDB
                for side in sides
                if side["class"] == "CONSTANT"
                and (found := _NUMBER.match(query, side.get("query_location", len(query))))
            ]
            pairs |= {(names[0], value): None for names in columns if len(names) == 1 for value in numbers}
    return list(pairs)


def _query(text: str) -> str:
    return f"SELECT ({text}\n) FROM {FRAMES}"  # noqa: S608 - checked; a line of its own ends a comment


def _parse(query: str) -> Any:
    (answer,) = _parser().cursor().execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    return json.loads(answer)


@cache
def _parser() -> Any:
    """Return the database that parses: to open one takes 27 ms, and a pipeline has many expressions."""
    return connect()


def _walk(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in a syntax tree, outer ones first."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    for value in node if isinstance(node, list) else ():
        yield from _walk(value)
