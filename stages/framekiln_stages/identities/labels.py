"""Identities from clusters of faces: known people, faces outside of clusters, and stable numbers.

    clusters  ->  known people among them  ->  single faces, also to known people without a cluster  ->  numbers

Shapes: n faces of the run, c of them in clusters, g identities, d numbers of an embedding.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import FaceTable, Ints
from framekiln_stages.identities.known import KnownIdentities, mutual_nearest, summarize, two_nearest

NONE = -1
Floats = NDArray[np.float64]


class Labels:
    """The identity of each face.

    `of_face` is n, the position of a face's identity, or `NONE`; `numbers` is g, by position. `assigned` (n) marks
    faces outside of clusters that got an identity by their similarity. `between` (n) marks faces with two identities
    that are about as similar. `recognised` (g) marks identities with a number from before. `similarity` and `runner_up`
    are cosines to the centroids of a face's own and of the most similar other identity (n); undefined without identity,
    and -1 without another identity.
    """

    def __init__(self, faces: FaceTable, members: Ints, labels: Ints, exemplars: int) -> None:
        """Form an identity of each cluster.

        Args:
            faces: all faces.
            members: c, the faces in clusters.
            labels: c, their clusters from 0.
            exemplars: number of example faces of each identity.
        """
        self._faces, self._exemplars = faces, exemplars
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        self._members = [np.sort(part) for part in np.split(members[order], starts[1:])] if len(members) else []
        self.summaries = [summarize(faces.vectors, own, exemplars) for own in self._members]
        self.of_face = np.full(len(faces), NONE)
        for position, own in enumerate(self._members):
            self.of_face[own] = position
        self.assigned, self.between = np.zeros(len(faces), bool), np.zeros(len(faces), bool)
        self.similarity, self.runner_up = np.full(len(faces), -1.0), np.full(len(faces), -1.0)
        self.numbers: Ints = np.arange(len(self._members))
        self.recognised = np.zeros(len(self._members), bool)

    def settle(
        self, known: KnownIdentities, singles: Ints, *, recognise: float, assign: float | None, margin: float
    ) -> None:
        """Find known people among the clusters, assign single faces, and number the identities.

        Known people keep their numbers. The others follow by size of the cluster, then by their first face.

        Args:
            known: people with numbers.
            singles: faces outside of clusters that may be assigned.
            recognise: least cosine of two centroids of one person.
            assign: least cosine of a single face to the centroid of its identity; None to assign none.
            margin: by which it exceeds the cosine to any other identity.
        """
        pairs = self._match_clusters(known, recognise)
        absent = np.setdiff1d(np.flatnonzero(known.comparable), list(pairs.values()))
        targets = np.array([*(summary.centroid for summary in self.summaries), *known.centroids[absent]])
        targets = targets.reshape(-1, self._faces.vectors.shape[1])
        best, first, second = two_nearest(self._faces.vectors, targets)
        if assign is not None and len(targets):
            near = first[singles] >= assign
            clear = near & (first[singles] - second[singles] >= margin)
            self.of_face[singles[clear]] = best[singles[clear]]
            self.assigned[singles[clear]] = True
            self.between[singles[near & ~clear]] = True
        own = np.where(self.of_face != NONE, self.of_face, 0)
        if len(targets):
            self.similarity = np.einsum("nd,nd->n", self._faces.vectors, targets[own])
        self.runner_up = np.where(best == own, second, first)
        pairs |= self._return(known, absent)
        self._number(known, pairs)

    def _match_clusters(self, known: KnownIdentities, min_cosine: float) -> dict[int, int]:
        """Return the known identity of clusters: by centroid, or after a change of the network by example faces."""
        if not self._members:
            return {}
        here = np.flatnonzero(known.comparable)
        centroids = np.array([summary.centroid for summary in self.summaries])
        similar = mutual_nearest(centroids, known.centroids[here], min_cosine)
        pairs = {position: int(here[other]) for position, other in similar}
        return pairs | self._match_by_faces(known, pairs)

    def _match_by_faces(self, known: KnownIdentities, pairs: Mapping[int, int]) -> dict[int, int]:
        """Return identities that hold more than half of a known one's example faces; both are in no pair yet."""
        votes = np.zeros((len(self._members), len(known.numbers)))
        for face, position in self._faces.find(known.faces).items():
            if (holder := self.of_face[face]) != NONE:
                votes[holder, position] += 1
        examples = np.bincount(list(known.faces.values()), minlength=len(known.numbers))
        votes[:, 2 * votes.max(axis=0, initial=0) <= examples] = 0
        votes[list(pairs)], votes[:, list(pairs.values())] = 0, 0
        return dict(mutual_nearest(votes, np.eye(len(known.numbers)), 1))

    def _return(self, known: KnownIdentities, absent: Ints) -> dict[int, int]:
        """Form an identity of each known person without a cluster who got single faces, with the centroid as it was."""
        clusters, pairs = len(self._members), {}
        for place, other in enumerate(absent.tolist(), clusters):
            own = np.flatnonzero(self.of_face == place)
            if len(own):
                position = len(self._members)
                pairs[position] = other
                self.of_face[own] = position
                self._members.append(own)
                summary = summarize(self._faces.vectors, own, self._exemplars)
                self.summaries.append(replace(summary, centroid=known.centroids[other], cohesion=None))
        return pairs

    def _number(self, known: KnownIdentities, pairs: Mapping[int, int]) -> None:
        first = [own[0] for own in self._members]
        sizes = [-len(own) for own in self._members]
        following = int(known.numbers.max(initial=NONE)) + 1
        self.numbers, self.recognised = np.zeros(len(first), np.int64), np.zeros(len(first), bool)
        for position in np.lexsort((first, sizes)) if first else ():
            self.recognised[position] = position in pairs
            self.numbers[position] = known.numbers[pairs[position]] if position in pairs else following
            following += position not in pairs

    def faces_of(self) -> list[Ints]:
        """Return the faces of each identity, assigned ones included."""
        order = np.argsort(self.of_face, kind="stable")
        starts = np.searchsorted(self.of_face[order], np.arange(len(self._members) + 1))
        return [order[start:stop] for start, stop in pairwise(starts)]
