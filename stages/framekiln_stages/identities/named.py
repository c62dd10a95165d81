"""Faces named by a person: one name is one person, two names are two, whatever their embeddings say.

Shapes: n faces of the run, c of them in clusters, m names, d numbers of an embedding.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import FaceTable, Ints
from framekiln_stages.identities.pairs import keep_once_per_frame

_TYPES = {"media_id": pa.string(), "frame_index": pa.int64(), "face_index": pa.int64(), "name": pa.string()}
NOT_NAMED, NOBODY = -1, -2


def read_names(path: Path) -> dict[tuple[str, int, int], str | None]:
    """Return the name of each face in a Parquet or CSV file; None: the face is nobody.

    Raises ValueError: the columns media_id, frame_index, face_index and name are missing or have wrong values, or a
    face has two names.
    """
    if path.suffix.lower() in (".parquet", ".pq"):
        from pyarrow import parquet

        table = parquet.read_table(path)
    else:
        from pyarrow import csv

        table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=dict(_TYPES)))
    if missing := _TYPES.keys() - set(table.column_names):
        raise ValueError(f"{str(path)!r} lacks the column {', '.join(sorted(missing))}")
    *keys, names = (table[name].cast(kind).to_pylist() for name, kind in _TYPES.items())
    faces = list(zip(*keys, strict=True))
    if wrong := [face for face in faces if not face[0] or None in face or min(face[1:]) < 0]:
        raise ValueError(f"{str(path)!r} has a row without a face: {wrong[0]}")
    if len(set(faces)) < len(faces):
        raise ValueError(f"{str(path)!r} gives a face two names")
    return {face: (name or "").strip() or None for face, name in zip(faces, names, strict=True)}


@dataclass(frozen=True, kw_only=True)
class NamedFaces:
    """The faces of a run that have a name."""

    names: tuple[str, ...]  # m
    of_face: Ints  # n; index of the name, `NOT_NAMED` or `NOBODY`

    @classmethod
    def find(cls, faces: FaceTable, given: dict[tuple[str, int, int], str | None]) -> "NamedFaces":
        """Find the faces of a file of names; absent faces are left out."""
        names = tuple(sorted({name for name in given.values() if name is not None}))
        places = {name: number for number, name in enumerate(names)}
        numbers = {key: NOBODY if name is None else places[name] for key, name in given.items()}
        of_face = np.full(len(faces), NOT_NAMED)
        for face, number in faces.find(numbers).items():
            of_face[face] = number
        return cls(names=names, of_face=of_face)

    def divide(self, faces: FaceTable, members: Ints, clusters: Ints) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
        """Return the faces of each name, and which clustered faces (c) these took.

        A name takes its faces. If at least half of a cluster is named, its other faces go to the nearest of these
        names, unless a frame would show the person twice.
        """
        of_face = self.of_face.copy()
        for cluster in np.unique(clusters[self.of_face[members] >= 0]):
            own = members[clusters == cluster]
            named, others = own[self.of_face[own] >= 0], own[self.of_face[own] == NOT_NAMED]
            if len(named) >= len(others):
                present = np.unique(self.of_face[named])
                sums = np.stack([faces.vectors[named[self.of_face[named] == name]].sum(axis=0) for name in present])
                sums /= np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
                of_face[others] = present[(faces.vectors[others] @ sums.T).argmax(axis=1)]
        both = np.flatnonzero(of_face >= 0)
        likeness = np.where(self.of_face[both] >= 0, np.inf, 0.0)
        twice = both[~keep_once_per_frame(faces, both, of_face[both], likeness)]
        of_face[twice] = self.of_face[twice]  # both stay if both are named
        taken = (of_face >= 0) | (self.of_face == NOBODY)
        found = {name: np.flatnonzero(of_face == number) for number, name in enumerate(self.names)}
        return {name: own for name, own in found.items() if len(own)}, taken[members]
