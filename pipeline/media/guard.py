"""Who watches over decoding: a native decoder may crash or hang on a file, and takes its process along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline.errors import MediaError, Reason
from pipeline.media.store import Media

T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """How far a file may be read, since beyond that it kills."""

    items: int  # frames, and stretches that are lost, as a decoder gives them
    how: str  # what it died of

    @property
    def error(self) -> MediaError:
        """What is told of the rest."""
        after = f" after {self.items} frames" if self.items else ""
        said = f"decoding it killed the process ({self.how}){after}, also alone in a process of its own"
        return MediaError(Reason.CRASHED, said)


class Guard(Protocol):
    """Told of each file, or segment of one, before it is opened, and of each frame."""

    def opens(self, media: Media, share: int) -> Limit | None:
        """A file is about to be opened; how far it may be read, None for all of it."""

    def lives(self) -> None:
        """A frame was decoded, or a file opened."""


class Unguarded:
    """Nobody does."""

    def opens(self, media: Media, share: int) -> Limit | None:  # noqa: ARG002
        """See `Guard`."""
        return None

    def lives(self) -> None:
        """See `Guard`."""


def watched(items: Iterator[T], guard: Guard, limit: Limit | None) -> Iterator[T]:
    """What a decoder gives, up to the limit.

    Raises:
        MediaError: CRASHED, at the limit.
    """
    for number, item in enumerate(items):
        guard.lives()
        yield item
        if limit is not None and number + 1 >= limit.items:
            raise limit.error
