"""Objects under one root, on a disk or in a bucket, each complete or absent.

Resuming a run depends on this alone. `framekiln.output.publisher` does it.
"""

import json
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from framekiln.contract.errors import OutputError
from framekiln.contract.store_url import below, split_place
from framekiln.contract.user_files import expand
from framekiln.media.block_cache import read_range
from framekiln.media.files import open_url
from framekiln.media.network import Network, network
from framekiln.output.parquet import ParquetTable, check_text, check_types, to_parquet
from framekiln.output.publisher import TEMPORARY, DiskPublisher, Publisher
from framekiln.output.store_errors import damaged, error_text, list_errors, read_errors, write_errors

_SMALL = 1 << 16  # bytes that one request reads; Arrow asks for as many to read a table's footer


def _reopen(kind: "type[Store]", root: str, run: str, rules: Network) -> "Store":
    """Open a store in a worker, and apply the run's rules there: all work of a worker comes with a store."""
    rules.use()
    return kind(root, run)


class Store:
    """Objects by their path relative to a root; picklable, so that workers write beside the driver.

    All methods raise OutputError if the disk or bucket refuses. Reading methods raise GoneError (also a
    FileNotFoundError) for an absent object, and DamagedError for a non-file or changed content.
    """

    def __init__(self, root: str, run: str = "") -> None:
        """Bind to a folder or an `s3://`, `gs://`, `file://` URL, without touching it.

        `root`: the folder or URL. `run`: the run that holds the output's lease, in letters and digits; a fence stops
        its processes.
        Raises OutputError: the URL's file system is unknown.
        """
        self.run = run
        path = expand(root)  # a/../b resolved as the system does, through links
        self.root = root if "://" in root else str(path.resolve() if ".." in path.parts else path.absolute())
        self._files, self._base = self._open_file_system()
        local = isinstance(self._files, pafs.LocalFileSystem)
        kind = DiskPublisher if local else Publisher
        self._publisher = kind(self._files, self._base, run, self.root)

    def _open_file_system(self) -> tuple[pafs.FileSystem, str]:
        try:
            return open_url(self.root)
        except (OSError, ValueError) as error:  # the latter: Arrow's own, and bytes that are not UTF-8
            raise OutputError(
                f"The output {self.root!r} cannot be opened ({error}); give a folder or an s3:// or gs:// URL.",
                code="FK-OUTPUT-ADDRESS",
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self.root, self.run, network())

    def of_run(self, run: str) -> "Store":
        """Return the same store for the processes of a run, after its `begin`."""
        return type(self)(self.root, run)

    def check_folder(self) -> "Store":
        """Return the store after checking that its root is a folder or absent.

        Raises OutputError: the root is a file, or the system refuses its path.
        """
        try:
            is_file = bool(self._base) and self._files.get_file_info(self._base).type == pafs.FileType.File
        except (OSError, ValueError) as error:  # the latter: Arrow's own, as of a//b
            raise OutputError(
                f"The output {self.root!r} cannot be opened ({error_text(error)}); check the path and its permissions.",
                code="FK-OUTPUT-ADDRESS",
            ) from error
        if is_file:
            problem = f"The output {self.root!r} is a file; give its folder {split_place(self.root)[0]!r} or another."
            raise OutputError(problem, code="FK-OUTPUT-IS-FILE")
        return self

    def prepare(self) -> None:
        """Create the root and check that it is writable. Raises OutputError if it is not writable."""
        probe = f"run.probe-{uuid.uuid4().hex[:8]}"
        try:
            self.check_folder()
            self._files.create_dir(self._base, recursive=True)
            with self._publisher.publishing(self._locate(probe)):
                pass
            self.remove(probe)
        except OSError as error:
            raise OutputError(
                f"The output {self.root!r} is not writable ({error_text(error)}); choose another folder.",
                code="FK-OUTPUT-NOT-WRITABLE",
            ) from error

    def begin(self) -> "Store":
        """Let the run's processes publish objects until `fence`, and return the store."""
        with write_errors(self.root, TEMPORARY):
            self._publisher.begin()
        return self

    def fence(self, run: str) -> None:
        """Let no process of a run publish or delete objects any more, and delete its incomplete files."""
        with write_errors(self.root, f"the incomplete files of run {run}"):
            self._publisher.fence(run)

    def write(self, path: str, data: bytes) -> None:
        with self.writing(path) as stream:
            stream.write(data)

    def rewrite(self, path: str, data: bytes) -> None:
        """Replace the content of an object of this run alone, which existed a moment ago."""
        with write_errors(self.root, path), self._publisher.replacing(self._locate(path)) as stream:
            stream.write(data)

    def write_table(self, path: str, table: pa.Table) -> None:
        """Write a table as Parquet (zstd)."""
        with self.writing(path) as stream:
            for part in to_parquet(table):
                stream.write(part)

    @contextmanager
    def writing(self, path: str) -> Iterator[pa.NativeFile]:
        """Yield a stream for an object larger than memory; the object exists once the block ends without error."""
        with write_errors(self.root, path), self._publisher.publishing(self._locate(path)) as stream:
            yield stream

    @property
    def folder(self) -> Path:  # on a disk
        return Path(self._base)

    @property
    def appends(self) -> bool:
        """True if objects can grow, as files on a disk do."""
        return self._publisher.appends

    def append(self, path: str, data: bytes) -> None:
        """Append bytes to an object in one write, creating it if needed; not in a bucket."""
        with write_errors(self.root, path):
            self._publisher.append_bytes(self._locate(path), data)

    def read(self, path: str) -> bytes:
        with self.open(path) as stream:
            return bytes(stream.read())

    def read_json(self, path: str) -> Any:
        """Return the value in a JSON file. Raises DamagedError if it has none."""
        data = self.read(path)
        try:
            return json.loads(data)
        except (RecursionError, ValueError) as error:
            raise damaged(self.root, path, str(error)) from error

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        """Open an object for random access; read errors in the block become the store's."""
        with read_errors(self.root, path):
            if self.appends and self._files.get_file_info(self._locate(path)).type == pafs.FileType.Unknown:
                raise damaged(self.root, path, "it is a pipe or a device")  # opening it could wait for ever
            with self._files.open_input_file(self._locate(path)) as source:
                is_small = not self.appends and source.size() <= _SMALL
                yield pa.BufferReader(read_range(source, source.size())) if is_small else source

    @contextmanager
    def parquet(self, path: str) -> Iterator[ParquetTable]:
        """Open a Parquet table; read errors in the block become the store's."""
        with self.open(path) as source:
            try:
                file = ParquetTable(source)
                check_text(file.schema_arrow)
            except UnicodeDecodeError as error:  # no checksum covers a file's schema
                raise pa.ArrowInvalid(f"its schema is no text: {error}") from error
            yield file

    def read_table(
        self, path: str, columns: Sequence[str] | None = None, *, expected: pa.Schema | None = None
    ) -> pa.Table:
        """Return a Parquet table, or some of its columns. Raises DamagedError if a column is missing.

        Args:
            path: of the table.
            columns: to be read; None for all.
            expected: columns and types that the table must have, among others; None: any.
        """
        with self.parquet(path) as file:
            check_types(file.schema_arrow, expected)
            table = file.read(columns=None if columns is None else list(columns))
            if columns is not None and (absent := set(columns) - set(table.column_names)):
                raise pa.ArrowInvalid(f"columns {', '.join(sorted(absent))} are absent")
            return table

    def dataset(self, folder: str, empty: pa.Schema, cast: Callable[[pa.Schema], pa.Schema] | None = None) -> Any:
        """Return the Parquet tables in a folder as one `pyarrow.dataset.Dataset`; only a schema is read.

        `empty`: the schema without any tables. `cast` maps the stored schema to the schema of the returned rows.
        """
        import pyarrow.dataset as ds  # no run needs it

        paths = [self._locate(f"{folder}/{name}") for name in self.names(folder) if name.endswith(".parquet")]
        with read_errors(self.root, folder):
            if not paths:
                return ds.dataset(empty.empty_table())
            options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            kind = ds.ParquetFileFormat(default_fragment_scan_options=options)
            found = ds.dataset(paths, filesystem=self._files, format=kind)
            return found if cast is None else ds.dataset(paths, cast(found.schema), kind, self._files)

    def count_rows(self, path: str, expected: pa.Schema | None = None) -> int:
        """Return the number of rows in a Parquet table's footer; `expected` is as for `read_table`."""
        with self.parquet(path) as file:
            check_types(file.schema_arrow, expected)
            return int(file.metadata.num_rows)

    def exists(self, path: str) -> bool:
        with list_errors(self.root, path):
            return self._publisher.has(self._locate(path))

    def without_content(self, folder: str, paths: Collection[str]) -> set[str]:
        """Return the paths without content: absent, empty, or outside the folder."""
        inside = {path for path in paths if path.startswith(f"{folder}/") and _is_below(path)}
        with list_errors(self.root, folder):
            found = (  # of a bucket a listing is a request for a thousand objects; on a disk it would follow circles
                [self._locate(path) for path in inside]
                if self.appends
                else pafs.FileSelector(self._locate(folder), allow_not_found=True, recursive=True)
            )
            infos = self._files.get_file_info(found) if inside else []
        whole = {info.path for info in infos if info.type == pafs.FileType.File and info.size != 0}
        return {path for path in paths if path not in inside or self._locate(path) not in whole}

    def names(self, folder: str, *, hidden: bool = False) -> list[str]:
        """Return the sorted names of the objects in a folder, with `hidden` all; none if the folder is absent."""
        names = map(_read_name, (info for info in self._list_infos(folder) if info.type == pafs.FileType.File))
        return sorted(name for name in names if hidden or not name.startswith("."))

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of a folder's subfolders, without names that are not UTF-8: no run writes these."""
        names = map(_read_name, (info for info in self._list_infos(folder) if info.type == pafs.FileType.Directory))
        text = (name for name in names if name.encode(errors="ignore").decode() == name)
        return sorted(name for name in text if not name.startswith(TEMPORARY))

    def size(self, folder: str) -> int:
        """Return the bytes of all objects below a folder; 0 if it is absent."""
        return sum(self.sizes(folder).values())

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object below a folder, by path relative to the output."""
        place = self._locate(folder)
        with list_errors(self.root, folder):
            infos = self._files.get_file_info(pafs.FileSelector(place, allow_not_found=True, recursive=True))
        sizes: dict[str, int] = {}
        for info in (info for info in infos if info.type == pafs.FileType.File):
            with suppress(UnicodeDecodeError):  # a name that no run writes
                sizes[f"{folder}{info.path.removeprefix(place)}"] = info.size or 0
        return sizes

    def _list_infos(self, folder: str) -> Sequence[pafs.FileInfo]:
        selector = pafs.FileSelector(self._locate(folder), allow_not_found=True)
        with list_errors(self.root, folder):
            for _ in range(2):
                with suppress(FileNotFoundError):  # raised by Arrow for a folder that another process is creating
                    return self._files.get_file_info(selector)
        return []

    def remove(self, path: str) -> None:
        """Delete an object, if it exists."""
        with write_errors(self.root, path), suppress(FileNotFoundError):
            self._publisher.remove(self._locate(path))

    def url(self, path: str) -> str:
        """Return an object's address for people; the query of a bucket's URL stays at its end."""
        return below(self.root, path)

    def _locate(self, path: str) -> str:
        """Return an object's location. Raises ValueError for paths outside the root."""
        if path and not _is_below(path):
            raise ValueError(f"{path!r} is not a path below {self.root!r}")
        return f"{self._base}/{path}" if path else self._base


def _read_name(info: pafs.FileInfo) -> str:
    """Return an entry's name in Python's form: bytes that are not UTF-8 become surrogates."""
    try:
        return str(info.base_name)
    except UnicodeDecodeError as error:
        return os.fsdecode(error.object)


def _is_below(path: str) -> bool:
    return {"", ".", ".."}.isdisjoint(path.split("/")) and "\0" not in path
