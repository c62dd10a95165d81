"""Whole objects under one root, on a disk or in a bucket: an object is there completely or not at all.

Resume rests on this alone. On a disk an object is written under a temporary name and renamed; in a bucket a PUT is
atomic by itself.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.errors import OutputError

_TEMPORARY = ".tmp-"
_UNFINISHED = "run.unfinished"


class Store:
    """Objects by their path relative to a root; picklable, so that workers write beside the driver."""

    def __init__(self, root: str) -> None:
        """Bind to a folder or an `s3://`, `gs://`, `file://` URL; nothing is touched yet.

        Raises:
            OutputError: no file system is known for the URL.
        """
        self.root = root if "://" in root else str(Path(root).expanduser().absolute())
        try:
            self._files, self._base = pafs.FileSystem.from_uri(self.root)
        except (pa.ArrowInvalid, OSError) as error:
            raise OutputError(
                f"The output {root!r} cannot be opened ({error}); give a folder or an s3:// or gs:// URL."
            ) from error
        self._renames = isinstance(self._files, pafs.LocalFileSystem)

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.root,)

    def prepare(self) -> None:
        """Make the root, and prove that it can be written.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            self._files.create_dir(self._base, recursive=True)
            self.write("run.probe", b"")
            self.remove("run.probe")
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputError(
                f"The output {self.root!r} cannot be written ({reason}); choose another with --output."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A time of writing, here and in workers; what an earlier, killed one left half-written is swept first.

        Only then is the tree searched for it: an output may hold millions of files.
        """
        if self._renames and self.exists(_UNFINISHED):
            for path in Path(self._base).rglob(f"{_TEMPORARY}*"):
                path.unlink(missing_ok=True)
        self.write(_UNFINISHED, b"")
        yield
        self.remove(_UNFINISHED)

    def write(self, path: str, data: bytes) -> None:
        """Put bytes."""
        with _Target(self, path) as target, self._files.open_output_stream(target) as stream:
            stream.write(data)

    def write_table(self, path: str, table: pa.Table) -> None:
        """Put a table as Parquet (zstd)."""
        with _Target(self, path) as target:
            pq.write_table(table, target, filesystem=self._files, compression="zstd")

    def read(self, path: str) -> bytes:
        """Get bytes; FileNotFoundError when there are none."""
        with self._files.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        """Open an object for reading parts of it; FileNotFoundError when there is none."""
        return self._files.open_input_file(self._at(path))

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Get a Parquet table, or some of its columns."""
        with self._files.open_input_file(self._at(path)) as source:
            return pq.ParquetFile(source).read(columns=None if columns is None else list(columns))

    def count_rows(self, path: str) -> int:
        """How many rows a Parquet table has, by its footer."""
        with self._files.open_input_file(self._at(path)) as source:
            return int(pq.ParquetFile(source).metadata.num_rows)

    def exists(self, path: str) -> bool:
        """Whether there is an object."""
        return bool(self._files.get_file_info(self._at(path)).type == pafs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """Names of the objects in a folder, sorted; none when there is no folder."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        infos = self._files.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.type == pafs.FileType.File and not i.base_name.startswith("."))

    def folders(self, folder: str = "") -> list[str]:
        """Names of the folders in a folder, sorted."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        return sorted(i.base_name for i in self._files.get_file_info(selector) if i.type == pafs.FileType.Directory)

    def remove(self, path: str) -> None:
        """Delete an object that is there."""
        self._files.delete_file(self._at(path))

    def url(self, path: str) -> str:
        """Where a person finds an object."""
        return f"{self.root.rstrip('/')}/{path}"

    def _at(self, path: str) -> str:
        """The place of an object; what would lie outside of the root is refused, whoever asks."""
        if path and (not {"", ".", ".."}.isdisjoint(path.split("/")) or "\0" in path):
            raise ValueError(f"{path!r} is not a path below {self.root!r}")
        return f"{self._base}/{path}" if path else self._base


class _Target:
    """A name to write to, that becomes the object's name when the block ends well."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._final = store, store._at(path)
        folder, _, name = self._final.rpartition("/")
        self._folder = folder
        self._name = (
            f"{folder}/{_TEMPORARY}{os.getpid()}-{uuid.uuid4().hex[:8]}-{name[-80:]}" if store._renames else self._final
        )

    def __enter__(self) -> str:
        if self._store._renames:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
        return self._name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._store._renames:
            return
        if kind is None:
            Path(self._name).replace(self._final)
        else:
            Path(self._name).unlink(missing_ok=True)
