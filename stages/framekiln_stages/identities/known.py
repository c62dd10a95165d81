"""Identities of earlier runs, and faces compared with people: who is nearest, and whether that suffices.

Shapes: n faces, m of them members of a cluster, g people, d numbers of an embedding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.identities.evidence import Evidence, Floats, Group
from framekiln_stages.identities.face_table import Ints

Vectors = NDArray[np.floating]
BLOCK = 4096  # vectors compared at once


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    """Centroid, medoid and exemplars of a cluster."""

    centroid: Vectors  # d; direction of the sum, of length 1
    medoid: int  # the member with the largest mean cosine to all
    cohesion: float | None  # mean cosine of the medoid with the other members; 1 for a single member; None: no cluster
    exemplars: tuple[int, ...]  # the medoid, then always the member farthest from all before


def summarize(vectors: Vectors, members: NDArray[np.int64], exemplars: int) -> ClusterSummary:
    """Summarize a cluster; of equal members, the first is its medoid.

    The mean cosine of a member to all is its product with their sum. The medoid is therefore exact without m x m
    cosines.

    `vectors`: n d. `members`: m at least 1, numbers of vectors, ascending. `exemplars`: at most this many.
    """
    own = vectors[members].astype(np.float64)
    total = own.sum(axis=0)
    sums = own @ total
    first = int(np.argmax(sums >= sums.max() - 1e-9))
    length = np.linalg.norm(total)
    chosen, nearest = [first], own @ own[first]  # farthest first (Gonzalez 1985), which shows wrong members early
    while len(chosen) < min(exemplars, len(own)):
        nearest[chosen[-1]] = np.inf
        chosen.append(int(np.argmax(nearest <= nearest.min() + 1e-9)))
        nearest = np.maximum(nearest, own @ own[chosen[-1]])
    return ClusterSummary(
        centroid=total / length if length > 1e-9 else own[first],
        medoid=int(members[first]),
        cohesion=float((sums[first] - 1) / (len(members) - 1)) if len(members) > 1 else 1.0,
        exemplars=tuple(int(members[i]) for i in chosen),
    )


def mutual_nearest(a: Vectors, b: Vectors, min_cosine: float) -> list[tuple[int, int]]:
    """Return pairs of rows of a and b that are each other's nearest, with at least `min_cosine`."""
    if not len(a) or not len(b):
        return []
    cosines = a @ b.T
    forth, back = cosines.argmax(axis=1), cosines.argmax(axis=0)
    return [(i, int(j)) for i, j in enumerate(forth) if back[j] == i and cosines[i, j] >= min_cosine]


def two_nearest(vectors: Vectors, targets: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the two nearest of g targets for each of n vectors, with their cosines (n 2 each), by blocks.

    A missing target is -1, with a cosine of -1.
    """
    nearest, cosines = np.full((len(vectors), 2), -1), np.full((len(vectors), 2), -1.0)
    for start in range(0, len(vectors) if len(targets) else 0, BLOCK):
        block = slice(start, start + BLOCK)
        products = vectors[block].astype(np.float64) @ targets.T
        rows = np.arange(len(products))
        for place in range(min(2, len(targets))):
            best = products.argmax(axis=1)
            nearest[block, place], cosines[block, place] = best, products[rows, best]
            products[rows, best] = -np.inf
    return nearest, cosines


FaceKey = tuple[str, int, int]
"""media_id, number of the frame, number of the face in its frame."""
EVIDENCE = ("shared", "strength", "several", "name")
COLUMNS = (
    "identity",
    "centroid",
    "network",
    *EVIDENCE,
    "exemplars",
)  # columns of the table of identities that are read


@dataclass(frozen=True, kw_only=True)
class KnownIdentities:
    """Identities with numbers: first those of earlier runs in the output, then those of another output."""

    numbers: Ints  # g
    centroids: Vectors  # g d; zeros for an identity of another network
    stored: Sequence[Mapping[str, Any]]  # g; centroid, network, shared and strength as stored
    faces: Mapping[FaceKey, int]  # example faces of the output, by another network: indices into `numbers`

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """True for identities of the same network (g)."""
        return np.asarray(self.centroids.any(axis=1), np.bool_)

    def group(self, position: int) -> Group:
        stored = self.stored[position]
        return Group(
            total=self.centroids[position],
            shared_total=stored["shared"] or 0.0,
            strength=stored["strength"] or 0.0,
            several=stored["several"],
        )

    @classmethod
    def from_tables(cls, own: pa.Table, other: pa.Table, length: int, network: str | None) -> "KnownIdentities":
        """Read two tables of identities.

        Args:
            own: from earlier runs in the output; its numbers win.
            other: from another output; identities with numbers in `own` are left out.
            length: d.
            network: the network of the embeddings; None: unknown.

        Raises:
            ValueError: the other output's identities come from another network.
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
            stored=[{name: row[name] for name in ("centroid", "network", *EVIDENCE)} for row in rows],
            faces=faces,
        )


