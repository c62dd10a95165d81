"""Objects under one root, on a disk or in a bucket, each complete or absent.

Resuming a run depends on this alone. On a disk, an object is written in the run's folder of incomplete files, synced,
and renamed. In a bucket it is prepared in memory and sent at once, since closing a stream there publishes whatever was
written to it.

A run that lost its lease publishes nothing, also where it was frozen at the time. On a disk, `fence` takes its folder
of incomplete files away. Each publication and each deletion is a rename out of or into that folder, so it happens
before the fence or fails. In a bucket, which has no rename, a run looks for its marker after each publication, and
deletes the object if the marker has gone and the object was not there before. One gap is left: a process that is killed
between these two requests, after another run has ended.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.contract.errors import OutputError
from pipeline.media.discovery.media_ids import as_uri
from pipeline.output.store_errors import error_text, read_errors, write_errors

_TEMPORARY = ".tmp-"
_NO_RUN = "0"
_PARQUET: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


class Store:
    """Objects by their path relative to a root; picklable, so that workers write beside the driver."""

    def __init__(self, root: str, run: str = _NO_RUN) -> None:
        """Bind to a folder or an `s3://`, `gs://`, `file://` URL, without touching it.

        Args:
            root: the folder or URL.
            run: the run that holds the output's lease, in letters and digits; its processes are the ones to be fenced.

        Raises:
            OutputError: the URL's file system is unknown.
        """
        self._run = run
        self.root = root if "://" in root else str(Path(root).expanduser().absolute())
        try:
            self._files, self._base = pafs.FileSystem.from_uri(as_uri(self.root) if "://" in root else self.root)
        except (pa.ArrowInvalid, OSError, UnicodeEncodeError) as error:  # the last: bytes that are not UTF-8
            raise OutputError(
                f"The output {root!r} cannot be opened ({error}); give a folder or an s3:// or gs:// URL.",
                code="FM-OUTPUT-ADDRESS",
            ) from error
        self._renames = isinstance(self._files, pafs.LocalFileSystem)

    @property
    def run(self) -> str:
        """The run that writes; empty for none."""
        return "" if self._run == _NO_RUN else self._run

    def __reduce__(self) -> tuple[type[Store], tuple[str, str]]:
        return Store, (self.root, self._run)

    def of_run(self, run: str) -> Store:
        """Return the same store for the processes of a run, after its `begin`."""
        return Store(self.root, run)

    def check_folder(self) -> Store:
        """Return the store itself after checking that its root is a folder or absent.

        Raises:
            OutputError: the root is a file.
        """
        if self._base and self._files.get_file_info(self._base).type == pafs.FileType.File:
            folder = self.root.partition("?")[0].rpartition("/")[0]
            message = f"The output {self.root!r} is a file; its folder is {folder!r}, give that or another folder."
            raise OutputError(message, code="FM-OUTPUT-IS-FILE")
        return self

    def prepare(self) -> None:
        """Create the root and check that it is writable.

        Raises:
            OutputError: it is not writable.
        """
        probe = f"run.probe-{uuid.uuid4().hex[:8]}"
        try:
            self.check_folder()
            self._files.create_dir(self._base, recursive=True)
            with self._stream(probe):
                pass
            self.remove(probe)
        except OSError as error:
            raise OutputError(
                f"The output {self.root!r} is not writable ({error_text(error)}); choose another with --output.",
                code="FM-OUTPUT-NOT-WRITABLE",
            ) from error

    def begin(self) -> Store:
        """Let the run's processes publish objects, until `fence`, and return the store itself.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with write_errors(self.root, self._incomplete):
            if self._renames:
                Path(self._incomplete).mkdir(parents=True, exist_ok=True)
            else:
                with self._files.open_output_stream(self._incomplete) as stream:
                    stream.write(b"")
        return self

    def fence(self, run: str) -> None:
        """Let no process of a run publish or delete objects any more, and delete its incomplete files."""
        if not self._renames:
            with suppress(FileNotFoundError):
                self._files.delete_file(self._at(_TEMPORARY + run))
            return
        for folder in Path(self._base).glob(f"{_TEMPORARY}{run}*"):  # with what a killed fence left
            gone = folder.with_name(f"{_TEMPORARY}{run}-{uuid.uuid4().hex[:8]}")
            with suppress(FileNotFoundError):  # another run does the same
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def write(self, path: str, data: bytes) -> None:
        """Write bytes.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with self.writing(path) as stream:
            stream.write(data)

    def write_table(self, path: str, table: pa.Table) -> None:
        """Write a table as Parquet (zstd).

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        if self._renames:
            with self.writing(path) as stream:
                pq.write_table(table, stream, **_PARQUET)
        else:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, **_PARQUET)
            self.write(path, sink.getvalue())

    @contextmanager
    def writing(self, path: str) -> Iterator[pa.NativeFile]:
        """Yield a stream for an object too large for memory; the object exists once the block ends without error.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with write_errors(self.root, path), self._stream(path) as stream:
            yield stream

    @property
    def appends(self) -> bool:
        """True if objects can grow, as files on a disk do."""
        return self._renames

    def append(self, path: str, data: bytes) -> None:
        """Append bytes to an object in one write, creating it if needed; only for stores whose objects can grow.

        Raises:
            OutputError: the disk refuses.
        """
        with write_errors(self.root, path):
            self._check_writing()
            target = Path(self._at(path))
            target.parent.mkdir(exist_ok=True)
            with target.open("ab", buffering=0) as file:
                file.write(data)

    def read(self, path: str) -> bytes:
        """Return an object's bytes; raises FileNotFoundError if it is absent."""
        with self._files.open_input_stream(self._at(path), compression=None) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        """Open an object for random access; raises FileNotFoundError if it is absent."""
        return self._files.open_input_file(self._at(path))

    @contextmanager
    def parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet table; errors of reading it inside the block are raised as these.

        Raises:
            GoneError: it is absent.
            DamagedError: its content is not what was written.
            OutputError: it cannot be read.
        """
        with read_errors(self.root, path), self._files.open_input_file(self._at(path)) as source:
            yield pq.ParquetFile(source, page_checksum_verification=True)

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a Parquet table, or some of its columns; raises as `parquet`, also if a column is absent."""
        with self.parquet(path) as file:
            table = file.read(columns=None if columns is None else list(columns))
            if columns is not None and (absent := set(columns) - set(table.column_names)):
                raise pa.ArrowInvalid(f"columns {', '.join(sorted(absent))} are absent")
            return table

    def count_rows(self, path: str) -> int:
        """Return the number of rows in a Parquet table's footer; raises as `parquet`."""
        with self.parquet(path) as file:
            return int(file.metadata.num_rows)

    def exists(self, path: str) -> bool:
        """Return whether an object exists."""
        return bool(self._files.get_file_info(self._at(path)).type == pafs.FileType.File)

    def size(self, path: str) -> int:
        """Return the bytes of an object; 0 if it is absent."""
        return self._files.get_file_info(self._at(path)).size or 0

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the objects in a folder; none if the folder is absent."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        infos = self._files.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.type == pafs.FileType.File and not i.base_name.startswith("."))

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of the folders in a folder."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        names = [i.base_name for i in self._files.get_file_info(selector) if i.type == pafs.FileType.Directory]
        return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def remove(self, path: str) -> None:
        """Delete an object, if it exists.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with write_errors(self.root, path), suppress(FileNotFoundError):
            if not (self._renames and self.run):
                self._files.delete_file(self._at(path))
                return
            with self._temporary(path) as away:
                Path(self._at(path)).replace(away)

    def url(self, path: str) -> str:
        """Return an object's address for people; the query of the root's URL stays at the end."""
        place, mark, query = self.root.partition("?") if "://" in self.root else (self.root, "", "")
        return f"{place.rstrip('/')}/{path}{mark}{query}"

    def _at(self, path: str) -> str:
        """Return an object's place; raises ValueError for paths outside the root."""
        if path and (not {"", ".", ".."}.isdisjoint(path.split("/")) or "\0" in path):
            raise ValueError(f"{path!r} is not a path below {self.root!r}")
        return f"{self._base}/{path}" if path else self._base

    def _stream(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        return self._renamed(path) if self._renames else self._published(path)

    @property
    def _incomplete(self) -> str:
        """The run's folder of incomplete files; in a bucket, its marker."""
        return self._at(_TEMPORARY + self._run)

    def _check_writing(self) -> None:
        """Raise an error if the run was fenced, or if the output has gone: creating it again would hide the loss."""
        if self._renames and not Path(self._base).is_dir():
            raise FileNotFoundError(errno.ENOENT, "The folder has gone", self._base)
        if self.run and self._files.get_file_info(self._incomplete).type == pafs.FileType.NotFound:
            raise OutputError(
                f"This run no longer holds the output {self.root!r} (another run took it over); check that only one "
                "run writes there, then run the same command again.",
                code="FM-OUTPUT-LOST",
            )

    @contextmanager
    def _temporary(self, path: str) -> Iterator[Path]:
        """Yield the path of a temporary file, which is deleted at the end of the block."""
        name = uuid.uuid4().hex[:12]
        target = Path(self._incomplete) / name if self.run else Path(self._at(path)).with_name(f"{_TEMPORARY}{name}")
        try:
            yield target
        except FileNotFoundError:
            self._check_writing()
            raise
        finally:
            with suppress(OSError):
                target.unlink(missing_ok=True)

    @contextmanager
    def _renamed(self, path: str) -> Iterator[pa.NativeFile]:
        """Yield a stream to a temporary file, renamed to the object's path once the block ends without error."""
        with self._temporary(path) as target:
            if not self.run:
                target.parent.mkdir(parents=True, exist_ok=True)
            with self._files.open_output_stream(str(target), compression=None) as stream:
                yield stream
            with target.open("rb") as written:
                os.fsync(written.fileno())  # else a power loss can leave an empty file under the object's name
            Path(self._at(path)).parent.mkdir(parents=True, exist_ok=True)
            target.replace(self._at(path))

    @contextmanager
    def _published(self, path: str) -> Iterator[pa.NativeFile]:
        """Yield a stream to a bucket, which has the object once the block ends without error."""
        is_new = bool(self.run) and not self.exists(path)
        stream = self._files.open_output_stream(self._at(path), compression=None)
        try:
            yield stream
        except BaseException:
            with suppress(OSError):
                stream.close()  # if this succeeds, it publishes an incomplete object
                self._files.delete_file(self._at(path))
            raise
        stream.close()
        if self.run:
            try:
                self._check_writing()
            except OutputError:
                if is_new:
                    self._files.delete_file(self._at(path))
                raise
