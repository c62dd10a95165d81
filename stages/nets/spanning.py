"""The minimum spanning tree of mutual reachability, exactly, by matrix products: what HDBSCAN spends its time on.

Trees over points do not prune in 512 dimensions, and one point at a time wastes a processor; products of blocks do
not. Nothing is approximated. Float32 products only *find* edges: each weight that decides is computed again in
float64, and each bound on what was not found gives away the worst error that float32 can make.

    neighbours  ->  core distances  ->  Boruvka's rounds over known edges  ->  (foreign neighbours  ->  rounds)*

A round joins a group of points to another by the lightest known edge between them where that edge is no heavier than
any edge still unknown can be (Boruvka 1926; the cut property). Where no group is that far, the points in question are
held against those of all other groups once more.

Shapes: n points, d dimensions, k edges kept of each point, e edges known, g groups. Distances are 1 - cosine, float64;
the mutual reachability of two points is the largest of their distance and both core distances (Campello et al. 2013).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stages.nets.cosines import Floats, Ints, Points, plain_float32

KEPT = 16  # edges of each point: with 32, weighing and sorting them cost as much as the products


@dataclass(frozen=True, kw_only=True)
class SpanningTree:
    """n - 1 edges, in the order in which Prim's algorithm meets them from the first point on."""

    edges: Ints  # n - 1, 2; the second is the new one
    weights: Floats  # n - 1; mutual reachability
    core: Floats  # n; distance to the min_samples-th neighbour


@dataclass(frozen=True)
class _Edges:
    """Known edges, the lightest first; of equal ones, that of the first points."""

    ends: Ints  # e 2
    weights: Floats  # e

    @classmethod
    def none(cls) -> _Edges:
        """No edge."""
        return cls(np.empty((0, 2), np.int64), np.empty(0))

    @classmethod
    def together(cls, parts: Sequence[_Edges]) -> _Edges:
        """All edges of some parts, in order."""
        ends = np.concatenate([part.ends for part in parts])
        weights = np.concatenate([part.weights for part in parts])
        order = np.lexsort((ends[:, 1], ends[:, 0], weights))
        return cls(ends[order], weights[order])

    def taken(self, which: NDArray[Any]) -> _Edges:
        """Some of them, by number or truth value."""
        return _Edges(self.ends[which], self.weights[which])


def spanning_tree(vectors: NDArray[np.floating], min_samples: int, device: str = "cpu") -> SpanningTree:
    """The minimum spanning tree of the complete graph of n points.

    Memory grows with n (d + k), time with n squared. The same vectors in the same order give the same tree. A core
    distance is the weight of several edges, and which of those a tree has decides to which side a point between two
    clusters falls: the tree is the one of hdbscan's Prim, unless distances themselves are equal; then only the sum
    of weights is unique.

    Args:
        vectors: n d, any length but 0; they are scaled to length 1.
        min_samples: the neighbour whose distance is a point's core distance, the nearest being 1; at most n - 1 counts.
        device: of the products.

    Raises:
        ValueError: a vector has no direction, or there is no second point.
    """
    points = Points(vectors, device)
    if points.n < 2:
        raise ValueError(f"a tree needs two points, not {points.n}")
    with torch.inference_mode(), plain_float32():
        return _Search(points, min(min_samples, points.n - 1)).tree()


