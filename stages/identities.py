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

from pipeline.columns import FRAME_INDEX, MEDIA_ID
from pipeline.stage import Drawing, Placement, Scope, Stage, Table, Weights
from stages.nets.drawings import label_of
from stages.nets.face_rows import FaceRows, Singles
from stages.nets.identity_tables import FACES, PEOPLE, faces_table, summary_table
from stages.nets.instances import outline
from stages.nets.people import Known, People

if TYPE_CHECKING:
    from stages.nets.clusters import Clusters

SUMMARY = "identity_summary"


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
                schema=FACES, keys=("media_id", "frame_index", "face_index"), description="one row a face"
            ),
            SUMMARY: Table(schema=PEOPLE, keys=("identity",), description="one row an identity, the largest first"),
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
                "identities": faces_table(faces, chosen, found, people),
                SUMMARY: summary_table(faces, people, known),
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
