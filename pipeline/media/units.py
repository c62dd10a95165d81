"""Units of decoding: small files share a task, and a long video is a unit of its own for several tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipeline.media.config import PHOTO_RULES, DecodeConfig
from pipeline.media.files import MediaFile

MAX_FILES = 256  # some seconds of decoding, so that a task that dies costs little
MAX_BYTES = 64_000_000  # of files; a larger file is a unit of its own
UNITS_PER_SLOT = 4  # so that fast slots take over work of slow ones


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Files decoded together. The name is a hash of them: the same files give the same unit in every run."""

    name: str
    media: tuple[MediaFile, ...]
    photo_rules: int = PHOTO_RULES  # 0 in outputs of earlier versions
    attempt: int = 0  # raised for files that failed in an earlier unit
    superseded: frozenset[str] = frozenset()  # media_ids of its files that a later attempt's unit replaces


def form_units(media: Sequence[MediaFile], *, slots: int) -> list[Unit]:
    """Group consecutive files into units, about four or more per slot if there are enough files.

    Args:
        media: files in a fixed order.
        slots: decode tasks that may run at once.
    """
    max_files = max(1, min(MAX_FILES, len(media) // (UNITS_PER_SLOT * max(1, slots))))
    units: list[Unit] = []
    members: list[MediaFile] = []
    size = 0
    for item in media:
        if members and (len(members) >= max_files or size + item.size > MAX_BYTES):
            units.append(_unit(members))
            members, size = [], 0
        members.append(item)
        size += item.size
    return [*units, _unit(members)] if members else units


def share_count(unit: Unit, config: DecodeConfig) -> int:
    """Return the number of tasks that may decode a unit at once, by the size of its single unopened file."""
    return config.share_count(unit.media[0].size) if len(unit.media) == 1 else 1


def retry_unit(unit: Unit, names: Collection[str]) -> Unit:
    """Return a new unit of some of a unit's files, to decode them again."""
    return _unit([media for media in unit.media if media.media_id in names], unit.attempt + 1)


def _unit(members: Sequence[MediaFile], attempt: int = 0) -> Unit:
    digest = hashlib.blake2b(digest_size=8, salt=attempt.to_bytes(8, "big"))
    for item in members:
        digest.update(f"{item.media_id}\n{item.size}\n{item.digest or item.mtime_ns}\n".encode())
    return Unit(name=digest.hexdigest(), media=tuple(members), attempt=attempt)
