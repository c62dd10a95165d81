"""A store for readers that need the same tables several times: each file is opened once.

Opening a file in a bucket takes a tenth of a second. A run's end counts rows, samples values and picks frames.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from framekiln.output.object_store import Store
from framekiln.output.parquet import ParquetTable, check_types
from framekiln.output.store_errors import read_errors

T = TypeVar("T")

MOST_FILES = 400  # most files of a table that are sampled
_MOST_OPEN = 512  # half of the open files that systems allow a process


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` of the items, evenly spaced."""
    count = len(items)
    return [items[int((i + 0.5) * count / most)] for i in range(most)] if count > most else list(items)


class KeptTables(Store):
    """A store that, in a `with` block, keeps tables open that `spread` chooses as a folder's sample.

    Of other tables it keeps the number of rows and the schema.
    """

    def __enter__(self) -> Self:
        self._stack, self._open = ExitStack(), dict[str, ParquetTable]()
        self._chosen: dict[str, frozenset[str]] = {}  # by folder
        self._footers: dict[str, tuple[int, pa.Schema]] = {}
        self._schema = pa.schema([])  # schema of the last footer: a table's files share it
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def parquet(self, path: str) -> Iterator[ParquetTable]:
        """Open a table, unless it is open."""
        with ExitStack() as stack:
            table = self._open.get(path) or stack.enter_context(super().parquet(path))
            if path in self._open:
                stack.enter_context(read_errors(self.root, path))
            elif len(self._open) < _MOST_OPEN and self._is_sampled(path):
                self._open[path] = table
                self._stack.push(stack.pop_all())
                stack.enter_context(read_errors(self.root, path))
            yield table

    def count_rows(self, path: str, expected: pa.Schema | None = None) -> int:
        """Return the number of rows by a table's footer; see `Store.count_rows`."""
        if path not in self._footers:
            with self.parquet(path) as table:
                if not table.schema_arrow.equals(self._schema, check_metadata=True):
                    self._schema = table.schema_arrow
                self._footers[path] = int(table.metadata.num_rows), self._schema
        rows, schema = self._footers[path]
        with read_errors(self.root, path):
            check_types(schema, expected)
        return rows

    def _is_sampled(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if folder not in self._chosen:
            names = [name for name in self.names(folder) if name.endswith(".parquet")]
            self._chosen[folder] = frozenset(spread(names, MOST_FILES))
        return name in self._chosen[folder]