def _read_by_number(table: pa.Table) -> list[dict[str, Any]]:
    """Return a row for each number; a killed run may have left two files of one table, or an empty file."""
    rows = [
        row for row in table.select(COLUMNS).to_pylist() if row["identity"] is not None and row["centroid"] is not None
    ]
    return list({row["identity"]: row for row in reversed(rows)}.values())[::-1]


def _get_kind(row: Mapping[str, Any]) -> tuple[int, str | None]:
    return len(row["centroid"]), row["network"]


def _is_comparable(row: Mapping[str, Any], length: int, network: str | None) -> bool:
    """Return whether a known identity's centroid and faces come from one network, as far as known."""
    numbers, own = _get_kind(row)
    return numbers == length and (own is None or network is None or own == network)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The least evidence for giving a face an identity: a probability, or without one cosines and a quality."""

    probability: float
    cosine: float | None  # None: no face gets one
    margin: float  # lead over the cosine to anybody else
    quality: float


@dataclass(frozen=True, kw_only=True)
class NearestPeople:
    """Each face with its two most similar people."""

    nearest: Ints  # n 2; indices of people, -1: none
    cosines: Floats  # n 2; -1: none
    odds: Floats  # n 2; that both are one person, given equal prior odds; 0: none
    enough: NDArray[np.bool_]  # n; the face gets the first one's identity
    between: NDArray[np.bool_]  # n; the face belongs to one of two people


def compare(evidence: Evidence, people: Sequence[Group], rule: Rule) -> NearestPeople:
    """Compare faces with people."""
    faces = evidence.faces
    targets = np.array([[*group.centroid, group.shared] for group in people]).reshape(
        len(people), evidence.weighted.shape[1]
    )
    nearest, excesses = two_nearest(evidence.weighted, targets)
    there = nearest >= 0
    shared = evidence.shared[:, None] * targets[nearest, -1] if len(people) else 0
    cosines = np.where(there, excesses + shared, -1)
    if evidence.probable:
        odds = np.exp(weigh(evidence, np.arange(len(faces)), people, nearest, excesses)) * there
        first, either = (sums / (max(1, len(people)) + odds.sum(axis=1)) for sums in (odds[:, 0], odds.sum(axis=1)))
        enough, near = first >= rule.probability, either >= rule.probability
    else:
        odds = np.zeros(nearest.shape)
        near = (cosines[:, 0] >= (rule.cosine or 0)) & (faces.qualities >= rule.quality)
        enough = near & (cosines[:, 0] - cosines[:, 1] >= rule.margin)
    given = rule.cosine is not None
    return NearestPeople(
        nearest=nearest, cosines=cosines, odds=odds, enough=enough & there[:, 0] & given, between=near & ~enough & given
    )


def weigh(evidence: Evidence, faces: Ints, people: Sequence[Group], positions: Ints, excesses: Floats) -> Floats:
    """Return the log-odds of faces (n) and people (n k) from their indices and excesses (n k)."""
    if not people:
        return np.zeros(positions.shape)
    strengths, shared, several = (
        np.array([getattr(group, name) for group in people])[positions] for name in ("strength", "shared", "several")
    )
    return evidence.log_odds(
        excesses,
        np.minimum(evidence.faces.strengths[faces, None], strengths),
        np.maximum(evidence.shared[faces, None], shared),
        several,
    )
