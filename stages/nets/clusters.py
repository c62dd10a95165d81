"""What HDBSCAN makes of a spanning tree: hdbscan's own condensing, choosing and labelling, without its search.

Shapes: n points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hdbscan._hdbscan_linkage import label
from hdbscan._hdbscan_tree import outlier_scores
from hdbscan.hdbscan_ import _tree_to_labels
from numpy.typing import NDArray

from stages.nets.spanning import SpanningTree

# Density is one over distance, so the densities of copies of one picture would outweigh everything else. Embeddings
# kept in 16 bits are off by 1e-7 in 1 - cosine; from ten times that on, points count as equally near.
NEAREST = 1e-6
FARTHEST = 2.0  # 1 - cosine of opposites
NOISE = -1


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """What is said of each point."""

    labels: NDArray[np.int64]  # n; from 0, NOISE for none
    probabilities: NDArray[np.float64]  # n; 0 for noise, 1 at a cluster's core
    outliers: NDArray[np.float64]  # n; 0 to 1, GLOSH (Campello et al. 2015)


def clusters(tree: SpanningTree, min_size: int, *, one_within: float = 0.0, apart: float = FARTHEST) -> Clusters:
    """Clusters by excess of mass; with the defaults, those of hdbscan.

    Args:
        tree: of n points.
        min_size: points of the smallest cluster, at least 2.
        one_within: distance below which a cluster is not split (hdbscan's cluster_selection_epsilon, Malzer and Baum
            2020); 0 to split wherever density says so. Where even the whole does not fall apart above that distance,
            it is one cluster, which hdbscan by itself never says; points farther out than that are noise.
        apart: distance above which nothing joins, at least `one_within`. By itself hdbscan gives a cluster all that
            hangs on it when it parts from the rest, however far out, and joins two where that is the stabler choice.
    """
    weights = np.where(tree.weights > apart, FARTHEST, np.maximum(tree.weights, NEAREST))
    edges = np.column_stack([tree.edges, weights])
    linkage = label(edges[np.argsort(edges[:, 2])])  # the sort that hdbscan uses, for equal weights

    def found(alone: bool) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.void]]:
        made = _tree_to_labels(
            None, linkage, min_size, allow_single_cluster=alone, cluster_selection_epsilon=float(one_within)
        )
        return made[0], made[1], made[3]

    labels, probabilities, condensed = found(alone=False)
    splits = condensed[condensed["child_size"] > 1]["lambda_val"]
    if one_within and not (splits * one_within <= 1).any():
        labels, probabilities, condensed = found(alone=True)
    points = condensed[condensed["child_size"] == 1]
    stray = points["child"][points["lambda_val"] * apart < 1]  # what leaves its cluster farther out than that
    labels[stray], probabilities[stray] = NOISE, 0
    return Clusters(
        labels=_renumbered(np.asarray(labels, np.int64)),
        probabilities=np.asarray(probabilities, np.float64),
        outliers=np.asarray(outlier_scores(condensed), np.float64),
    )


def _renumbered(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Without holes, where a cluster consisted of strays."""
    there = np.unique(labels[labels >= 0])
    return np.where(labels >= 0, np.searchsorted(there, labels), NOISE)
