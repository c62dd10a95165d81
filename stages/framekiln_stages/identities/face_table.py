"""The faces of a run as arrays, read from Arrow's buffers: a million in seconds.

Shapes: f frames, n faces, d numbers of an embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln_stages.identities.common_directions import leave_out_coverings
from framekiln_stages.shared.masks import BOX
from framekiln_stages.shared.tables import NETWORK

Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
COVERED = 0.3  # contrast: 95 % of bare faces have more, 1 % with masks, 14 % with sunglasses, 10 % with striped masks


@dataclass(frozen=True, kw_only=True)
class FaceTable:
    """Faces in the order of file, frame and index in the frame, whatever the order of the rows."""

    media_ids: pa.Array  # n
    frames: Ints  # n; frame numbers in their files
    files: Ints  # n; file numbers, equal for the faces of one file
    pictures: Ints  # n; frame numbers over all files, equal for the faces of one frame
    positions: Ints  # n; index in the frame, from 0
    vectors: Singles  # n d; of length 1, or 0 if the embedding is zero or not finite; without coverings
    scores: Singles  # n; scores of the detector
    qualities: Singles  # n
    sharpness: Singles  # n; NaN: not in the column
    contrasts: Singles  # n; contrasts of eyes and mouth; NaN: not in the column
    strengths: Singles  # n; length of the embedding before scaling; NaN: not in the column
    frontal: Singles  # n; factor of the quality, 0 for a profile; NaN: not in the column
    thumbnails: NDArray[np.uint8]  # n 256; n 0: not in the column
    sides: Singles  # n; shorter side of the box in px of the image at full size
    network: str | None  # network of the embeddings; None: not in the column
    _faces: pa.ChunkedArray
    _order: Ints  # n; indices into `_faces`

    @classmethod
    def from_rows(cls, rows: pa.Table) -> "FaceTable":
        """Read the faces of rows with media_id, frame_index, height, width and faces; null counts as no face."""
        count = pc.fill_null(pc.list_value_length(rows["faces"]), 0).to_numpy().astype(np.int64)
        owners = np.repeat(np.arange(rows.num_rows), count)
        keys = rows.select(["media_id", "frame_index"])
        sorted_rows = pc.sort_indices(keys, [("media_id", "ascending"), ("frame_index", "ascending")]).to_numpy()
        rank = np.empty(rows.num_rows, np.int64)
        rank[sorted_rows] = np.arange(rows.num_rows)
        order = np.argsort(rank[owners], kind="stable")
        owner = owners[order]
        flat = pc.list_flatten(rows["faces"])
        left, top, right, bottom = (_read_numbers(flat, ["box", side.name])[order] for side in BOX)
        sizes = [rows[name].to_numpy()[owner] for name in ("width", "height")]
        media_ids = rows["media_id"].combine_chunks().take(pa.array(owner))
        network = (rows.schema.field("faces").metadata or {}).get(NETWORK, b"").decode() or None
        angles = np.radians(np.stack([_read_numbers(flat, name) for name in ("yaw", "pitch")])[:, order])
        return cls(
            media_ids=media_ids,
            files=media_ids.dictionary_encode().indices.to_numpy().astype(np.int64),
            pictures=rank[owner],
            frames=rows["frame_index"].to_numpy().astype(np.int64)[owner],
            positions=(np.arange(len(owners)) - np.repeat(np.cumsum(count) - count, count))[order],
            vectors=leave_out_coverings(_read_vectors(flat), network)[order],
            scores=_read_numbers(flat, "score")[order],
            qualities=_read_numbers(flat, "quality")[order],
            sharpness=_read_numbers(flat, "sharpness")[order],
            contrasts=_read_numbers(flat, "contrast")[order],
            strengths=_read_numbers(flat, "strength")[order],
            frontal=np.cos(angles).clip(0).prod(axis=0).astype(np.float32),
            thumbnails=_read_thumbnails(flat)[order],
            sides=np.minimum((right - left) * sizes[0], (bottom - top) * sizes[1]),
            network=network,
            _faces=flat,
            _order=order,
        )

    @property
    def covered(self) -> NDArray[np.bool_]:
        """True if sunglasses, a mask or the like hides eyes or mouth (n)."""
        return np.asarray(self.contrasts < COVERED, np.bool_)

    def __len__(self) -> int:
        return len(self.frames)

    def find(self, keys: Mapping[tuple[str, int, int], int]) -> dict[int, int]:
        """Return values by face from values by media_id, frame and index; absent faces are left out."""
        names = pa.array({name for name, _, _ in keys}, self.media_ids.type)
        found = np.flatnonzero(pc.is_in(self.media_ids, names).to_numpy(zero_copy_only=False))
        media_ids = self.media_ids.take(pa.array(found)).to_pylist()
        places = zip(media_ids, self.frames[found].tolist(), self.positions[found].tolist(), strict=True)
        return {face: keys[place] for face, place in zip(found.tolist(), places, strict=True) if place in keys}

    def crop(self, face: int) -> bytes | None:
        """Return the crop of a face as a JPEG; None if the run has no crops."""
        row = self._faces[int(self._order[face])]
        return row["crop"].as_py() if "crop" in row else None


def _read_numbers(faces: pa.ChunkedArray, path: str | list[str]) -> NDArray[Any]:
    """Return a number for each face; NaN for null, and if the faces lack the number."""
    if isinstance(path, str) and faces.type.get_field_index(path) < 0:
        return np.full(len(faces), np.nan, np.float32)
    return pc.struct_field(faces, path).to_numpy()


def _read_vectors(faces: pa.ChunkedArray) -> Singles:
    """Return unit embeddings (n d); zeros where one is zero or not finite."""
    values = pc.list_flatten(pc.struct_field(faces, "embedding")).to_numpy()
    embeddings = values.astype(np.float32).reshape(-1, faces.type.field("embedding").type.list_size)
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    good = np.isfinite(norms) & (norms > 0)
    return np.where(good, embeddings / np.where(good, norms, 1), 0).astype(np.float32)


def _read_thumbnails(faces: pa.ChunkedArray) -> NDArray[np.uint8]:
    if faces.type.get_field_index("thumbnail") < 0:
        return np.empty((len(faces), 0), np.uint8)
    size = faces.type.field("thumbnail").type.list_size
    return pc.list_flatten(pc.struct_field(faces, "thumbnail")).to_numpy().reshape(-1, size)
