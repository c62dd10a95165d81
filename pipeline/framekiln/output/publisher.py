"""Objects that appear and disappear whole: renamed on a disk, sent at once to a bucket.

On a disk, an object is written in the run's folder of incomplete files, synced, and renamed. In a bucket it is prepared
in memory and sent at once, since closing a stream there publishes whatever was written to it.

A run that lost its lease publishes nothing, even if it was frozen at that time. On a disk, `fence` takes its folder of
incomplete files away. Each publication and each deletion is a rename out of or into that folder, so it happens before
the fence or fails. A bucket has no rename. There a run looks for its marker after each publication. It deletes the
object if the marker has gone and the object was not there before. One gap remains: a process killed between these two
requests, after another run has ended.

Paths are those of the file system. All methods raise OSError if it refuses, and `OutputError` for a fenced run.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from framekiln.contract.errors import OutputError

TEMPORARY = ".tmp-"
"""Prefix of incomplete objects, and of a run's folder of them or its marker."""


class Publisher:
    """Writes and deletes objects below a folder `base`, for a run that may be fenced, or for no run.

    This class sends whole objects to a bucket, and looks for the run's marker afterwards. Messages show the folder as
    the user gave it (`root`).
    """

    appends = False
    """True if objects can grow."""

    def __init__(self, files: pafs.FileSystem, base: str, run: str, root: str) -> None:
        self._files, self._base, self._run, self._root = files, base, run, root
        self._mark = f"{base}/{TEMPORARY}{run}"

    def begin(self) -> None:
        """Let the run publish objects, until `fence`."""
        with self._files.open_output_stream(self._mark) as stream:
            stream.write(b"")

    def fence(self, run: str) -> None:
        """Let no process of a run publish or delete objects any more, and delete its incomplete files."""
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._base}/{TEMPORARY}{run}")

    def has(self, path: str) -> bool:
        """Return whether an object exists; `get_file_info` would also list the entries below an absent one."""
        with suppress(FileNotFoundError):
            self._files.open_input_file(path).close()
            return True
        return False

    @contextmanager
    def publishing(self, path: str) -> Iterator[pa.NativeFile]:
        """Yield a stream to an object, which exists once the block ends without error."""
        is_new = bool(self._run) and not self.has(path)
        stream = self._files.open_output_stream(path, compression=None)
        try:
            yield stream
        except BaseException:
            with suppress(OSError):
                stream.close()  # if this succeeds, it publishes an incomplete object
                self._files.delete_file(path)
            raise
        stream.close()
        try:
            self.check()
        except OutputError:
            if is_new:
                self._files.delete_file(path)
            raise

    def replacing(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Yield a stream to an object of this run alone, which existed a moment ago.

        One request: results are published by other methods, each with its own check of the marker.
        """
        stream: AbstractContextManager[pa.NativeFile] = self._files.open_output_stream(path, compression=None)
        return stream

    def remove(self, path: str) -> None:
        """Delete an object; raises FileNotFoundError if it is absent."""
        self._files.delete_file(path)

    def append_bytes(self, path: str, data: bytes) -> None:
        """Append bytes to an object in one write, creating it if needed; not in a bucket."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise `OutputError` if the run was fenced."""
        if self._run and self._files.get_file_info(self._mark).type == pafs.FileType.NotFound:
            raise OutputError(
                f"This run no longer holds the output {self._root!r} (another run took it over, or files of it were "
                "deleted); check that only one run writes there, then run the same command again.",
                code="FK-OUTPUT-LOST",
            )


class DiskPublisher(Publisher):
    """Renames files out of the run's folder of incomplete files."""

    appends = True

    def begin(self) -> None:
        Path(self._mark).mkdir(parents=True, exist_ok=True)

    def fence(self, run: str) -> None:
        for folder in Path(self._base).glob(f"{TEMPORARY}{run}*"):  # also removes leftovers of a killed fence
            gone = folder.with_name(f"{TEMPORARY}{run}-{uuid.uuid4().hex[:8]}")
            with suppress(FileNotFoundError):  # another run does the same
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def has(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type == pafs.FileType.File)

    @contextmanager
    def publishing(self, path: str) -> Iterator[pa.NativeFile]:
        with self._open_incomplete(path) as incomplete:
            if not self._run:
                incomplete.parent.mkdir(parents=True, exist_ok=True)
            with self._files.open_output_stream(str(incomplete), compression=None) as stream:
                yield stream
            with incomplete.open("rb") as written:
                os.fsync(written.fileno())  # otherwise a power loss can leave an empty file under the object's name
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            try:
                incomplete.replace(path)
            except IsADirectoryError:
                Path(path).rmdir()  # raises if the folder is not empty
                incomplete.replace(path)

    def replacing(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        return self.publishing(path)

    def append_bytes(self, path: str, data: bytes) -> None:
        self.check()
        target = Path(path)
        target.parent.mkdir(exist_ok=True)
        with target.open("ab", buffering=0) as file:
            file.write(data)

    def remove(self, path: str) -> None:
        if not self._run:
            Path(path).unlink()
            return
        with self._open_incomplete(path) as away:
            Path(path).replace(away)

    def check(self) -> None:
        """Raise an error if the run was fenced, or if the output has gone: creating it again would hide the loss."""
        if not Path(self._base).is_dir():
            raise FileNotFoundError(errno.ENOENT, "The folder has gone", self._base)
        super().check()

    @contextmanager
    def _open_incomplete(self, path: str) -> Iterator[Path]:
        name = uuid.uuid4().hex[:12]
        place = Path(self._mark) / name if self._run else Path(path).with_name(f"{TEMPORARY}{name}")
        try:
            yield place
        except FileNotFoundError:
            self.check()
            raise
        finally:
            with suppress(OSError):
                place.unlink(missing_ok=True)
