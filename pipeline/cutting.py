"""Which rows go into one call: any few for a ROW stage, one clip with what follows it for a CLIP stage.

Rows are handed over as slices of the packet, so the pixels of a call are never copied to make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import KEYS
from pipeline.packet import HALO
from pipeline.stage import Scope, Stage

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Rows of a packet that share a call, by their numbers in it; it answers for the first `keep`, the rest is halo."""

    indices: Indices
    keep: int

    @property
    def own(self) -> Indices:
        """The rows it answers for."""
        return self.indices[: self.keep]


def cuts(stage: Stage, rows: pa.Table, left_out: NDArray[np.bool_], size: Callable[[], int]) -> Iterator[Cut]:
    """The calls of a packet, in its order.

    Args:
        stage: whose scope decides.
        rows: the packet's, halo included.
        left_out: n bools, true for rows that the stage is not shown.
        size: rows of the next call of a ROW stage, asked before each.
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
    """Start and stop of each clip with the halo that follows it."""
    if not rows.num_rows:
        return
    media = rows[KEYS[0]].combine_chunks().dictionary_encode()
    codes = np.concatenate(
        [chunk.indices.to_numpy() for chunk in (media.chunks if isinstance(media, pa.ChunkedArray) else [media])]
    )
    clips = rows["clip_index"].to_numpy()
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(clips) != 0)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True)


def take_slices(rows: pa.Table, indices: Indices) -> pa.Table:
    """Rows by rising number, as slices of the same buffers."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    runs = np.split(indices, breaks)
    return pa.concat_tables([rows.slice(int(run[0]), len(run)) for run in runs if len(run)] or [rows.slice(0, 0)])
