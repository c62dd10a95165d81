"""An output in a bucket that is held in memory."""

from __future__ import annotations

import errno

from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from framekiln.output.object_store import Store


class Bucket(MemoryFileSystem):
    """Objects without renaming; with `fails`, writes raise after some bytes."""

    store, pseudo_dirs, cachable = {}, [""], False
    fails = False

    def _open(self, path, mode="rb", **more):
        file = super()._open(path, mode, **more)
        if "w" in mode and self.fails:
            write = file.write

            def cut(data):
                write(bytes(data)[: len(data) // 2])
                raise OSError(errno.EIO, "the connection was cut")

            file.write = cut
        return file


class BucketStore(Store):
    """A store in the one bucket of this process."""

    files = Bucket()

    def _open_file_system(self):
        return PyFileSystem(FSSpecHandler(self.files)), self.root


def empty_bucket() -> tuple[BucketStore, Bucket]:
    """Return a store in an empty bucket, and the bucket."""
    BucketStore.files.store.clear()
    BucketStore.files.fails = False
    return BucketStore("/out"), BucketStore.files
