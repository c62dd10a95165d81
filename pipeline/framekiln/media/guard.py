"""Protection from native decoders that crash or hang on a file and end their process."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.files import MediaFile
from framekiln.media.shares import Share

T = TypeVar("T")


@dataclass(frozen=True)
class ReadLimit:
    """The readable part of a file that kills its decoder."""

    max_items: int  # frames and lost stretches, as the decoder yields them; -1 if the file cannot be opened
    cause: str  # of the process's death

    @property
    def error(self) -> MediaError:
        """The error for the rest of the file."""
        after = f" after {self.max_items} frames" if self.max_items > 0 else ""
        message = f"decoding killed the process ({self.cause}){after}, also in a separate process"
        return MediaError(Reason.CRASHED, message)


class Guard:
    """Observer of decoding: called before each file, or segment of one, is opened, and after each frame.

    This one has no effect.
    """

    def start_file(self, media: MediaFile, share: Share) -> ReadLimit | None:  # noqa: ARG002
        """Register a file before it is opened; return its limit, or None to read all of it."""
        return None

    def heartbeat(self) -> None:
        """Register a decoded frame or an opened file."""


def guarded(items: Iterator[T], guard: Guard, limit: ReadLimit | None) -> Iterator[T]:
    """Yield a decoder's items up to the limit. Raises MediaError: CRASHED, at the limit."""
    if limit is not None and not limit.max_items:
        raise limit.error
    for count, item in enumerate(items, 1):
        guard.heartbeat()
        yield item
        if limit is not None and count >= limit.max_items:
            raise limit.error
