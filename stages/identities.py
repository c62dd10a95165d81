"""Who appears where: the faces of a whole run, grouped into people by HDBSCAN over their embeddings.

    faces that pass the filters  ->  exact spanning tree  ->  HDBSCAN  ->  a second chance for noise  ->  names

Distance is 1 - cosine. The spanning tree is the same for every measure that rises with the angle; what differs is the
density, one over distance, that HDBSCAN weighs clusters by, and this measure is the one in which a setting is a cosine.
Rows are put in order first, so an identity's number depends on the faces alone.

Shapes: n faces of the run, c of them clustered, g identities, d numbers of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from pipeline.columns import FRAME_INDEX, MEDIA_ID, field
from pipeline.stage import Drawing, Placement, Scope, Stage, Table, Weights
from stages.nets.drawings import label_of
from stages.nets.face_rows import FaceRows, Ints, Singles
from stages.nets.instances import outline
from stages.nets.members import Vectors
from stages.nets.people import Known, People

if TYPE_CHECKING:
    from stages.nets.clusters import Clusters

SUMMARY = "identity_summary"

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


class Identities(Stage):
    """An identity for each face, or none; and for each identity its size, its middle and the faces that show it."""

    scope = Scope.DATASET
    placement = Placement(cpus=1.0)  # so that a small machine has room for it; a profile may give it all cores
    devices = ("cpu", "cuda")
    reads_urls = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """What makes an identity. Cosines are those of the recognition network; defaults suit MobileFaceNet.

        Raises:
            ValueError: a number that makes no sense.
        """

        min_cluster_size: int = 3  # the least that density can tell from a pair that is alike by chance
        min_samples: int = 2  # with 3, the third neighbour of a person with three faces would be a stranger
        # Cosine above which an identity is not split; None to split by density alone, which takes the frames of a clip,
        # far denser than two photos, for people of their own: on every second frame of six clips ARI .88, with this 1.
        # One person's faces were alike from .61 up.
        one_person: float | None = 0.5
        # Cosine below which nothing joins; None to leave that to density, by which one stranger may hang on an
        # identity. Two people's faces were alike up to .31.
        strangers: float | None = 0.4
        assign: float | None = 0.45  # cosine to a medoid from which it takes noise; MobileFaceNet's cut is .40 to .45
        min_score: float = 0.0  # of the detector; `faces` has a threshold of its own
        min_quality: float = 0.1  # of `faces`, where portraits and speakers have .5 and more; a profile has 0
        min_side: int = 24  # px at full size; a face of 12 px has a cosine of .32 with its own portrait, of 40 px .84
        exemplars: int = 8  # kept of each identity: a row of a contact sheet
        known: str | None = None  # an earlier output (folder or URL), whose identities keep their numbers
        recognise: float = 0.6  # cosine of two centroids; they are steadier than faces, so nearer than faces need be

        def __post_init__(self) -> None:
            least = {"min_cluster_size": 2, "min_samples": 1, "min_side": 0, "exemplars": 1}
            for name, low in least.items():
                if getattr(self, name) < low:
                    raise ValueError(f"{name} must be at least {low}, not {getattr(self, name)}")
            for name in ("one_person", "strangers", "assign", "recognise", "min_score", "min_quality"):
                value = getattr(self, name)
                if value is not None and not 0 <= value < 1:
                    raise ValueError(f"{name} must be at least 0 and below 1, not {value}")
            if self.one_person is not None and self.strangers is not None and self.strangers > self.one_person:
                raise ValueError(f"strangers must be at most one_person, {self.one_person}, not {self.strangers}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Faces, with the size of their pictures."""
        return (MEDIA_ID.name, FRAME_INDEX.name, "height", "width", "faces")

    @property
    def tables(self) -> dict[str, Table]:
        """`identities`, one row a face, and `identity_summary`, one row an identity."""
        return {
            "identities": Table(
                schema=_FACES, keys=("media_id", "frame_index", "face_index"), description="one row a face"
            ),
            SUMMARY: Table(schema=_PEOPLE, keys=("identity",), description="one row an identity, the largest first"),
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The earlier run's identities."""
        return () if self.config.known is None else (_summary_of(self.config.known),)

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002 - it has none
        """Remember the device of the matrix products."""
        self._device = placement.device

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:
        """Of faces in both, how far they are grouped alike, whatever the groups' numbers: the adjusted Rand index.

        Hubert and Arabie 1985. A face of no identity is a group by itself.
        """
        if table != "identities":
            return {"drift": 0.0}  # numbers of identities mean nothing from run to run
        from sklearn.metrics import adjusted_rand_score

        labels = [np.array([-1 if x is None else x for x in one["identity"].to_pylist()]) for one in (a, b)]
        alone = -2 - np.arange(len(a))
        score = float(adjusted_rand_score(*(np.where(one < 0, alone, one) for one in labels))) if len(a) else 1.0
        return {"adjusted_rand": score, "drift": float(np.clip(1 - score, 0, 1))}

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """Both tables of the whole run.

        Raises:
            ValueError: the known identities are of another network.
        """
        with self.phase("preprocess"):
            faces, config = FaceRows.of(batch), self.config
            known = self._known(faces.vectors.shape[1])
            chosen = np.flatnonzero(
                (faces.scores >= config.min_score)
                & (faces.qualities >= config.min_quality)
                & (faces.sides >= config.min_side)
                & faces.vectors.any(axis=1)
            )
        with self.phase("infer"):
            found = self._clusters(faces.vectors[chosen])
        with self.phase("postprocess"):
            inside = found.labels >= 0
            people = People(faces, chosen[inside], found.labels[inside], config.exemplars)
            if config.assign is not None:
                people.give_second_chance(chosen[~inside], config.assign)
            people.give_numbers(known, config.recognise)
            return {
                "identities": _faces_table(faces, chosen, found, people),
                SUMMARY: _summary(faces, people, known),
            }

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Each face's box with the number of its identity; None without faces."""
        boxes = [face["box"] for face in row.get("faces") or ()]
        found = [one for one in row.get("identities") or () if one["face_index"] < len(boxes)]
        if not found:
            return None
        shown = [(boxes[one["face_index"]], _called(one["identity"])) for one in found]
        return Drawing(
            lines=[line for box, _ in shown for line in outline(**box)],
            labels=[label_of(box, name) for box, name in shown],
            caption=", ".join(name for _, name in shown),
        )

    def _clusters(self, vectors: Singles) -> Clusters:
        from stages.nets.clusters import FARTHEST, NOISE, Clusters, clusters
        from stages.nets.spanning import spanning_tree

        config, count = self.config, len(vectors)
        if count < config.min_cluster_size:
            return Clusters(labels=np.full(count, NOISE), probabilities=np.zeros(count), outliers=np.zeros(count))
        tree = spanning_tree(vectors, config.min_samples, self._device)
        one_within = 0.0 if config.one_person is None else 1 - config.one_person
        apart = FARTHEST if config.strangers is None else 1 - config.strangers
        return clusters(tree, config.min_cluster_size, one_within=one_within, apart=apart)

    def _known(self, length: int) -> Known:
        if self.config.known is None:
            return Known(numbers=np.empty(0, np.int64), centroids=np.empty((0, length)))
        source = _summary_of(self.config.known)
        read = ds.dataset(source, format="parquet").to_table(columns=["identity", "centroid"])
        rows = {row["identity"]: row["centroid"] for row in read.to_pylist()}
        wrong = {len(centroid) for centroid in rows.values()} - {length}
        if wrong:
            raise ValueError(f"the identities in {source!r} are of {wrong.pop()} numbers, the faces of {length}")
        return Known(
            numbers=np.array(list(rows), np.int64), centroids=np.array(list(rows.values())).reshape(-1, length)
        )


def _called(identity: int | None) -> str:
    return "no identity" if identity is None else f"person {identity}"


def _summary_of(output: str) -> str:
    """Where an output keeps its identities; the output is a folder or a URL."""
    return f"{output.rstrip('/')}/{SUMMARY}" if "://" in output else str(Path(output).expanduser() / SUMMARY)


def _summary(faces: FaceRows, people: People, known: Known) -> pa.Table:
    """One row an identity, the largest first; known ones that nobody was recognised as come last."""
    rows = [_row(faces, people, place, own) for place, own in enumerate(people.faces_of())]
    met = set(people.numbers.tolist())
    rows += [
        _absent(number, centroid)
        for number, centroid in zip(known.numbers.tolist(), known.centroids, strict=True)
        if number not in met
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (-row["size"], row["identity"])), schema=_PEOPLE)


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


def _faces_table(faces: FaceRows, chosen: Ints, found: Clusters, people: People) -> pa.Table:
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
    return pa.table(columns, schema=_FACES)


_FACES = pa.schema(
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
_PEOPLE = pa.schema(
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
