"""HDBSCAN on a given spanning tree: hdbscan's own condensing, selection and labelling, without its search.

Shapes: n points.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.spanning_tree import SpanningTree

# Least distance. Density is one over distance; copies of one image would outweigh all others. 16-bit embeddings are off
# by 1e-7 in 1 - cosine; distances below ten times that count as equal.
NEAREST = 1e-6
FARTHEST = 2.0  # 1 - cosine of opposites
NOISE = -1


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Cluster, probability and outlier score of each point."""

    labels: NDArray[np.int64]  # n; from 0; NOISE: none
    probabilities: NDArray[np.float64]  # n; 0 for noise, 1 at a cluster's core
    outliers: NDArray[np.float64]  # n; 0 to 1, GLOSH (Campello et al. 2015)


def hdbscan_clusters(
    tree: SpanningTree, min_size: int, *, epsilon: float = 0.0, max_distance: float = FARTHEST
) -> Clusters:
    """Cluster by excess of mass; with the defaults, as hdbscan does.

    Args:
        tree: of n points.
        min_size: points of the smallest cluster, at least 2.
        epsilon: distance below which a cluster is not split (hdbscan's cluster_selection_epsilon, Malzer and Baum
            2020); 0 to split by density alone. If no split is above it, all points are one cluster, which hdbscan by
            itself never returns; points farther out are noise.
        max_distance: distance above which nothing is joined, at least `epsilon`. By itself hdbscan keeps all points of
            a cluster when it splits off, however far out, and joins two clusters where that is more stable.
    """
    from hdbscan import _hdbscan_linkage, _hdbscan_tree, hdbscan_  # loads scikit-learn, which planning does not need

    weights = np.where(tree.weights > max_distance, FARTHEST, np.maximum(tree.weights, NEAREST))
    edges = np.column_stack([tree.edges, weights])
    linkage = _hdbscan_linkage.label(edges[np.argsort(edges[:, 2])])  # the sort that hdbscan uses, for equal weights

    def select(single: bool) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.void]]:
        result = hdbscan_._tree_to_labels(
            None, linkage, min_size, allow_single_cluster=single, cluster_selection_epsilon=float(epsilon)
        )
        return result[0], result[1], result[3]

    labels, probabilities, condensed = select(single=False)
    splits = condensed[condensed["child_size"] > 1]["lambda_val"]
    if epsilon and not (splits * epsilon <= 1).any():
        labels, probabilities, condensed = select(single=True)
    points = condensed[condensed["child_size"] == 1]
    stray = points["child"][points["lambda_val"] * max_distance < 1]  # points leave their cluster beyond that distance
    labels[stray], probabilities[stray] = NOISE, 0
    used = np.unique(labels[labels >= 0])  # some clusters may have lost all points
    return Clusters(
        labels=np.where(labels >= 0, np.searchsorted(used, labels), NOISE),
        probabilities=np.asarray(probabilities, np.float64),
        outliers=np.asarray(_hdbscan_tree.outlier_scores(condensed), np.float64),
    )
