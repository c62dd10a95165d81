"""The faces of many frames as arrays, straight from Arrow's buffers: a million of them in seconds.

Shapes: f frames, n faces, d numbers of an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Singles = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class FaceRows:
    """Faces in the order of file, frame and place in the frame, whatever the order of the rows."""

    media_ids: pa.Array  # n
    frames: Ints  # n; numbers of frames in their files
    places: Ints  # n; in the frame, from 0
    vectors: Singles  # n d; of length 1, or 0 where an embedding has no direction
    scores: Singles  # n; of the detector
    qualities: Singles  # n
    sides: Singles  # n; px of the picture at full size, the box's shorter side
    _given: tuple[pa.StructArray, ...]
    _order: Ints  # n; places in `_given`

    @classmethod
    def of(cls, rows: pa.Table) -> FaceRows:
        """Faces of rows with media_id, frame_index, height, width and faces; null counts as no face."""
        count = pc.fill_null(pc.list_value_length(rows["faces"]), 0).to_numpy().astype(np.int64)
        owners = np.repeat(np.arange(rows.num_rows), count)
        keys = rows.select(["media_id", "frame_index"])
        rank = np.empty(rows.num_rows, np.int64)
        rank[pc.sort_indices(keys, [("media_id", "ascending"), ("frame_index", "ascending")]).to_numpy()] = np.arange(
            rows.num_rows
        )
        order = np.argsort(rank[owners], kind="stable")
        owner = owners[order]
        given = tuple(chunk.flatten() for chunk in rows["faces"].chunks)
        kind = rows["faces"].type.value_type
        box = _numbers(given, "box", len(owners))[order]
        sizes = [rows[name].to_numpy()[owner] for name in ("width", "height")]
        return cls(
            media_ids=rows["media_id"].combine_chunks().take(pa.array(owner)),
            frames=rows["frame_index"].to_numpy().astype(np.int64)[owner],
            places=(np.arange(len(owners)) - np.repeat(np.cumsum(count) - count, count))[order],
            vectors=_directions(_embeddings(given, kind.field("embedding").type.list_size))[order],
            scores=_numbers(given, "score", len(owners))[order],
            qualities=_numbers(given, "quality", len(owners))[order],
            sides=np.minimum((box[:, 2] - box[:, 0]) * sizes[0], (box[:, 3] - box[:, 1]) * sizes[1]),
            _given=given,
            _order=order,
        )

    def __len__(self) -> int:
        return len(self.frames)

    def crop(self, face: int) -> bytes | None:
        """The face's picture, where it was kept."""
        place = int(self._order[face])
        for part in self._given:
            if place < len(part):
                names = [item.name for item in part.type]
                return part.field("crop")[place].as_py() if "crop" in names else None
            place -= len(part)
        raise IndexError(face)


def _numbers(given: tuple[pa.StructArray, ...], name: str, count: int) -> NDArray[Any]:
    """A number of each face, or four of its box; null as NaN."""
    parts = [part.field(name) for part in given]
    if name == "box":
        columns = [[part.field(corner).to_numpy(zero_copy_only=False) for part in parts] for corner in _CORNERS]
        return np.stack([np.concatenate([np.empty(0, np.float32), *column]) for column in columns], axis=1)
    return np.concatenate([np.empty(0, np.float32), *(part.to_numpy(zero_copy_only=False) for part in parts)])[:count]


_CORNERS = ("x0", "y0", "x1", "y1")


def _embeddings(given: tuple[pa.StructArray, ...], length: int) -> Singles:
    parts = [part.field("embedding").flatten().to_numpy(zero_copy_only=False) for part in given]
    return np.concatenate([np.empty(0, np.float32), *(part.astype(np.float32) for part in parts)]).reshape(-1, length)


def _directions(vectors: Singles) -> Singles:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    good = np.isfinite(lengths) & (lengths > 0)
    return np.where(good, vectors / np.where(good, lengths, 1), 0).astype(np.float32)
