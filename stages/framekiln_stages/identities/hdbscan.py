"""HDBSCAN: the exact minimum spanning tree of mutual reachability by matrix products, which is the expensive part.

On this tree hdbscan's own condensing, selection and labelling find the clusters.

Trees over points do not prune in 512 dimensions, and one point at a time wastes a CPU; products of blocks avoid both.
Nothing is approximated. Float32 products only *find* edges. Each weight that decides is computed again in float64, and
each bound on unknown edges includes the largest error of float32.

    neighbours  ->  core distances  ->  Boruvka's rounds over known edges  ->  (neighbours in other groups  ->  rounds)*

A round joins two groups of points by the lightest known edge between them. That edge must be no heavier than any
unknown edge can be (Boruvka 1926; the cut property). Where no group has such an edge, the points in question are
compared with those of all other groups once more.

Shapes: n points, d dimensions, k edges kept of each point, e edges known, g groups. Distances are 1 - cosine, float64;
the mutual reachability of two points is the largest of their distance and both core distances (Campello et al. 2013).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.device import torch
from framekiln_stages.identities.cosine_knn import Floats, Ints, Points, plain_float32

EDGES = 16  # edges kept per point: with 32, computing and sorting weights costs as much as the products


@dataclass(frozen=True, kw_only=True)
class SpanningTree:
    """n - 1 edges, in the order of Prim's algorithm from the first point."""

    edges: Ints  # n - 1, 2; the second point is the new one
    weights: Floats  # n - 1; mutual reachability
    core: Floats  # n; distance to the min_samples-th neighbour


@dataclass(frozen=True)
class _Edges:
    """Known edges, the lightest first; equal weights in the order of their points."""

    ends: Ints  # e 2
    weights: Floats  # e

    @classmethod
    def merge(cls, parts: Sequence[_Edges]) -> _Edges:
        """Return all edges of some parts, in order."""
        ends = np.concatenate([part.ends for part in parts])
        weights = np.concatenate([part.weights for part in parts])
        order = np.lexsort((ends[:, 1], ends[:, 0], weights))
        return cls(ends[order], weights[order])

    def select(self, edges: NDArray[Any]) -> _Edges:
        """Return some edges, by their numbers or by a mask."""
        return _Edges(self.ends[edges], self.weights[edges])


def spanning_tree(
    vectors: NDArray[np.floating], min_samples: int, device: str = "cpu", shared: Floats | None = None
) -> SpanningTree:
    """Return the minimum spanning tree of the complete graph of n points.

    Memory grows with n (d + k), time with n squared. The same vectors in the same order give the same tree.

    A core distance is the weight of several edges. The choice among these decides the cluster of a point between two
    clusters. The tree is that of hdbscan's Prim, unless distances themselves are equal; then only the sum of weights is
    unique.

    Args:
        vectors: n d, any length but 0; they are scaled to length 1.
        min_samples: number of the neighbour at a point's core distance, the nearest being 1; at most n - 1.
        device: of the products.
        shared: n; what is subtracted from cosines, as in `Points`.

    Raises:
        ValueError: a vector is all zero or not finite, or there are fewer than two points.
    """
    points = Points(vectors, device, shared)
    if points.n < 2:
        raise ValueError(f"a tree needs two points, not {points.n}")
    with torch.inference_mode(), plain_float32():
        return _Search(points, min(min_samples, points.n - 1)).tree()


