"""The files of a run: the listed input, the shard and the limit of the request, and the units that cover them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from framekiln.media.discovery.listing import in_shard, shard
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, read_units, sort_units, with_digests
from framekiln.runtime.run.request import RunRequest


@dataclass(frozen=True, kw_only=True)
class RunUnits:
    """The units of a run, and the files with rows in its tables."""

    known: Sequence[Unit]  # from earlier runs
    fresh: Sequence[Unit]
    wanted: frozenset[str]  # media ids

    @property
    def all(self) -> list[Unit]:
        """All units in their order."""
        return sort_units([*self.known, *self.fresh])


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The input as it was listed, and the part of it that a request selects."""

    request: RunRequest
    listing: Sequence[MediaFile]

    @property
    def selected(self) -> Sequence[MediaFile]:
        """The files of the request's shard, up to its limit."""
        request = self.request
        files = self.listing if request.shard is None else shard(self.listing, *request.shard)
        return files[: request.limit]

    def identified(self, store: Store, on_message: Callable[[str], None], *, keep: bool) -> RunFiles:
        """Add digests to the files if the request detects changes by content.

        With `keep` the digests are written into the output.
        """
        if not self.request.by_content:
            return self
        hashed = with_digests(store, list(self.selected), keep=keep, on_message=on_message)
        listing = {file.media_id: file for file in self.listing} | {file.media_id: file for file in hashed}
        return replace(self, listing=list(listing.values()))

    def units(self, store: Store, slots: int) -> RunUnits:
        """Return the selected files as units, of which `slots` are decoded at the same time."""
        media, sharded = list(self.selected), self.request.shard is not None
        known, fresh = divide_into_units(store, list(self.listing), media, slots=slots, sharded=sharded)
        whole = sharded and self.request.limit is None  # a unit of this shard may hold files of others
        wanted = frozenset(file.media_id for file in (self.listing if whole else media))
        return RunUnits(known=known, fresh=fresh, wanted=wanted)

    def deletable(self, store: Store) -> frozenset[str] | None:
        """Return the names of the units with files that this run may delete; None for all."""
        share = self.request.shard
        if share is None:
            return None
        return frozenset(unit.name for unit in read_units(store) if in_shard(unit.media[0].media_id, *share))
