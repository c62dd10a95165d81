"""Files travel in units: many small ones share the cost of a task, a long video is one alone, for several tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipeline.media.config import DecodeConfig
from pipeline.media.store import Media

MOST_FILES = 256  # some seconds of decoding, so that a task that dies costs little
MOST_BYTES = 64_000_000  # of file; a larger file stands alone
UNITS_PER_SLOT = 4  # lets fast slots take over what slow ones leave


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Files that are decoded together. Its name is a hash of them: the same files give the same unit in every run."""

    name: str
    media: tuple[Media, ...]
    attempt: int = 0  # of files that could not be decoded in the unit before
    superseded: frozenset[str] = frozenset()  # media_ids of its files that a later attempt's unit stands for


def form_units(media: Sequence[Media], *, slots: int) -> list[Unit]:
    """Consecutive files together, in at least about four units for each slot where there are enough files.

    Args:
        media: files in a fixed order.
        slots: decode tasks that may run at the same time.
    """
    most_files = max(1, min(MOST_FILES, len(media) // (UNITS_PER_SLOT * max(1, slots))))
    units: list[Unit] = []
    members: list[Media] = []
    size = 0
    for item in media:
        if members and (len(members) >= most_files or size + item.size > MOST_BYTES):
            units.append(_unit(members))
            members, size = [], 0
        members.append(item)
        size += item.size
    return [*units, _unit(members)] if members else units


def shares(unit: Unit, config: DecodeConfig) -> int:
    """How many tasks may decode a unit at once: by its file's size, where it is one, as nobody has opened it yet."""
    return config.shares(unit.media[0].size) if len(unit.media) == 1 else 1


def again(unit: Unit, names: Collection[str]) -> Unit:
    """A unit of some of a unit's files, to be decoded once more."""
    return _unit([media for media in unit.media if media.media_id in names], unit.attempt + 1)


def _unit(members: Sequence[Media], attempt: int = 0) -> Unit:
    digest = hashlib.blake2b(digest_size=8, salt=attempt.to_bytes(8, "big"))
    for item in members:
        digest.update(f"{item.media_id}\n{item.size}\n{item.digest or item.mtime_ns}\n".encode())
    return Unit(name=digest.hexdigest(), media=tuple(members), attempt=attempt)
