"""A selection: rows of an output by their keys, with their request; made, saved, read and compared.

Rows that meet the conditions are chosen: some of each group, balanced, or as different as possible. Shapes: n rows in
order, best first; d numbers of a vector.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ConfigError, OutputError, check_known
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store
from framekiln.planning.expression import Expression
from framekiln.selection.request import SelectionRequest, list_selections, selection_path
from framekiln.selection.rows import Rows

Ints = NDArray[np.int64]
_REQUEST, _SAVED = b"framekiln.request", b"framekiln.saved"  # metadata keys of a saved table
_ALIKE = ("clip_embedding", "picture_hash")
"""Columns that show how similar two frames are, the best first."""
_PEOPLE = (
    "(SELECT DISTINCT place, identity FROM candidates JOIN identities USING (media_id, frame_index) "
    "WHERE identity IS NOT NULL)"
)
_KNOWN = f"SELECT DISTINCT place FROM {_PEOPLE}"  # noqa: S608 - our own names, as below
_RANK = "row_number() OVER (PARTITION BY {} ORDER BY place)"
EXACT = 4096  # parts of a cosine, so that equal ones are equal on any machine; hashes' cosines are 64ths


@dataclass(frozen=True, kw_only=True, repr=False)
class Selection:
    """Rows of an output in the order of their choice: `media_id` and `frame_index`."""

    rows: pa.Table
    request: str  # JSON
    store: Store
    tables: Sequence[str] = ()  # tables that decided it
    notes: Sequence[str] = ()  # sentences on what may be missing

    def __repr__(self) -> str:
        notes = "".join(f" {note}" for note in self.notes)
        return f"{type(self).__name__}({len(self):,} frames of {self.store.root!r}, by {self.request}){notes}"

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def sources(self) -> set[str]:
        """Names of the columns and tables that decided it; with them other words of the request."""
        words = list_words([self.request])
        return (words | {*self.tables} | ({_ALIKE[0]} if "diverse" in words else set())) - {FRAMES}

    def to_arrow(self, columns: str | Sequence[str] = ("*",)) -> pa.Table:
        """Return the chosen rows of `frames/`, in their order. `columns`: names, or SQL expressions; or one of them.

        Raises ConfigError: a column is missing.
        """
        rows, columns = Rows(self.store), [columns] if isinstance(columns, str) else columns
        rows.connection.register("chosen", self.rows.append_column("place", pa.array(range(len(self)), pa.int64())))
        rows.join(columns).create_view("joined")
        joined: Any = rows.connection.sql(f"FROM chosen JOIN joined USING ({', '.join(KEYS)})").order("place")
        wanted = "* EXCLUDE (place)" if tuple(columns) == ("*",) else ", ".join(columns)
        return rows.check("columns", lambda: joined.project(wanted).to_arrow_table())

    def to_pandas(self, columns: str | Sequence[str] = ("*",)) -> Any:
        """Return the result of `to_arrow` as a data frame."""
        return self.to_arrow(columns).to_pandas()

    def save(self, name: str) -> "Selection":
        """Write the selection into the output as selections/NAME.parquet, and return it.

        A note of the returned one names the selection that it replaces.

        Raises ConfigError: the name is not one of letters, digits, - and _.
        """
        path, replaced = selection_path(name), list[str]()
        if self.store.exists(path):
            with suppress(OutputError):  # damaged
                before = self.store.read_table(path, KEYS)
                date = (before.schema.metadata or {}).get(_SAVED, b"an unknown date").decode()
                replaced = [f"It replaces the selection {name} of {date} ({len(before):,} rows)."]
        facts = {_REQUEST: self.request, _SAVED: datetime.now().astimezone().isoformat(" ", "minutes")}
        self.store.write_table(path, self.rows.replace_schema_metadata(facts))
        return replace(self, notes=[*self.notes, *replaced])

    def without(self, other: "Selection") -> "Selection":
        """Return the rows that `other` lacks."""
        own, others = (list(zip(*table.rows.to_pydict().values(), strict=True)) for table in (self, other))
        lacking = pa.array(map({*others}.isdisjoint, zip(own, strict=True)), pa.bool_())
        return replace(self, rows=self.rows.filter(lacking))

    def compare(self, other: "Selection") -> tuple[int, int]:
        """Return the number of rows that this selection has beyond `other`, and that it lacks."""
        return len(self.without(other)), len(other.without(self))


def list_words(texts: Iterable[str]) -> set[str]:
    """Return all words of expressions: names of columns among them."""
    return {word for text in texts for word in re.findall(r"\w+", text)}


def read_selection(store: Store, name: str) -> Selection:
    """Return a saved selection, with a note if files of it are gone from the output.

    Raises ConfigError: there is none of that name.
    """
    problem = f"There is no selection {name!r} in {store.root!r}."
    check_known(name, list_selections(store), problem, code="FK-UNKNOWN-SELECTION")
    table = store.read_table(selection_path(name), KEYS)
    request = (table.schema.metadata or {}).get(_REQUEST, b"{}").decode()
    rows = Rows(store)
    rows.connection.register("chosen", table)
    lost = f"FROM chosen ANTI JOIN {FRAMES} USING ({', '.join(KEYS)})"
    gone = rows.check("selection", lambda: len(rows.connection.sql(lost)))
    notes = [f"{gone:,} of {len(table):,} frames of {name!r} are gone from the output."] if gone else []
    return Selection(rows=table.replace_schema_metadata(None), request=request, store=store, notes=notes)


def select(store: Store, request: SelectionRequest) -> Selection:
    """Return the rows of an output that meet a request.

    Raises ConfigError: an expression is wrong, or needs a column or table that the output lacks.
    """
    rows, notes = Rows(store), []
    groups = [*(name for name in request.per if name != "identity"), *([request.balance] if request.balance else [])]
    columns = {name: f"group{number}" for number, name in enumerate(dict.fromkeys(groups))}  # by the user's names
    table = _read_candidates(rows, request, columns)
    if "identity" in request.per:
        rows.register("identities", for_name="identity")
        columns["identity"] = ""  # of another table
    for name, column in columns.items():  # a row without a value belongs to no group
        known = table.filter(table[column].is_valid()) if column else _take(rows, table, _KNOWN)
        if gone := len(table) - len(known):
            notes.append(f"{gone:,} frames without {name} are left out.")
        table = known
    for name, number in request.per.items():
        is_spread = request.diverse is not None and request.order is None  # else the first of the order
        table = _take_each(rows, table, name, columns[name], number, is_spread=is_spread)
    if request.balance is not None:
        column = columns[request.balance]
        table = take_balanced(rows, table, column, request.limit)
        notes += _list_unequal(request.balance, table[column])
    if request.diverse is not None:
        if _ALIKE[0] not in rows.columns:
            notes.append("Compared by hashes, since there are no embeddings (`categorize` with keep_embedding).")
        table = table.take(spread_out(_read_vectors(table), request.diverse))
    chosen = table.select(KEYS).slice(0, request.limit)
    return Selection(rows=chosen, request=request.to_json(), store=store, tables=[*rows.tables], notes=notes)


def _list_unequal(name: str, values: pa.ChunkedArray) -> list[str]:
    """Return a sentence on groups that are of unequal size, since the limit takes all of small ones."""
    groups = Counter(map(repr, values.to_pylist())).most_common()
    if not groups or groups[0][1] - groups[-1][1] <= 1:
        return []
    (large, most), (small, least) = groups[0], groups[-1]
    found = f"{name} is not balanced: {least:,} of {small}, {most:,} of {large}"
    return [f"{found}. The limit allows more than rare values have; without it each has as many as the rarest."]


def _read_candidates(rows: Rows, request: SelectionRequest, columns: Mapping[str, str]) -> pa.Table:
    """Return keys, groups and vectors of the rows that meet the conditions, best first."""
    asked = [*request.expressions, *(["duplicate"] if request.unique else [])]
    relation: Any = rows.join(asked)
    if request.where:
        condition = Expression.read(request.where, "where")
        rows.register_all(condition)
        both = rows.check("where", lambda: (relation.project(f"({request.where}\n)"), relation.filter(request.where)))
        condition.check_kind(both[0].types[0], "where")
        relation = both[1]
    if request.unique:
        relation = rows.leave_copies(relation)
    wanted = [*KEYS, *(f"({name}) AS {column}" for name, column in columns.items())]
    wanted += [f"({text}) AS score{n}" for n, (text, _) in enumerate(request.directions)]
    wanted += [_choose_vector(rows.columns)] if request.diverse else []
    order = [f"score{n} {direction} NULLS LAST" for n, (_, direction) in enumerate(request.directions)]
    given = {"where": request.where, "per": request.per, "balance": request.balance, "order": request.order}
    option = ", ".join(name for name, value in given.items() if value) or "diverse"
    return rows.check(
        option, lambda: relation.project(", ".join(wanted)).order(", ".join([*order, *KEYS])).to_arrow_table()
    )


def _take(rows: Rows, table: pa.Table, question: str) -> pa.Table:
    """Return the rows with a `place` that a query on `candidates` returns, in order."""
    return table.take(_ask(rows, table, f"{question} ORDER BY place")["place"])


def _ask(rows: Rows, table: pa.Table, question: str) -> pa.Table:
    """Return the answer to a query on `candidates`: the rows of a table with their `place`."""
    rows.connection.register("candidates", table.append_column("place", pa.array(range(len(table)), pa.int64())))
    return rows.connection.sql(question).to_arrow_table()


def _take_each(rows: Rows, table: pa.Table, name: str, group: str, number: int, *, is_spread: bool) -> pa.Table:
    """Return `number` rows of each group; for `identity`, of each person: the first, or unlike ones."""
    source = _PEOPLE if name == "identity" else "candidates"
    group = {"shot": f"{group}, media_id", "identity": name}.get(name, group)  # shots are numbered by file
    if not is_spread:
        return _take(rows, table, f"SELECT DISTINCT place FROM {source} QUALIFY {_RANK.format(group)} <= {number}")  # noqa: S608
    groups = _ask(rows, table, f"SELECT list(place ORDER BY place) FROM {source} GROUP BY {group}")[0].to_pylist()  # noqa: S608
    chosen = {places[at] for places in groups for at in spread_out(_read_vectors(table.take(places)), number)}
    return table.take(sorted(chosen))


def take_balanced(rows: Rows, table: pa.Table, group: str, limit: int | None) -> pa.Table:
    """Return rows with equal numbers of each group (a value of a column), as far as groups have rows.

    `limit`: rows in all, taken in turns, so that small groups stay whole. None: as many of each as the smallest has.
    """
    rank = _RANK.format(group)
    if limit is not None:
        turns = f"SELECT place FROM candidates ORDER BY {rank}, place LIMIT {limit}"  # noqa: S608
        return _take(rows, table, f"SELECT place FROM ({turns})")  # noqa: S608
    least = f"SELECT min(size) FROM (SELECT count(*) AS size FROM candidates GROUP BY {group})"  # noqa: S608
    return _take(rows, table, f"SELECT place FROM candidates QUALIFY {rank} <= ({least})")  # noqa: S608


def _choose_vector(columns: Sequence[str]) -> str:
    for name in _ALIKE:
        if name in columns:
            return f"{name} AS vector"
    message = (
        f"diverse needs one of the columns {', '.join(_ALIKE)}; run `fingerprint`, or `categorize` with keep_embedding."
    )
    raise ConfigError(message, code="FK-SELECTION-VECTORS")


def _read_vectors(table: pa.Table) -> np.ndarray:
    """Return vectors (n d): embeddings, or hashes as 1 and -1; zeros for null."""
    column = table["vector"]
    known = column.drop_null()
    if pa.types.is_binary(column.type):
        values = np.unpackbits(np.frombuffer(b"".join(known.to_pylist()), np.uint8)).astype(np.float32) * 2 - 1
    else:
        values = pc.list_flatten(known).to_numpy()
    vectors = np.zeros((len(column), len(values) // max(1, len(known))), np.float32)
    vectors[column.is_valid().to_numpy()] = values.reshape(len(known), vectors.shape[1])
    return vectors


def spread_out(vectors: NDArray[np.float32], count: int) -> Ints:
    """Return indices of `count` rows that are as different as possible, in the order of their choice.

    The first row is chosen first. Each next one is the row farthest from all chosen ones, the first of equal ones. Then
    the farthest row is at most twice as far as in the best choice (Gonzalez 1985). `vectors`: n d; rows of zeros come
    last.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    nearest = np.where(lengths[:, 0] > 0, -2.0, 2.0).astype(np.float32)  # largest cosine to a chosen row
    chosen: list[int] = []
    for _ in range(min(count, len(vectors))):
        at = int(nearest.argmin())
        chosen.append(at)
        alike = np.round((unit @ unit[at]) * EXACT) / EXACT
        nearest = np.maximum(nearest, alike)
        nearest[at] = np.inf
    return np.array(chosen, np.int64)
