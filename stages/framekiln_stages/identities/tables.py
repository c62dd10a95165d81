"""The tables of identities: a row per face, and one per person with its best example faces."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import FRAME_INDEX, MEDIA_ID, annotates, field
from framekiln_stages.identities.evidence import Evidence
from framekiln_stages.identities.face_table import FaceTable, Ints
from framekiln_stages.identities.hdbscan import Clusters
from framekiln_stages.identities.known import KnownIdentities
from framekiln_stages.identities.labels import Labels
from framekiln_stages.shared.tables import UNIT_LENGTH

_FACE_INDEX = field("face_index", pa.int32(), "number of the face in its frame, from 0", nullable=False)
_EXEMPLAR = pa.struct(
    [
        ("media_id", pa.string()),
        ("frame_index", pa.int32()),
        ("face_index", pa.int32()),
        ("similarity", pa.float32()),  # cosine to the medoid
        ("crop", pa.large_binary()),  # JPEG; null if `faces` has no crops
    ]
)
_PICTURES = {
    "description": "the most typical face (medoid), then always the one least similar to all before",
    "pictures": "crop",  # the report shows this member of each item as an image
    "no_pictures": "The run has no face crops; --set faces.keep_crops=true writes them.",
}
ALONE, BETWEEN, VOID, TWICE, COPIES = "alone", "between", "void", "twice", "copies"
SMALL, BLURRED, TURNED, COVERED, POOR = "small", "blurred", "turned", "covered", "poor"
_REASONS = (
    "why there is no identity: alone (like nobody else here), between (like two people), twice (its person is another "
    "face of the frame), copies (of one picture or of one moment, and like no other), void (no "
    "embedding); or it cannot be told, as the face is small, blurred (or noisy), covered, turned away or poor (another "
    "of the filters); null with an identity"
)
_NAME = "the person's name in the file of the setting `named`; null without one"
_TALLY = {  # wording of the report's face counts
    "": "faces have no person",
    ALONE: "like nobody else",
    BETWEEN: "like two people",
    TWICE: "beside their person in one frame",
    COPIES: "copies of one picture, or of one moment",
    SMALL: "too small to tell",
    BLURRED: "too blurred or noisy to tell",
    TURNED: "turned away",
    COVERED: "whose eyes or mouth seem covered",
    POOR: "left out by the filters",
    VOID: "without an embedding",
}
FACES = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        annotates(_FACE_INDEX, of="faces", identity="identity"),
        field("identity", pa.int32(), "number of the identity; null for a reason"),
        field("name", pa.string(), _NAME),
        pa.field("reason", pa.string(), metadata={"description": _REASONS, "tally": json.dumps(_TALLY)}),
        field(
            "probability",
            pa.float32(),
            "probability of being the identity's person, by cosines to all people here, sharpness and strength of the "
            "embedding (docs/measuring/accuracy.md); null without an identity, and for a network that was not measured",
        ),
        field("membership", pa.float32(), "HDBSCAN's strength of membership in the cluster, 0 to 1; 0 for noise"),
        field("outlier_score", pa.float32(), "GLOSH outlier score: 0 inside a cluster, towards 1 far away"),
        field("similarity", pa.float32(), "cosine to the centroid of the identity; no probability"),
        field("margin", pa.float32(), "lead over the cosine to any other identity; null without another"),
        field("clustered", pa.bool_(), "true if the face passed the filters and was clustered", nullable=False),
        field(
            "assigned",
            pa.bool_(),
            "true if the face is in no cluster and got its identity by similarity",
            nullable=False,
        ),
    ]
)
MEASURED = ("mobilefacenet",)
"""Recognition networks for which the thresholds of `Identities` were chosen and checked."""
SOFT = 20.0  # sharpness below which eyes have no contrast either, after a blur of 1 px
BLURRED_AT, HALF = 100.0, 0.5  # sharpness at which its factor of `quality` is a half
_MEASURED = (
    f"true if the default thresholds were measured with this network ({', '.join(MEASURED)}); else look at some people "
    "before you trust them, since cosines of another network may be higher or lower"
)
_SIZE = "number of its faces; 0 if known from an earlier run or another output, and absent here"
PEOPLE = pa.schema(
    [
        field("identity", pa.int32(), "number of the identity", nullable=False),
        field("name", pa.string(), _NAME),
        field("size", pa.int64(), _SIZE, nullable=False),
        field("assigned", pa.int64(), "number of its faces that are in no cluster", nullable=False),
        field("files", pa.int64(), "number of files in which it appears", nullable=False),
        field(
            "cohesion", pa.float32(), "mean cosine of the medoid to the other faces of the cluster; null without one"
        ),
        field("recognised", pa.bool_(), "true if an earlier run or another output gave the number", nullable=False),
        field("media_id", pa.string(), "file of the medoid, the face most similar to the others"),
        field("frame_index", pa.int32(), "frame of the medoid"),
        field("face_index", pa.int32(), "number of the medoid in its frame"),
        pa.field("exemplars", pa.list_(_EXEMPLAR), metadata=_PICTURES),
        field("network", pa.string(), "recognition network of the centroid; null if unknown"),
        field("measured", pa.bool_(), _MEASURED, nullable=False),
        field("shared", pa.float32(), "part of the cosine that an equally blurred stranger would have; 0 to 1"),
        field("strength", pa.float32(), "mean `strength` of the cluster's faces; null if `faces` has none"),
        field("several", pa.bool_(), "true if three different pictures and more show the cluster", nullable=False),
        field(
            "centroid",
            pa.list_(pa.float32()),
            f"mean direction of the cluster's embeddings, {UNIT_LENGTH}; without a cluster, as it was before; "
            "empty if forgotten",
            nullable=False,
        ),
    ]
)


def summary_table(faces: FaceTable, labels: Labels, known: KnownIdentities, *, forget: bool) -> pa.Table:
    """Return one row per identity, the largest first; known identities without faces come last.

    With `forget`, only their number stays.
    """
    rows = [_make_row(faces, labels, position, own) for position, own in enumerate(labels.faces_of())]
    present = set(labels.numbers.tolist())
    absent = dict.fromkeys(("size", "assigned", "files"), 0) | {"recognised": False, "exemplars": []}
    rows += [
        {**absent, "identity": number, "measured": stored["network"] in MEASURED and not forget, **stored}
        | (dict.fromkeys(stored) | {"several": False, "centroid": []} if forget else {})
        for number, stored in zip(known.numbers.tolist(), known.stored, strict=True)
        if number not in present
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (-row["size"], row["identity"])), schema=PEOPLE)


def _make_row(faces: FaceTable, labels: Labels, position: int, own: Ints) -> dict[str, Any]:
    summary = labels.summaries[position]
    medoid, strength = faces.vectors[summary.medoid], labels.groups[position].strength
    return {
        "identity": int(labels.numbers[position]),
        "name": labels.names[position],
        "size": len(own),
        "assigned": int(labels.assigned[own].sum()),
        "files": len(faces.media_ids.take(pa.array(own)).unique()),
        "cohesion": summary.cohesion,
        "recognised": bool(labels.recognised[position]),
        **_make_key(faces, summary.medoid),
        "exemplars": [
            {**_make_key(faces, face), "similarity": float(faces.vectors[face] @ medoid), "crop": faces.crop(face)}
            for face in summary.exemplars
        ],
        "network": faces.network,
        "measured": faces.network in MEASURED,
        "shared": labels.groups[position].shared,
        "strength": strength if np.isfinite(strength) else None,
        "several": labels.groups[position].several,
        "centroid": summary.centroid,
    }


def _make_key(faces: FaceTable, face: int) -> dict[str, Any]:
    media_id = faces.media_ids[face].as_py()
    return {"media_id": media_id, "frame_index": int(faces.frames[face]), "face_index": int(faces.positions[face])}


def faces_table(evidence: Evidence, chosen: Ints, clusters: Clusters, labels: Labels) -> pa.Table:
    """Return one row per face.

    `evidence`: n. `chosen`: c, the clustered faces. `clusters`: theirs. `labels`: the identity of each face.
    """
    faces, count = evidence.faces, len(evidence.faces)
    filtered = np.ones(count, bool)
    filtered[chosen] = False
    unknown = labels.of_face < 0
    membership, outlier = np.zeros(count, np.float32), np.zeros(count, np.float32)
    membership[chosen], outlier[chosen] = clusters.probabilities, clusters.outliers
    numbers = labels.numbers[labels.of_face] if len(labels.numbers) else labels.of_face
    margin = labels.similarity - labels.runner_up
    columns = [
        faces.media_ids,
        pa.array(faces.frames, pa.int32()),
        pa.array(faces.positions, pa.int32()),
        pa.array(numbers, pa.int32(), mask=unknown),
        pa.array([None if p < 0 else labels.names[p] for p in labels.of_face.tolist()], pa.string()),
        pa.array(_find_reasons(evidence, filtered, labels), pa.string(), mask=~unknown),
        pa.array(labels.probability, pa.float32(), mask=unknown | np.isnan(labels.probability)),
        pa.array(membership, mask=filtered),
        pa.array(outlier, mask=filtered),
        pa.array(labels.similarity, pa.float32(), mask=unknown),
        pa.array(margin, pa.float32(), mask=unknown | (labels.runner_up <= -1)),
        pa.array(~filtered),
        pa.array(labels.assigned),
    ]
    return pa.table(columns, schema=FACES)


def _find_reasons(evidence: Evidence, filtered: NDArray[np.bool_], labels: Labels) -> NDArray[np.object_]:
    faces = evidence.faces
    sharp = faces.sharpness / (faces.sharpness + BLURRED_AT)
    size = faces.qualities / np.maximum(faces.frontal * sharp, 1e-9)  # `quality` is the product of the three factors
    reasons = {
        VOID: ~faces.vectors.any(axis=1),
        TWICE: labels.twice,
        COPIES: labels.copies,
        BETWEEN: labels.between,
        ALONE: ~filtered,
        TURNED: faces.frontal < HALF,
        SMALL: size < HALF,  # an enlarged face is never sharp
    }
    unclear = (sharp < HALF) | evidence.lost
    soft = np.select([faces.sharpness < SOFT, faces.covered, unclear], [BLURRED, COVERED, BLURRED], POOR)
    return np.select(list(reasons.values()), list(reasons), soft).astype(object)
