"""Identities that have numbers already: those of earlier runs into the output, and those of another output.

Shapes: g identities, d numbers of an embedding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import Ints
from framekiln_stages.identities.medoids import Vectors

FaceKey = tuple[str, int, int]
"""media_id, number of the frame, number of the face in its frame."""
COLUMNS = ("identity", "centroid", "network", "exemplars")  # of the table of identities, as far as they are read


@dataclass(frozen=True, kw_only=True)
class KnownIdentities:
    """Identities with numbers, from earlier runs into the output before those of another output."""

    numbers: Ints  # g
    centroids: Vectors  # g d; zeros for an identity of another network
    stored: Sequence[tuple[Sequence[float], str | None]]  # g; centroid and network as they were stored
    faces: Mapping[FaceKey, int]  # example faces, to positions in `numbers`; of the output, by another network

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """True for identities of the same network (g)."""
        return np.asarray(self.centroids.any(axis=1), np.bool_)

    @classmethod
    def from_tables(cls, own: pa.Table, other: pa.Table, length: int, network: str | None) -> "KnownIdentities":
        """Read two tables of identities.

        Args:
            own: of earlier runs into the output; these numbers win.
            other: of another output; an identity whose number is in `own` is left out.
            length: d.
            network: that made the embeddings; None: unknown.

        Raises:
            ValueError: the identities of the other output are of another network.
        """
        rows = _read_by_number(own)
        taken = {row["identity"] for row in rows}
        more = [row for row in _read_by_number(other) if row["identity"] not in taken]
        if more and not any(_is_comparable(row, length, network) for row in more):
            theirs, ours = (
                f"{n} numbers of {name or 'an unknown network'}" for n, name in (_get_kind(more[0]), (length, network))
            )
            raise ValueError(f"embeddings of the known identities have {theirs}, those of the faces {ours}")
        fits = [_is_comparable(row, length, network) for row in (*rows, *more)]
        examples = [(i, face) for i, row in enumerate(rows) for face in row["exemplars"] or () if not fits[i]]
        faces = {(face["media_id"], face["frame_index"], face["face_index"]): i for i, face in examples}
        rows += more
        centroids = [row["centroid"] if fit else [0.0] * length for row, fit in zip(rows, fits, strict=True)]
        return cls(
            numbers=np.array([row["identity"] for row in rows], np.int64),
            centroids=np.array(centroids, np.float64).reshape(-1, length),
            stored=[(row["centroid"], row["network"]) for row in rows],
            faces=faces,
        )


def _read_by_number(table: pa.Table) -> list[dict[str, Any]]:
    """Return a row for each number; a killed run may have left two files of one table, or a file without values."""
    rows = [row for row in table.select(COLUMNS).to_pylist() if row["identity"] is not None and row["centroid"]]
    return list({row["identity"]: row for row in reversed(rows)}.values())[::-1]


def _get_kind(row: Mapping[str, Any]) -> tuple[int, str | None]:
    return len(row["centroid"]), row["network"]


def _is_comparable(row: Mapping[str, Any], length: int, network: str | None) -> bool:
    """Return whether a known identity's centroid and faces come from one network, as far as is known."""
    numbers, own = _get_kind(row)
    return numbers == length and (own is None or network is None or own == network)