class _Search:
    """Groups of points, joined until one is left."""

    def __init__(self, points: Points, min_samples: int) -> None:
        self.points, self.groups = points, np.arange(points.n)
        self.count, self.slack = max(EDGES, min_samples + 1), 4 * points.error
        everything, self.groups_before = np.arange(points.n), points.n + points.n
        neighbours, distances, nearer = self._find_neighbours(everything, min_samples)
        self.core: Floats = np.partition(distances, min_samples - 1, axis=1)[:, min_samples - 1]
        self.close = self._make_edges(everything, np.where(distances <= self.core[:, None], neighbours, -1), distances)
        # for each point: a lower bound on the weight of its unknown edges
        complete = neighbours.shape[1] == points.n - 1
        self.nearer = np.full(points.n, np.inf) if complete else np.maximum(nearer, self.core)
        self.edges = self._make_edges(everything, neighbours, distances)

    def _find_neighbours(self, rows: Ints, min_samples: int) -> tuple[Ints, Floats, Floats]:
        """Return neighbours and distances (n k) of all points, and a lower bound on all other distances (n)."""
        points = self.points
        neighbours, values = points.nearest(rows, self.count)
        neighbours, values = neighbours[:, : points.n - 1], values[:, : points.n - 1]
        distances = points.distances(rows, neighbours)
        nearer = 1 - values[:, -1] - points.rough_error
        # float32 cannot decide here which neighbour is at the core distance
        core = np.partition(distances, min_samples - 1, axis=1)[:, min_samples - 1]
        undecided = np.flatnonzero(core > nearer.clip(0))
        if neighbours.shape[1] < points.n - 1 and len(undecided):
            neighbours[undecided], values = points.nearest(undecided, self.count, exact=True)
            distances[undecided] = points.distances(undecided, neighbours[undecided])
            nearer[undecided] = 1 - values[:, -1] - points.error
        return neighbours, distances, nearer

    def tree(self) -> SpanningTree:
        """Join groups in rounds until one is left."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        chosen: list[_Edges] = []
        while self.groups.max():
            groups = self.groups[self.edges.ends]
            self.edges = self.edges.select(groups[:, 0] != groups[:, 1])
            count = len(self.edges.weights)
            lightest = np.full(self.groups.max() + 1, count)  # index of each group's lightest edge to another
            for side in self.groups[self.edges.ends].T:
                np.minimum.at(lightest, side, np.arange(count))
            weights = np.append(self.edges.weights, np.inf)[lightest]
            certain = (weights <= self._bound_unknown() + self.slack) & np.isfinite(weights)
            if certain.any():
                chosen.append(self.edges.select(np.unique(lightest[certain])))
                rows, columns = self.groups[chosen[-1].ends].T
                graph = coo_array((np.ones(len(rows), bool), (rows, columns)), shape=(len(lightest),) * 2)
                self.groups = connected_components(graph, directed=False)[1].astype(np.int64)[self.groups]
            else:
                self._search_further(weights)
        edges, weights = _run_prim(_Edges.merge([*chosen, self.close]), self.points.n)
        return SpanningTree(edges=edges, weights=weights, core=self.core)

    def _make_edges(self, rows: Ints, neighbours: Ints, distances: Floats) -> _Edges:
        """Return edges of rows (r) to their neighbours (r k, -1 for none), with their mutual reachability."""
        known = neighbours >= 0
        ends = np.sort(np.stack([np.repeat(rows, known.sum(axis=1)), neighbours[known]], axis=1), axis=1)
        return _Edges.merge([_Edges(ends, np.maximum(distances[known], self.core[ends].max(axis=1)))])

    def _bound_unknown(self) -> Floats:
        """Return a lower bound on the weight of each group's unknown edges to others.

        An edge is unknown only if neither end has it as a neighbour; the least bound of all other groups holds as well.
        """
        own = np.full(self.groups.max() + 1, np.inf)
        np.minimum.at(own, self.groups, self.nearer)
        others = np.full(len(own), own.min())
        others[own.argmin()] = np.partition(own, 1)[1]
        return np.maximum(own, others)

    def _search_further(self, weights: Floats) -> None:
        """Add edges of all points that may have a lighter edge to another group than their group's lightest."""
        rows = np.flatnonzero(self.nearer + self.slack < weights[self.groups])
        heaviest = weights[self.groups[rows]].max()
        columns = np.flatnonzero(self.nearer + self.slack < heaviest)
        # float32 cannot order nearly equal edges: after a round with few joins, float64 is used
        exact, self.groups_before = len(weights) > self.groups_before / 2, len(weights)
        neighbours, values = self.points.nearest(
            rows, self.count, columns=columns, limits=1 - self.core, groups=self.groups, exact=exact
        )
        error = self.points.error if exact else self.points.rough_error
        complete = (neighbours[:, -1] < 0) | (neighbours.shape[1] == len(columns))
        bound = np.where(complete, np.inf, 1 - values[:, -1] - error)
        # edges to excluded points are no lighter than the heaviest weight that matters now
        self.nearer[rows] = np.maximum(self.nearer[rows], np.minimum(bound, heaviest))
        edges = self._make_edges(rows, neighbours, self.points.distances(rows, neighbours))
        self.edges = _Edges.merge([self.edges, edges])


def _run_prim(edges: _Edges, count: int) -> tuple[Ints, Floats]:
    """Run Prim's algorithm over few edges (e): return n - 1 edges and weights, in its order.

    All edges that have a core distance as their weight lead to that core's nearest neighbours. With those among the
    edges, each choice is the same as over all n x n edges.
    """
    ends, weights = np.concatenate([edges.ends, edges.ends[:, ::-1]]), np.tile(edges.weights, 2)
    order = np.argsort(ends[:, 0], kind="stable")
    starts = np.searchsorted(ends[order, 0], np.arange(count + 1)).tolist()
    targets, costs = ends[order, 1].tolist(), weights[order].tolist()
    nearest, source, inside = [np.inf] * count, [0] * count, bytearray(count)
    heap: list[tuple[float, int]] = []
    tree: list[tuple[int, int, float]] = []
    node = 0
    while len(tree) < count - 1:
        inside[node] = 1
        for edge in range(starts[node], starts[node + 1]):
            other = targets[edge]
            if not inside[other] and costs[edge] < nearest[other]:
                nearest[other], source[other] = costs[edge], node
                heapq.heappush(heap, (costs[edge], other))
        while inside[node]:
            weight, node = heapq.heappop(heap)
        tree.append((source[node], node, weight))
    result = np.array(tree)
    return result[:, :2].astype(np.int64), result[:, 2]


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
