"""Records on their way to the output: each process appends to a stream of its own, and the driver gathers them.

    profile/calls-RUN-HOST-PID.jsonl          on a disk: one file that grows
    profile/calls-RUN-HOST-PID-000001.jsonl   in a bucket, where objects cannot grow: small files, numbered
    profile/calls-RUN.parquet                 all records of a run that has ended

A killed process loses its last second of records on a disk, and its last `BUCKET_SECONDS` in a bucket. Readers skip a
torn last line. A run never ends because its records cannot be written.
"""

import atexit
import io
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.errors import DamagedError, GoneError, OutputError
from framekiln.contract.output_names import PROFILE
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types
from framekiln.profiling import node_metrics, records

FLUSH_SECONDS = 0.5  # s; a killed process loses up to twice this
BUCKET_SECONDS = 10.0  # s; each process sends one small request in this time
BATCH_ROWS = 8192  # records in memory at once, some MB

_STREAM = re.compile(r"(?P<kind>[a-z]+)-(?P<run>[0-9a-f]+)-.+\.jsonl")
_WHOLE = re.compile(r"(?P<kind>[a-z]+)-(?P<run>[0-9a-f]+)\.parquet")
_GATHERED = b"framekiln.gathered"  # metadata key of a Parquet file: the bytes of each stream that it holds
_NO_RECORD = (pa.ArrowException, AttributeError, KeyError, OverflowError, TypeError, ValueError)
Consumed = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """A kind of records, each with files of its own."""

    name: str
    to_table: Callable[[Iterable[Mapping[str, Any]]], pa.Table]  # makes a table from parsed lines
    time: str  # column of the sort order

    def path(self, run: str) -> str:
        """Return the Parquet file with all records of an ended run."""
        return f"{PROFILE}/{self.name}-{run}.parquet"


CALLS = RecordKind(name="calls", to_table=records.to_table, time="started")
NODES = RecordKind(name="nodes", to_table=node_metrics.to_table, time="time")


class Stream:
    """One process's records of one kind. A thread writes lines after a delay; `flush` writes them at once."""

    def __init__(self, store: Store, kind: RecordKind, worker: str) -> None:
        self._store, self._number, self._last = store, 0, time.monotonic()
        self._name = f"{PROFILE}/{kind.name}-{store.run}-{worker.replace(':', '-').replace('/', '_')}"
        self._interval = FLUSH_SECONDS if store.appends else BUCKET_SECONDS
        self._lines: list[Callable[[], bytes]] = []
        self._lock, self._pending = threading.Lock(), threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="records").start()
        atexit.register(self.flush, now=True)

    def add(self, line: Callable[[], bytes]) -> None:
        """Add a line; `line` is called when it is written."""
        with self._lock:
            self._lines.append(line)
            self._pending.set()

    def flush(self, *, now: bool = False) -> None:
        """Write the pending lines; in a bucket only after `BUCKET_SECONDS`, or at once with `now`."""
        if not (now or self._store.appends or time.monotonic() - self._last >= self._interval):
            return
        with self._lock:
            lines, self._lines, self._last = self._lines, [], time.monotonic()
            self._pending.clear()
            if lines:
                with suppress(OutputError):
                    data = b"".join([line() for line in lines])
                    if self._store.appends:
                        self._store.append(f"{self._name}.jsonl", data)
                    else:
                        self._number += 1
                        self._store.write(f"{self._name}-{self._number:06}.jsonl", data)

    def _watch(self) -> None:
        while self._pending.wait():
            time.sleep(self._interval)
            self.flush(now=True)


def runs(store: Store) -> list[str]:
    """Return the names of the runs with records of calls in an output, sorted by name."""
    matches = (_WHOLE.fullmatch(name) or _STREAM.fullmatch(name) for name in store.names(PROFILE))
    return sorted({match["run"] for match in matches if match and match["kind"] == CALLS.name})


def read(store: Store, kind: RecordKind, run: str, *, consumed: Consumed | None = None) -> pa.Table:
    """Return a run's records of one kind, gathered or not, in the order of their start.

    `consumed` receives the bytes read of each stream, now or when it was gathered. Raises GoneError: the run has just
    ended, and its streams were gathered. Raises DamagedError: the gathered records cannot be read.
    """
    pieces = list(batches(store, kind, run, consumed=consumed))
    return pa.concat_tables(pieces or [kind.to_table(())]).sort_by(kind.time)


