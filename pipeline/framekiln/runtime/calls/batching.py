"""The rows of each call: any few for a ROW stage, one clip with its halo for a CLIP stage.

Rows are passed as slices of the packet, so that pixels are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.packet import HALO
from framekiln.contract.stage import Scope, Stage

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """The rows of one call, by their numbers in the packet: the first `keep` are computed, the rest is halo."""

    indices: Indices
    keep: int

    @property
    def own(self) -> Indices:
        """Return the rows that are computed."""
        return self.indices[: self.keep]


def cuts(stage: Stage, rows: pa.Table, left_out: NDArray[np.bool_], size: Callable[[], int]) -> Iterator[Cut]:
    """Yield the calls of a packet in its order, without rows that are left out.

    `size` returns the rows of a ROW stage's next call, and is called before each.
    """
    halo = rows[HALO].to_numpy()
    if stage.scope is Scope.ROW:
        usable = np.flatnonzero(~halo & ~left_out)
        while len(usable):
            part, usable = np.split(usable, [size()])
            yield Cut(part, len(part))
        return
    for start, stop in clip_bounds(rows):
        inside = np.arange(start, stop)
        own = inside[~halo[start:stop] & ~left_out[start:stop]]
        ahead = inside[halo[start:stop]][: stage.halo]
        if len(own):
            yield Cut(np.concatenate([own, ahead]), len(own))


def clip_bounds(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the start and stop of each clip with the halo that follows it."""
    if not rows.num_rows:
        return
    media, clips = rows[KEYS[0]], rows["clip_index"].to_numpy()
    is_other_file = pc.not_equal(media[1:], media[:-1]).to_numpy()
    edges = np.flatnonzero(is_other_file | (np.diff(clips) != 0)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True)


def take_slices(rows: pa.Table, indices: Indices) -> pa.Table:
    """Return rows by rising number, as slices of the same buffers."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    runs = np.split(indices, breaks)
    return pa.concat_tables([rows.slice(int(run[0]), len(run)) for run in runs if len(run)] or [rows.slice(0, 0)])
