"""Records on their way to the output: each process appends to a stream of its own, and the driver gathers them.

    profile/calls-RUN-HOST-PID.jsonl          on a disk: one file that grows
    profile/calls-RUN-HOST-PID-000001.jsonl   in a bucket, where nothing grows: small files, numbered
    profile/calls-RUN.parquet                 all of a run, once it has ended

A process may be killed at any moment, so what it has written is complete up to a second before, on a disk, and up to
`BUCKET_SECONDS` before in a bucket; a torn last line is passed over. A profile that cannot be written never ends a run.
"""

from __future__ import annotations

import atexit
import io
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DamagedError, GoneError, OutputError
from pipeline.storage import Store

FOLDER = "profile"
CALLS, NODES = "calls", "nodes"
FLUSH_SECONDS = 0.5  # half of what a killed process may lose
BUCKET_SECONDS = 10.0  # one small request in so much time, from each process
BATCH_ROWS = 8192  # of records in memory at once, some MB

_STREAM = re.compile(r"(?P<kind>[a-z]+)-(?P<run>[0-9a-f]+)-.+\.jsonl")
_WHOLE = re.compile(r"(?P<kind>[a-z]+)-(?P<run>[0-9a-f]+)\.parquet")
_GATHERED = b"framemill.gathered"  # in a Parquet file's metadata: how many bytes of each stream are in it
_TIMES = ("started", "time")  # what records are sorted by
ToTable = Callable[[Iterable[Mapping[str, Any]]], pa.Table]
Consumed = dict[str, int]


class Stream:
    """One process's lines of one kind. A thread writes what has lain for long; `flush` writes it now."""

    def __init__(self, store: Store, kind: str, worker: str) -> None:
        self._store, self._number, self._last = store, 0, time.monotonic()
        self._name = f"{FOLDER}/{kind}-{store.run}-{worker.replace(':', '-').replace('/', '_')}"
        self._every = FLUSH_SECONDS if store.appends else BUCKET_SECONDS
        self._lines: list[Callable[[], bytes]] = []
        self._lock, self._some = threading.Lock(), threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="records").start()
        atexit.register(self.flush, now=True)

    def add(self, line: Callable[[], bytes]) -> None:
        """Take one, to be made when it is written."""
        with self._lock:
            self._lines.append(line)
            self._some.set()

    def flush(self, *, now: bool = False) -> None:
        """Write what there is; in a bucket only when it is time, or `now`."""
        if not (now or self._store.appends or time.monotonic() - self._last >= self._every):
            return
        with self._lock:
            lines, self._lines, self._last = self._lines, [], time.monotonic()
            self._some.clear()
            if lines:
                with suppress(OutputError):
                    self._write(b"".join([line() for line in lines]))

    def _write(self, data: bytes) -> None:
        if self._store.appends:
            self._store.append(f"{self._name}.jsonl", data)
        else:
            self._number += 1
            self._store.write(f"{self._name}-{self._number:06}.jsonl", data)

    def _watch(self) -> None:
        while self._some.wait():
            time.sleep(self._every)
            self.flush(now=True)


def runs(store: Store) -> list[str]:
    """Runs that have records of calls in an output, in no order."""
    found = (_WHOLE.fullmatch(name) or _STREAM.fullmatch(name) for name in store.names(FOLDER))
    return sorted({match["run"] for match in found if match and match["kind"] == CALLS})


def read(store: Store, kind: str, run: str, to_table: ToTable, *, consumed: Consumed | None = None) -> pa.Table:
    """A run's records of one kind, gathered or not, in the order in which they began.

    Args:
        store: the output.
        kind: of records.
        run: whose.
        to_table: makes a table of parsed lines.
        consumed: takes how many bytes of each stream were read, or gathered before.

    Raises:
        DamagedError: what was gathered cannot be read.
    """
    pieces = list(batches(store, kind, run, to_table, consumed=consumed))
    table = pa.concat_tables(pieces) if pieces else to_table(())
    return table.sort_by(next(name for name in _TIMES if name in table.column_names))