class _Search:
    """Groups of points that grow into one."""

    def __init__(self, points: Points, min_samples: int) -> None:
        self.points, self.groups = points, np.arange(points.n)
        self.kept, self.slack = max(KEPT, min_samples + 1), 4 * points.error
        every, self.before = np.arange(points.n), points.n + points.n
        found, values = points.best(every, self.kept)
        found, values = found[:, : points.n - 1], values[:, : points.n - 1]
        distances = points.distances(every, found)
        nearer = 1 - values[:, -1] - points.rough_error
        # where float32 cannot tell which neighbour is the last that counts
        open_ = np.flatnonzero(np.partition(distances, min_samples - 1, axis=1)[:, min_samples - 1] > nearer.clip(0))
        if found.shape[1] < points.n - 1 and len(open_):
            found[open_], values = points.best(open_, self.kept, exact=True)
            distances[open_] = points.distances(open_, found[open_])
            nearer[open_] = 1 - values[:, -1] - points.error
        self.core: Floats = np.partition(distances, min_samples - 1, axis=1)[:, min_samples - 1]
        self.close = self._edges(every, np.where(distances <= self.core[:, None], found, -1), distances)
        # of each point: edges that are not known are no lighter than this
        self.nearer = np.maximum(nearer, self.core) if found.shape[1] < points.n - 1 else np.full(points.n, np.inf)
        self.edges = self._edges(every, found, distances)

    def tree(self) -> SpanningTree:
        """Rounds until one group is left."""
        taken = [_Edges.none()]
        while self.groups.max():
            inside = self.groups[self.edges.ends]
            self.edges = self.edges.taken(inside[:, 0] != inside[:, 1])
            lightest = self._lightest()
            weights = np.append(self.edges.weights, np.inf)[lightest]
            sure = (weights <= self._unknown() + self.slack) & np.isfinite(weights)
            if sure.any():
                taken.append(self.edges.taken(np.unique(lightest[sure])))
                self._join(taken[-1])
            else:
                self._look_further(weights)
        edges, weights = _walk(_Edges.together([*taken, self.close]), self.points.n)
        return SpanningTree(edges=edges, weights=weights, core=self.core)

    def _edges(self, rows: Ints, found: Ints, distances: Floats) -> _Edges:
        """Edges of rows (r) to what was found for them (r k, -1 for none), by their mutual reachability."""
        there = found >= 0
        ends = np.sort(np.stack([np.repeat(rows, there.sum(axis=1)), found[there]], axis=1), axis=1)
        return _Edges.together([_Edges(ends, np.maximum(distances[there], self.core[ends].max(axis=1)))])

    def _lightest(self) -> Ints:
        """For each group the number of its lightest edge to another; that of no edge where none is known."""
        count = len(self.edges.weights)
        result = np.full(self.groups.max() + 1, count)
        for side in self.groups[self.edges.ends].T:
            np.minimum.at(result, side, np.arange(count))
        return result

    def _unknown(self) -> Floats:
        """For each group a weight that none of its unknown edges to others is lighter than.

        An edge is unknown only where neither end found it, so the least bound of all other groups holds as well.
        """
        own = np.full(self.groups.max() + 1, np.inf)
        np.minimum.at(own, self.groups, self.nearer)
        others = np.full(len(own), own.min())
        others[own.argmin()] = np.partition(own, 1)[1]
        return np.maximum(own, others)

    def _join(self, edges: _Edges) -> None:
        """Make one group of those that edges join."""
        rows, columns = self.groups[edges.ends].T
        shape = (self.groups.max() + 1,) * 2
        graph = coo_array((np.ones(len(rows), bool), (rows, columns)), shape=shape)
        self.groups = connected_components(graph, directed=False)[1].astype(np.int64)[self.groups]

    def _look_further(self, weights: Floats) -> None:
        """Find more edges of all points that may have a lighter one to another group than their group's lightest.

        Args:
            weights: of the lightest known edge of each group; inf where none is known.
        """
        rows = np.flatnonzero(self.nearer + self.slack < weights[self.groups])
        heaviest = weights[self.groups[rows]].max()
        columns = np.flatnonzero(self.nearer + self.slack < heaviest)
        # float32 cannot order edges that are all but equal: where it settled little, float64 is asked
        exact, self.before = len(weights) > self.before / 2, len(weights)
        found, values = self.points.best(
            rows, self.kept, columns=columns, most=1 - self.core, groups=self.groups, exact=exact
        )
        error = self.points.error if exact else self.points.rough_error
        whole = (found[:, -1] < 0) | (found.shape[1] == len(columns))
        bound = np.where(whole, np.inf, 1 - values[:, -1] - error)
        # edges to points that were left out are no lighter than the heaviest weight that matters now
        self.nearer[rows] = np.maximum(self.nearer[rows], np.minimum(bound, heaviest))
        self.edges = _Edges.together([self.edges, self._edges(rows, found, self.points.distances(rows, found))])


def _walk(edges: _Edges, count: int) -> tuple[Ints, Floats]:
    """Prim's algorithm over few edges (e): n - 1 edges and their weights, in the order in which it takes them.

    Edges of one weight that is a core distance all lead to that core's nearest neighbours. With those among the edges,
    the walk sees every choice that one over all n x n edges would see, and makes the same.
    """
    ends, weights = np.concatenate([edges.ends, edges.ends[:, ::-1]]), np.tile(edges.weights, 2)
    order = np.argsort(ends[:, 0], kind="stable")
    starts = np.searchsorted(ends[order, 0], np.arange(count + 1)).tolist()
    targets, costs = ends[order, 1].tolist(), weights[order].tolist()
    nearest, source, inside = [np.inf] * count, [0] * count, bytearray(count)
    heap: list[tuple[float, int]] = []
    taken: list[tuple[int, int, float]] = []
    node = 0
    while len(taken) < count - 1:
        inside[node] = 1
        for place in range(starts[node], starts[node + 1]):
            other = targets[place]
            if not inside[other] and costs[place] < nearest[other]:
                nearest[other], source[other] = costs[place], node
                heapq.heappush(heap, (costs[place], other))
        while inside[node]:
            weight, node = heapq.heappop(heap)
        taken.append((source[node], node, weight))
    walked = np.array(taken)
    return walked[:, :2].astype(np.int64), walked[:, 2]
