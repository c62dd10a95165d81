"""Whole objects under one root, on a disk or in a bucket: an object is there completely or not at all.

Resume rests on this alone. On a disk an object is written under a temporary name and renamed; in a bucket it is made
ready in memory and handed over at once, since closing a stream there publishes whatever it was given.

What the disk or the bucket refuses is said here as one sentence, so that no caller need know its errors.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.errors import GoneError, OutputError
from pipeline.media.names import as_uri

_TEMPORARY = ".tmp-"
_NO_RUN = "0"
_FIXES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "raise the quota or free some space there",
    errno.EROFS: "make it writable",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.ENOTDIR: "move the file that stands where a folder should be",
    errno.EEXIST: "move the file that stands where a folder should be",
    errno.ENOENT: "look what removed it",
    errno.EIO: "check the disk",
}


class Store:
    """Objects by their path relative to a root; picklable, so that workers write beside the driver."""

    def __init__(self, root: str, run: str = _NO_RUN) -> None:
        """Bind to a folder or an `s3://`, `gs://`, `file://` URL; nothing is touched yet.

        Args:
            root: the folder or URL.
            run: whose temporary files these are, letters and digits; of a run that holds the output's lease.

        Raises:
            OutputError: no file system is known for the URL.
        """
        self._run = run
        self.root = root if "://" in root else str(Path(root).expanduser().absolute())
        try:
            self._files, self._base = pafs.FileSystem.from_uri(as_uri(self.root) if "://" in root else self.root)
        except (pa.ArrowInvalid, OSError) as error:
            raise OutputError(
                f"The output {root!r} cannot be opened ({error}); give a folder or an s3:// or gs:// URL."
            ) from error
        self._renames = isinstance(self._files, pafs.LocalFileSystem)

    @property
    def run(self) -> str:
        """Whose temporary files it writes; "" where that is nobody's."""
        return "" if self._run == _NO_RUN else self._run

    def __reduce__(self) -> tuple[type[Store], tuple[str, str]]:
        return Store, (self.root, self._run)

    def of_run(self, run: str) -> Store:
        """The same objects, written by a run."""
        return Store(self.root, run)

    def as_folder(self) -> Store:
        """Itself, whose root is a folder or is not there yet.

        Raises:
            OutputError: the root is a file.
        """
        if self._base and self._files.get_file_info(self._base).type == pafs.FileType.File:
            folder = self.root.partition("?")[0].rpartition("/")[0]
            raise OutputError(f"{self.root!r} is a file, no output; the folder that it lies in is {folder!r}.")
        return self

    def prepare(self) -> None:
        """Make the root, and prove that it can be written.

        Raises:
            OutputError: it cannot be written.
        """
        probe = f"run.probe-{uuid.uuid4().hex[:8]}"
        try:
            self.as_folder()
            self._files.create_dir(self._base, recursive=True)
            self._write(probe, b"")
            self.remove(probe)
        except OSError as error:
            raise OutputError(
                f"The output {self.root!r} cannot be written ({_reason(error)}); choose another with --output."
            ) from error

    def sweep(self, runs: Collection[str]) -> None:
        """Delete what runs that have ended left half-written.

        The tree is searched for it, and an output may hold millions of files: only where a run did not end well.
        """
        if self._renames and runs:
            for path in Path(self._base).rglob(f"{_TEMPORARY}*"):
                if path.name.removeprefix(_TEMPORARY).split("-")[0] in runs:
                    path.unlink(missing_ok=True)

    def write(self, path: str, data: bytes) -> None:
        """Put bytes.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with self._refusals_of_writing(path):
            self._write(path, data)

    def write_table(self, path: str, table: pa.Table) -> None:
        """Put a table as Parquet (zstd).

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with self._refusals_of_writing(path):
            if self._renames:
                with self._renamed(path) as target:
                    pq.write_table(table, target, filesystem=self._files, compression="zstd")
            else:
                sink = pa.BufferOutputStream()
                pq.write_table(table, sink, compression="zstd")
                self._put(path, sink.getvalue())

    @contextmanager
    def writing(self, path: str) -> Iterator[pa.NativeFile]:
        """A stream for an object too large for memory; it is there once the block ends well, and not at all otherwise.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with self._refusals_of_writing(path):
            if self._renames:
                with self._renamed(path) as target, self._files.open_output_stream(target, compression=None) as stream:
                    yield stream
            else:
                with self._published(path) as stream:
                    yield stream

    @property
    def appends(self) -> bool:
        """Whether objects can grow, as files of a disk do."""
        return self._renames

    def append(self, path: str, data: bytes) -> None:
        """Put bytes at the end of an object, in one piece, where objects can grow; it need not be there.

        Raises:
            OutputError: the disk refuses.
        """
        with self._refusals_of_writing(path):
            target = Path(self._at(path))
            if not Path(self._base).is_dir():  # made again, it would hide that results are lost
                raise FileNotFoundError(errno.ENOENT, "The folder has gone", self._base)
            target.parent.mkdir(exist_ok=True)
            with target.open("ab", buffering=0) as file:
                file.write(data)

    def read(self, path: str) -> bytes:
        """Get bytes; FileNotFoundError when there are none."""
        with self._files.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        """Open an object for reading parts of it; FileNotFoundError when there is none."""
        return self._files.open_input_file(self._at(path))

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Get a Parquet table, or some of its columns.

        Raises:
            GoneError: it is not there.
            OutputError: it cannot be read.
        """
        with self._refusals_of_reading(path), self._files.open_input_file(self._at(path)) as source:
            return pq.ParquetFile(source).read(columns=None if columns is None else list(columns))

    def count_rows(self, path: str) -> int:
        """How many rows a Parquet table has, by its footer; raises as `read_table`."""
        with self._refusals_of_reading(path), self._files.open_input_file(self._at(path)) as source:
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
        """Delete an object; one that is not there any more is none of our concern.

        Raises:
            OutputError: the disk or the bucket refuses.
        """
        with self._refusals_of_writing(path), suppress(FileNotFoundError):
            self._files.delete_file(self._at(path))

    def url(self, path: str) -> str:
        """Where a person finds an object; what the root's URL says of its store stays at the end."""
        place, mark, query = self.root.partition("?") if "://" in self.root else (self.root, "", "")
        return f"{place.rstrip('/')}/{path}{mark}{query}"

    def _at(self, path: str) -> str:
        """The place of an object; what would lie outside of the root is refused, whoever asks."""
        if path and (not {"", ".", ".."}.isdisjoint(path.split("/")) or "\0" in path):
            raise ValueError(f"{path!r} is not a path below {self.root!r}")
        return f"{self._base}/{path}" if path else self._base

    def _write(self, path: str, data: bytes) -> None:
        if self._renames:
            with self._renamed(path) as target, self._files.open_output_stream(target) as stream:
                stream.write(data)
        else:
            self._put(path, data)

    @contextmanager
    def _renamed(self, path: str) -> Iterator[str]:
        """A name to write to, that becomes the object's name when the block ends well."""
        folder, _, name = self._at(path).rpartition("/")
        target = Path(folder) / f"{_TEMPORARY}{self._run}-{uuid.uuid4().hex[:8]}-{name[-80:]}"
        if self._run != _NO_RUN and not Path(self._base).is_dir():  # made again, it would hide that results are lost
            raise FileNotFoundError(errno.ENOENT, "The folder has gone", self._base)
        Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            yield str(target)
            target.replace(self._at(path))
        except BaseException:
            with suppress(OSError):
                target.unlink(missing_ok=True)
            raise

    def _put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._published(path) as stream:
            stream.write(data)

    @contextmanager
    def _published(self, path: str) -> Iterator[pa.NativeFile]:
        """A stream to a bucket, which has the object when the block ends well."""
        stream = self._files.open_output_stream(self._at(path), compression=None)
        try:
            yield stream
        except BaseException:
            with suppress(OSError):
                stream.close()  # where this does not fail too, it publishes a torn object
                self._files.delete_file(self._at(path))
            raise
        stream.close()

    @contextmanager
    def _refusals_of_writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = _FIXES.get(error.errno or 0, "see to that")
            raise OutputError(
                f"The output {self.root!r} cannot be written any more ({_reason(error)}, at {path}); {fix}, then run "
                "the same command again: what is finished is kept."
            ) from error

    @contextmanager
    def _refusals_of_reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise GoneError(
                f"{path} has gone from the output {self.root!r} while it was being used; run the same command again."
            ) from error
        except OSError as error:
            raise OutputError(
                f"{path} in the output {self.root!r} cannot be read ({_reason(error)}); check the disk, or delete the "
                "file, then run the same command again."
            ) from error


def _reason(error: OSError) -> str:
    """What the system says, without pyarrow's additions."""
    known = errno.errorcode.get(error.errno or 0)
    return os.strerror(error.errno or 0) if known else str(error).strip().rstrip(".")
