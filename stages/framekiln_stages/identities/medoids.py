"""Summaries of a cluster of unit vectors: centroid, medoid, and the members that differ most.

Shapes: n vectors, m of them members of a cluster, g clusters, d dimensions; all vectors have length 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.floating]
BLOCK = 4096  # vectors compared at once


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    """Centroid, medoid and exemplars of a cluster."""

    centroid: Vectors  # d; direction of the sum, of length 1
    medoid: int  # the member with the largest mean cosine to all
    cohesion: float | None  # mean cosine of the medoid to the other members; 1 for a single member; None: no cluster
    exemplars: tuple[int, ...]  # the medoid, then repeatedly the member farthest from those before


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
    """Return pairs of rows of a and b that are each other's nearest, with a cosine of at least `min_cosine`."""
    if not len(a) or not len(b):
        return []
    cosines = a @ b.T
    forth, back = cosines.argmax(axis=1), cosines.argmax(axis=0)
    return [(i, int(j)) for i, j in enumerate(forth) if back[j] == i and cosines[i, j] >= min_cosine]


def two_nearest(
    vectors: Vectors, targets: Vectors
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the nearest of g targets for each of n vectors, its cosine, and the cosine of the next, by blocks.

    Without a next target its cosine is -1; without any, the nearest is -1 too.
    """
    count = len(vectors)
    best, first, second = np.full(count, -1), np.full(count, -1.0), np.full(count, -1.0)
    for start in range(0, count if len(targets) else 0, BLOCK):
        block = slice(start, start + BLOCK)
        cosines = vectors[block].astype(np.float64) @ targets.T
        rows = np.arange(len(cosines))
        best[block] = cosines.argmax(axis=1)
        first[block] = cosines[rows, best[block]]
        cosines[rows, best[block]] = -1
        second[block] = cosines.max(axis=1)
    return best, first, second