def batches(
    store: Store,
    kind: str,
    run: str,
    to_table: ToTable,
    *,
    rows: int = BATCH_ROWS,
    columns: Collection[str] = (),
    consumed: Consumed | None = None,
) -> Iterator[pa.Table]:
    """What `read` gives, in pieces, so that a run of any length fits into memory.

    Args:
        store: the output.
        kind: of records.
        run: whose.
        to_table: makes a table of parsed lines.
        rows: at most in a piece; those of one process lie in the order in which they were written, or began.
        columns: which are wanted; all where empty.
        consumed: takes how many bytes of each stream were read, or gathered before.

    Raises:
        GoneError: the run has ended meanwhile, and its streams have been gathered.
        DamagedError: what was gathered cannot be read.
    """
    wanted, consumed = list(columns) or None, {} if consumed is None else consumed
    names = _streams(store, kind, run)
    if store.exists(whole := f"{FOLDER}/{kind}-{run}.parquet"):
        with store.open(whole) as source:
            with _damage(store, whole):
                file = pq.ParquetFile(source)
            consumed |= json.loads((file.schema_arrow.metadata or {}).get(_GATHERED, b"{}"))
            schema = to_table(()).select(wanted).schema if wanted else to_table(()).schema
            pieces = file.iter_batches(rows, columns=wanted)
            while (batch := _next(pieces, store, whole)) is not None:
                yield pa.Table.from_batches([batch]).cast(schema)
    for name in names:
        try:
            with store.open(f"{FOLDER}/{name}") as source:
                source.seek(consumed.setdefault(name, 0))
                lines = _counted(source, consumed, name)
                while some := list(islice(lines, rows)):
                    table = to_table(some)
                    yield table.select(wanted) if wanted else table
        except FileNotFoundError as error:
            raise GoneError(f"Run {run} in {store.root!r} has just ended; run the same command again.") from error


def goes_on(store: Store, run: str) -> bool:
    """Whether a run's records have not been gathered yet, as after it has ended."""
    return bool(_streams(store, CALLS, run))


def gather(store: Store, wanted: Collection[str], readers: Mapping[str, ToTable]) -> None:
    """Make Parquet of the streams of runs that have ended, and remove them; what cannot be written stays.

    The file says how far each stream is in it: of one that could not be removed, only what came later is read.

    Args:
        store: the output.
        wanted: the runs.
        readers: by kind, what makes a table of lines.
    """
    with suppress(OutputError, OSError):
        for kind, to_table in readers.items():
            for run in wanted:
                if names := _streams(store, kind, run):
                    consumed: Consumed = {}
                    table = read(store, kind, run, to_table, consumed=consumed)
                    table = table.replace_schema_metadata({_GATHERED: json.dumps(consumed)})
                    store.write_table(f"{FOLDER}/{kind}-{run}.parquet", table)
                    for name in names:
                        store.remove(f"{FOLDER}/{name}")


def _streams(store: Store, kind: str, run: str) -> list[str]:
    found = (_STREAM.fullmatch(name) for name in store.names(FOLDER))
    return [match.string for match in found if match and (match["kind"], match["run"]) == (kind, run)]


def _next(pieces: Iterator[pa.RecordBatch], store: Store, path: str) -> pa.RecordBatch | None:
    with _damage(store, path):
        return next(pieces, None)


@contextmanager
def _damage(store: Store, path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DamagedError(
            f"{path} in the output {store.root!r} is damaged ({reason}); delete it: no result rests on records."
        ) from error


def _counted(source: pa.NativeFile, consumed: Consumed, name: str) -> Iterator[dict[str, Any]]:
    """The objects in a stream's lines; the last one may be torn."""
    for line in io.BufferedReader(source):
        consumed[name] += len(line)
        with suppress(ValueError):
            if isinstance(said := json.loads(line), dict):
                yield said
