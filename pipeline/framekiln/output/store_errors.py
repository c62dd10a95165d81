"""Errors of disks and buckets as messages with a fix."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from framekiln.contract.errors import DamagedError, GoneError, OutputError
from framekiln.contract.output_names import SELECTIONS

_FIXES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "raise the quota or free some space there",
    errno.EROFS: "make it writable",
    errno.EACCES: "give this user write permission",
    errno.EPERM: "give this user write permission",
    errno.ENOTDIR: "move the file that is in the place of a folder",
    errno.EEXIST: "move the file that is in the place of a folder",
    errno.EISDIR: "move the folder that is in the place of a file",
    errno.ENOTEMPTY: "move the folder that is in the place of a file",
    errno.ELOOP: "remove that link",
    errno.ENOENT: "find out what removed it",
    errno.EXDEV: "keep the whole output on one file system",
    errno.EIO: "check the disk",
}
_OF_THE_FILE = {None, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP}  # None: Arrow cannot decode the bytes
_OF_A_BUCKET = re.compile(r"AWS Error|google::cloud")  # nor does Arrow number the errors of requests
_REFUSED = re.compile(r"ACCESS_DENIED|PERMISSION_DENIED|HTTP status 40[13]")
_ALLOW = "allow it in the bucket (permissions, quota)"
_WAIT = "wait until the bucket answers, or raise `network: retries` and `timeout_s` in the profile"


def error_text(error: OSError | ValueError) -> str:
    """Return the system's error text, without pyarrow's additions."""
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number in errno.errorcode else str(error).strip().rstrip(".")


@contextmanager
def write_errors(root: str, path: str) -> Iterator[None]:
    """Raise `OutputError` for errors of writing inside the block."""
    try:
        yield
    except OSError as error:
        fix = _advise(error, _FIXES.get(error.errno or 0, "correct that"))
        raise OutputError(
            f"The output {root!r} cannot be written any more ({error_text(error)}, at {path}); {fix}, then run the "
            "same command again: finished work is kept.",
            code="FK-OUTPUT-NOT-WRITABLE",
        ) from error


@contextmanager
def read_errors(root: str, path: str) -> Iterator[None]:
    """Raise `GoneError`, `DamagedError` or `OutputError` for read errors in the block.

    A file that this user may not read counts as damaged: its content can be computed again.
    """
    try:
        yield
    except FileNotFoundError as error:
        message = f"{path} was removed from the output {root!r} while it was read; run the same command again."
        raise GoneError(message, code="FK-OUTPUT-GONE") from error
    except (pa.ArrowException, OSError, UnicodeEncodeError) as error:  # the last one: a name that is not UTF-8
        if not isinstance(error, OSError) or (error.errno in _OF_THE_FILE and not _OF_A_BUCKET.search(str(error))):
            reason = error_text(error) if isinstance(error, OSError) else str(error)
            raise damaged(root, path, " ".join(reason.split()).rstrip(".")) from error
        raise _explain_unreadable(root, path, error) from error


@contextmanager
def list_errors(root: str, path: str) -> Iterator[None]:
    """Raise `OutputError` for errors of listing a folder inside the block."""
    try:
        yield
    except OSError as error:
        raise _explain_unreadable(root, path or "the folder itself", error) from error


def damaged(root: str, path: str, reason: str) -> DamagedError:
    """Return the error of a file with other content than was written."""
    chosen = path.startswith(f"{SELECTIONS}/")
    fix = "save the selection again" if chosen else "`framekiln run` with the same options as before replaces it"
    message = f"{path} in the output {root!r} is damaged ({reason}); {fix}."
    return DamagedError(message, code="FK-OUTPUT-DAMAGED")


def _explain_unreadable(root: str, path: str, error: OSError) -> OutputError:
    fix = _advise(error, "check the disk, or delete it")
    return OutputError(
        f"{path} in the output {root!r} cannot be read ({error_text(error)}); {fix}, then run the same command again.",
        code="FK-OUTPUT-UNREADABLE",
    )


def _advise(error: OSError, on_disk: str) -> str:
    text = str(error)
    in_a_bucket = _ALLOW if _REFUSED.search(text) else _WAIT
    return in_a_bucket if _OF_A_BUCKET.search(text) else on_disk
