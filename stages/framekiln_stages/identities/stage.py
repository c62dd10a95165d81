"""Identities: the faces of a whole run, grouped into people by HDBSCAN over their embeddings.

    faces that pass the filters  ->  exact spanning tree  ->  HDBSCAN  ->  known people  ->  single faces  ->  numbers

A single face lies outside all clusters, such as one new photo. It gets the identity of the nearest centroid if that is
near and no other is about as near. The centroid may belong to a known person without a cluster here.

The distance is 1 - cosine. Every measure that rises with the angle gives the same spanning tree. Measures differ in the
density, one over distance, by which HDBSCAN weighs clusters; with this one a setting is a cosine. Rows are sorted
first, so that an identity's number depends on the faces alone.

Shapes: n faces of the run, c of them clustered, g identities, d numbers of an embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa

from framekiln.contract import FRAME_INDEX, MEDIA_ID, Drawing, Placement, Scope, Stage, Table, Weights
from framekiln.contract.limits import Count, Limits, Natural, Proportion
from framekiln.contract.store_url import StoreUrl, below
from framekiln.contract.user_files import expand
from framekiln_stages.identities.evidence import Evidence
from framekiln_stages.identities.face_table import FaceTable, Ints
from framekiln_stages.identities.hdbscan import FARTHEST, NOISE, Clusters, hdbscan_clusters, spanning_tree
from framekiln_stages.identities.known import KnownIdentities, Rule
from framekiln_stages.identities.labels import Labels
from framekiln_stages.identities.named import NOBODY, NamedFaces, read_names
from framekiln_stages.identities.tables import FACES, PEOPLE, faces_table, summary_table
from framekiln_stages.shared.masks import box_edges, box_label

SUMMARY = "identity_summary"
Cosine = Annotated[float, Limits(ge=0, lt=1)]


class Identities(Stage):
    """An identity for each face, or none; and each identity's size, centroid and example faces."""

    finds = ((SUMMARY, "person", "people"),)
    version = 10  # 10: copies by thumbnails; 9: names; 8: lost detail; 6, 7: coverings, halves, pairs once in a frame
    scope = Scope.DATASET
    devices = ("cpu", "cuda")
    reads_urls = True
    inputs = (MEDIA_ID.name, FRAME_INDEX.name, "height", "width", "faces")
    tables: ClassVar[dict[str, Table]] = {
        "identities": Table(
            schema=FACES, keys=("media_id", "frame_index", "face_index"), description="one row per face"
        ),
        SUMMARY: Table(schema=PEOPLE, keys=("identity",), description="one row per identity, the largest first"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Filters and thresholds. Cosines depend on the recognition network; defaults suit MobileFaceNet.

        Raises ValueError: `strangers` is above `one_person`, or the file of names is wrong.
        """

        # Fewest different pictures of an identity. Frames of a film are different, copies are not. Two suffice if their
        # network was measured and nothing else is near.
        min_cluster_size: Annotated[int, Limits(ge=2)] = 2
        # HDBSCAN's; with 3, the third neighbour of a person with three faces would be a stranger.
        min_samples: Count = 2
        # Cosine above which an identity is not split, less the part shared by faces of that sharpness. None: split by
        # density alone. A clip's frames are far denser than two photos, and would become people of their own: on every
        # second frame of six clips ARI 0.88, with this setting 1.
        one_person: Cosine | None = 0.5
        # Cosine below which faces are never joined. None: density decides, and may attach a stranger to an identity.
        strangers: Cosine | None = 0.4
        # Least probability that a face outside the clusters is the most similar person, and that two photos show one
        # person. On 233 held-out people no stranger reached it (docs/measuring/accuracy.md).
        probability: Proportion = 0.95
        # Replaces `probability` for networks that were not measured: a face that passes `min_quality` needs this cosine
        # to the centroid, and a lead of `margin` over any other. With `assign: null` no face is assigned.
        assign: Cosine | None = 0.45
        margin: Cosine = 0.1  # see `assign`
        # Faces below these three limits, covered faces and faces without detail form no identity. They can be assigned.
        min_score: Cosine = 0.0  # least score of the detector; `faces` has its own limit
        # Least `quality` of `faces`: portraits and speakers have 0.5 and more, a face in profile 0.
        min_quality: Cosine = 0.1
        # Least side in px at full size. A face of 12 px has a cosine of 0.32 with its portrait, one of 40 px 0.84.
        min_side: Natural = 24
        exemplars: Count = 8  # example faces of each identity: a row of a contact sheet
        # Identities keep their numbers in the output. False: each run numbers them anew.
        keep_numbers: bool = True
        # For people no longer in any file, keep only the number, without the centroid that recognises them.
        forget_absent: bool = False
        known: str | None = None  # another output (folder or URL); its identities keep their numbers too
        # A Parquet or CSV file of faces named by a person: media_id, frame_index, face_index, name.
        named: str | None = None
        recognise: Cosine = 0.6  # least cosine of two centroids; higher than for faces, since centroids vary less

        def __post_init__(self) -> None:
            if self.one_person is not None and self.strangers is not None and self.strangers > self.one_person:
                raise ValueError(f"strangers must be at most one_person, {self.one_person}, not {self.strangers}")
            if self.named is not None and (path := expand(self.named)).is_dir():
                raise ValueError(f"{self.named!r} is a folder, not a file of names")
            if self.named is not None and path.is_file():
                read_names(path)  # a wrong file is rejected before tables are replaced

        @property
        def least(self) -> int:
            """The fewest different pictures of an identity that is no pair."""
            return max(3, self.min_cluster_size)

        @property
        def rule(self) -> Rule:
            """The least evidence for giving a single face an identity."""
            return Rule(probability=self.probability, cosine=self.assign, margin=self.margin, quality=self.min_quality)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The identities of earlier runs in the output, unless numbers start anew."""
        return (SUMMARY,) if self.config.keep_numbers else ()

    @property
    def files(self) -> tuple[str, ...]:
        known, named = self.config.known, self.config.named
        return (*([] if known is None else [_get_summary_path(known)]), *([] if named is None else [named]))

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002 - it has none
        """Set the device of the matrix products, and read the file of names.

        Raises ValueError: a column is missing, or a face has two names. Raises FileNotFoundError: there is no file.
        """
        self._device = placement.device
        self._names = {} if self.config.named is None else read_names(expand(self.config.named))

    def __call__(self, batch: pa.Table, kept: Mapping[str, pa.Table] | None = None) -> dict[str, pa.Table]:
        """Return both tables for the whole run.

        `batch`: the rows of the run. `kept`: the identities of the output's last run; None: no identities.
        Raises ValueError: the known identities come from another network.
        """
        with self.phase("preprocess"):
            faces, config = FaceTable.from_rows(batch), self.config
            own = kept[SUMMARY] if kept else PEOPLE.empty_table()
            known = KnownIdentities.from_tables(own, self._read_other(), faces.vectors.shape[1], faces.network)
            evidence, named = Evidence(faces), NamedFaces.find(faces, self._names)
            chosen = np.flatnonzero(
                (faces.scores >= config.min_score)
                & (faces.qualities >= config.min_quality)
                & (faces.sides >= config.min_side)
                & faces.vectors.any(axis=1)
                & ~(faces.covered | evidence.lost)
                & (named.of_face != NOBODY)
            )
        with self.phase("infer"):
            clusters = self._find_clusters(chosen, evidence)
        with self.phase("postprocess"):
            clustered = clusters.labels >= 0
            labels = Labels(evidence, config.exemplars)
            members, of_member = chosen[clustered], clusters.labels[clustered]
            people, taken = named.divide(faces, members, of_member)
            labels.name(people, named.names, config.least)
            labels.form(members[~taken], of_member[~taken], config.least)
            singles = np.flatnonzero(faces.vectors.any(axis=1) & (named.of_face != NOBODY))
            candidates = chosen if config.min_cluster_size < config.least else chosen[:0]
            labels.settle(known, singles, candidates, config.rule, config.recognise)
            return {
                "identities": faces_table(evidence, chosen, clusters, labels),
                SUMMARY: summary_table(faces, labels, known, forget=config.forget_absent),
            }

    def _find_clusters(self, chosen: Ints, evidence: Evidence) -> Clusters:
        config, count = self.config, len(chosen)
        if count < config.least:
            return Clusters(labels=np.full(count, NOISE), probabilities=np.zeros(count), outliers=np.zeros(count))
        shared = evidence.shared[chosen] if evidence.probable else None
        tree = spanning_tree(evidence.faces.vectors[chosen], config.min_samples, self._device, shared)
        least = evidence.least_excess(count)
        epsilon = 0.0 if config.one_person is None else 1 - max(config.one_person, least)
        max_distance = FARTHEST if config.strangers is None else 1 - max(config.strangers, least)
        return hdbscan_clusters(tree, config.least, epsilon=epsilon, max_distance=max_distance)

    def _read_other(self) -> pa.Table:
        if self.config.known is None:
            return PEOPLE.empty_table()
        import pyarrow.dataset as ds  # imports pandas, which would cost each command a third of a second

        place = _get_summary_path(self.config.known)
        return ds.dataset(StoreUrl.parse(place).uri if "://" in place else place, format="parquet").to_table()

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Draw each face's box with its identity's number; None without faces."""
        boxes = [face["box"] for face in row.get("faces") or ()]
        rows = [identity for identity in row.get("identities") or () if identity["face_index"] < len(boxes)]
        if not rows:
            return None
        shown = [boxes[identity["face_index"]] for identity in rows]
        names = [
            row["name"] or ("no identity" if row["identity"] is None else f"person {row['identity']}") for row in rows
        ]
        return Drawing(
            lines=[edge for box in shown for edge in box_edges(box)],
            labels=[box_label(box, name) for box, name in zip(shown, names, strict=True)],
            caption=", ".join(names),
        )

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:
        """Return the adjusted Rand index of the faces' identities in both runs (Hubert and Arabie 1985).

        A face without identity is a group by itself. The numbers of identities do not matter.
        """
        if table != "identities":
            return {"drift": 0.0}  # identities' numbers are arbitrary in each run
        from sklearn.metrics import adjusted_rand_score

        labels = [np.array([-1 if x is None else x for x in run["identity"].to_pylist()]) for run in (a, b)]
        singles = -2 - np.arange(len(a))
        groups = [np.where(numbers < 0, singles, numbers) for numbers in labels]
        score = float(adjusted_rand_score(*groups)) if len(a) else 1.0
        return {"adjusted_rand": score, "drift": float(np.clip(1 - score, 0, 1))}


def _get_summary_path(output: str) -> str:
    """Return the path of an output's table of identities; the output is a folder or a URL."""
    return below(output if "://" in output else str(expand(output)), SUMMARY)