def batches(
    store: Store,
    kind: RecordKind,
    run: str,
    *,
    rows: int = BATCH_ROWS,
    columns: Collection[str] = (),
    consumed: Consumed | None = None,
) -> Iterator[pa.Table]:
    """Yield the records that `read` returns in pieces, so that a run of any length fits into memory.

    Records of one process come in the order of their writing, or of their start. Without `columns`, all are read.
    Raises GoneError: the run has just ended, and its streams have been gathered. Raises DamagedError: the gathered
    records cannot be read.
    """
    consumed = {} if consumed is None else consumed
    chosen = list(columns) or None  # a file of another version must fail if all columns are read
    empty = kind.to_table(())
    schema = empty.select(chosen or empty.column_names).schema
    names = _list_streams(store, kind, run)  # listed first: gathering writes the Parquet file before it removes streams
    if store.exists(path := kind.path(run)):
        yield from _read_parquet(store, path, chosen, schema, rows, consumed)
    for name in names:
        try:
            for lines in _read_lines(store, name, rows, consumed):
                yield _select_records(kind, lines).select(schema.names)
        except FileNotFoundError as error:
            raise GoneError(
                f"Run {run} in {store.root!r} has just ended; run the same command again.", code="FK-RUN-JUST-ENDED"
            ) from error


def _read_parquet(
    store: Store, path: str, columns: list[str] | None, schema: pa.Schema, rows: int, consumed: Consumed
) -> Iterator[pa.Table]:
    """Yield the records of a Parquet file in pieces; `schema` is the columns' own."""
    try:
        with store.parquet(path) as file:
            consumed |= json.loads((file.schema_arrow.metadata or {}).get(_GATHERED, b"{}"))
            check_types(file.schema_arrow, schema)
            for batch in file.iter_batches(rows, columns=columns):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except (DamagedError, *_NO_RECORD) as error:
        reason = " ".join(str(error.__cause__ or error).split()).rstrip(".")
        problem = f"{path} in the output {store.root!r} is damaged ({reason}); delete it: no result depends on records."
        raise DamagedError(problem, code="FK-RECORDS-DAMAGED") from error


def _read_lines(store: Store, name: str, rows: int, consumed: Consumed) -> Iterator[list[dict[str, Any]]]:
    """Yield the objects in a stream's lines in pieces, and count its bytes; a torn last line is skipped."""
    with store.open(f"{PROFILE}/{name}") as source:
        source.seek(consumed.setdefault(name, 0))
        lines = io.BufferedReader(source)
        while piece := list(islice(lines, rows)):
            consumed[name] += sum(map(len, piece))
            found: list[Any] = []
            for line in piece:
                with suppress(RecursionError, ValueError):
                    found.append(json.loads(line))
            yield [one for one in found if isinstance(one, dict)]


def began(store: Store, run: str, kinds: Sequence[RecordKind] = (CALLS,)) -> float | None:
    """Return when a run's first record began, in seconds since the epoch; None without records."""
    pieces = (piece for kind in kinds for piece in batches(store, kind, run, columns=(kind.time,)))
    return min((float(pc.min(piece[0]).as_py()) for piece in pieces if piece.num_rows), default=None)


def gather(store: Store, ended: Collection[str]) -> None:
    """Write the streams of ended runs into Parquet files, and remove the streams.

    A stream that cannot be gathered stays. The Parquet file stores the bytes that it holds of each stream. If a stream
    could not be removed, readers skip these bytes.
    """
    with suppress(OutputError, OSError):
        for kind, run in product((CALLS, NODES), ended):
            if names := _list_streams(store, kind, run):
                consumed: Consumed = {}
                table = read(store, kind, run, consumed=consumed)
                store.write_table(kind.path(run), table.replace_schema_metadata({_GATHERED: json.dumps(consumed)}))
                for name in names:
                    store.remove(f"{PROFILE}/{name}")


def _list_streams(store: Store, kind: RecordKind, run: str) -> list[str]:
    matches = (_STREAM.fullmatch(name) for name in store.names(PROFILE))
    return [match.string for match in matches if match and (match["kind"], match["run"]) == (kind.name, run)]


def _select_records(kind: RecordKind, lines: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the records in a stream's lines; lines that are no records of this kind are skipped."""
    try:
        return kind.to_table(lines)
    except _NO_RECORD:
        pieces = [kind.to_table(())]
        for line in lines:
            with suppress(*_NO_RECORD):
                pieces.append(kind.to_table([line]))
        return pa.concat_tables(pieces)
