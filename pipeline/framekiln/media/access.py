"""Errors of disks and buckets as `MediaError`: what a later run may read is told apart from what stays unreadable."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.media_ids import escape

_FOR_A_WHILE = re.compile(
    r"time[d ]*out|too slow|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL|NETWORK_CONNECTION|THROTTLING|HTTP status 5\d\d"
    r"|Failed to flush response stream|UNAVAILABLE|DEADLINE_EXCEEDED",
    re.I,
)  # of AWS's client and Google's, which do not number their errors


def may_pass(error: Exception) -> bool:
    """Return whether an error of a bucket or server may be gone later: no answer, a cut one, or a request to wait."""
    if isinstance(error, MediaError):
        return error.reason is Reason.UNREACHABLE
    return _FOR_A_WHILE.search(str(error).split("AWS Error", 1)[-1]) is not None  # without the key


@contextmanager
def access_errors() -> Iterator[None]:
    """Raise `MediaError` for errors of the operating system or the store inside the block.

    It is UNREACHABLE if a bucket may answer later, and UNREADABLE otherwise.
    """
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as exc:
        of_system = exc.strerror if isinstance(exc, OSError) else None
        reason = Reason.UNREACHABLE if may_pass(exc) and not of_system else Reason.UNREADABLE
        raise MediaError(reason, of_system or escape(str(exc))) from exc
