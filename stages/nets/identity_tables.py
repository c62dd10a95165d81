"""The tables of identities: a row for each face, and one for each person with the faces that show them best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.columns import FRAME_INDEX, MEDIA_ID, field
from stages.nets.face_rows import FaceRows, Ints
from stages.nets.members import Vectors
from stages.nets.people import Known, People

if TYPE_CHECKING:
    from stages.nets.clusters import Clusters

_FACE_INDEX = field("face_index", pa.int32(), "number of the face in its frame, from 0", nullable=False)
_EXEMPLAR = pa.struct(
    [
        ("media_id", pa.string()),
        ("frame_index", pa.int32()),
        ("face_index", pa.int32()),
        ("similarity", pa.float32()),  # cosine to the medoid
        ("crop", pa.large_binary()),  # JPEG; null where the faces came without
    ]
)
_PICTURES = {
    "description": "its range of looks: the medoid, then each time the face least like those before",
    "pictures": "crop",  # a report shows this member of each item as a picture
    "no_pictures": "No picture of a face was kept; --set faces.keep_crops=true keeps them for this sheet.",
}
FACES = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        _FACE_INDEX,
        field("identity", pa.int32(), "number of the identity; null for noise and for faces that were left out"),
        field("probability", pa.float32(), "how surely HDBSCAN puts the face into its cluster, 0 to 1; 0 for noise"),
        field("outlier_score", pa.float32(), "GLOSH: 0 amid others, towards 1 far from its cluster"),
        field("similarity", pa.float32(), "cosine to the medoid of the identity"),
        field("clustered", pa.bool_(), "whether the face passed the filters and was shown to HDBSCAN", nullable=False),
        field("assigned", pa.bool_(), "whether the face was noise and got its identity by similarity", nullable=False),
    ]
)
PEOPLE = pa.schema(
    [
        field("identity", pa.int32(), "number of the identity", nullable=False),
        field("size", pa.int64(), "its faces; 0: known from an earlier output and not met", nullable=False),
        field("assigned", pa.int64(), "those that it got by a second chance", nullable=False),
        field("files", pa.int64(), "files in which it appears", nullable=False),
        field("cohesion", pa.float32(), "mean cosine of the medoid to the other faces of the cluster"),
        field("recognised", pa.bool_(), "whether the number is that of an earlier output", nullable=False),
        field("media_id", pa.string(), "file of the medoid, the face that is most like the others"),
        field("frame_index", pa.int32(), "frame of the medoid"),
        field("face_index", pa.int32(), "number of the medoid in its frame"),
        pa.field("exemplars", pa.list_(_EXEMPLAR), metadata=_PICTURES),
        field("centroid", pa.list_(pa.float32()), "mean direction of the cluster's embeddings", nullable=False),
    ]
)


def summary_table(faces: FaceRows, people: People, known: Known) -> pa.Table:
    """One row an identity, the largest first; known ones that nobody was recognised as come last."""
    rows = [_row(faces, people, place, own) for place, own in enumerate(people.faces_of())]
    met = set(people.numbers.tolist())
    rows += [
        _absent(number, centroid)
        for number, centroid in zip(known.numbers.tolist(), known.centroids, strict=True)
        if number not in met
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (-row["size"], row["identity"])), schema=PEOPLE)


def _row(faces: FaceRows, people: People, place: int, own: Ints) -> dict[str, Any]:
    one = people.portraits[place]
    return {
        "identity": int(people.numbers[place]),
        "size": len(own),
        "assigned": int(people.assigned[own].sum()),
        "files": len(faces.media_ids.take(pa.array(own)).unique()),
        "cohesion": one.cohesion,
        "recognised": bool(people.recognised[place]),
        **_key(faces, one.medoid),
        "exemplars": [_exemplar(faces, face, one.medoid) for face in one.exemplars],
        "centroid": one.centroid,
    }


def _key(faces: FaceRows, face: int) -> dict[str, Any]:
    media_id = faces.media_ids[face].as_py()
    return {"media_id": media_id, "frame_index": int(faces.frames[face]), "face_index": int(faces.places[face])}


def _exemplar(faces: FaceRows, face: int, medoid: int) -> dict[str, Any]:
    cosine = float(faces.vectors[face] @ faces.vectors[medoid])
    return {**_key(faces, face), "similarity": cosine, "crop": faces.crop(face)}


def _absent(number: int, centroid: Vectors) -> dict[str, Any]:
    empty = dict.fromkeys(("cohesion", "media_id", "frame_index", "face_index"))
    return {
        **empty,
        "identity": number,
        "size": 0,
        "assigned": 0,
        "files": 0,
        "recognised": False,
        "exemplars": [],
        "centroid": centroid,
    }


def faces_table(faces: FaceRows, chosen: Ints, found: Clusters, people: People) -> pa.Table:
    """One row a face.

    Args:
        faces: n of them, in order.
        chosen: those that HDBSCAN was shown, c.
        found: what it said of these.
        people: who each face is.
    """
    count = len(faces)
    left_out = np.ones(count, bool)
    left_out[chosen] = False
    nobody = people.of_face < 0
    probability, outlier = np.zeros(count, np.float32), np.zeros(count, np.float32)
    probability[chosen], outlier[chosen] = found.probabilities, found.outliers
    numbers = people.numbers[people.of_face] if len(people.numbers) else people.of_face
    columns = [
        faces.media_ids,
        pa.array(faces.frames, pa.int32()),
        pa.array(faces.places, pa.int32()),
        pa.array(numbers, pa.int32(), mask=nobody),
        pa.array(probability, mask=left_out),
        pa.array(outlier, mask=left_out),
        pa.array(people.similarities(), pa.float32(), mask=nobody),
        pa.array(~left_out),
        pa.array(people.assigned),
    ]
    return pa.table(columns, schema=FACES)
