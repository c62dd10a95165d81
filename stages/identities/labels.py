"""Identities from clusters of faces: a medoid for each, assignment of noise, and stable numbers.

Shapes: n faces of the run, c of them in clusters, g identities, d numbers of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from stages.identities.face_table import FaceTable, Ints, Singles
from stages.identities.known import KnownIdentities
from stages.identities.medoids import mutual_nearest, nearest, summarize

NONE = -1


class Labels:
    """The identity of each face.

    `of_face` is n, the position of a face's identity, or `NONE`; `numbers` is g. `number` replaces the positions in
    `numbers` by the final numbers. `assigned` marks noise that got an identity by its similarity (n), and `recognised`
    identities with the number of an earlier output (g).
    """

    def __init__(self, faces: FaceTable, members: Ints, labels: Ints, exemplars: int) -> None:
        """Form an identity of each cluster.

        Args:
            faces: all faces.
            members: c, the faces in clusters.
            labels: c, their clusters from 0.
            exemplars: number of example faces of each identity.
        """
        self._faces = faces
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        self._members = [np.sort(part) for part in np.split(members[order], starts[1:])] if len(members) else []
        self.summaries = [summarize(faces.vectors, own, exemplars) for own in self._members]
        self.of_face = np.full(len(faces), NONE)
        for position, own in enumerate(self._members):
            self.of_face[own] = position
        self.assigned = np.zeros(len(faces), bool)
        self.numbers: Ints = np.arange(len(self._members))
        self.recognised = np.zeros(len(self._members), bool)

    @property
    def medoids(self) -> Ints:
        """The medoid of each identity: g."""
        return np.array([summary.medoid for summary in self.summaries], np.int64)

    def assign_noise(self, noise: Ints, min_cosine: float) -> None:
        """Assign faces of no cluster to the identity of the nearest medoid, if their cosine is at least
        `min_cosine`."""
        if not self._members:
            return
        best, cosines = nearest(self._faces.vectors[noise], self._faces.vectors[self.medoids])
        near = cosines >= min_cosine
        self.of_face[noise[near]] = best[near]
        self.assigned[noise[near]] = True

    def number(self, known: KnownIdentities, min_cosine: float) -> None:
        """Number the identities: known ones keep their numbers, the others follow by size, then by their first face.

        An identity is known by its centroid; after a change of the network, by its example faces.
        """
        if not self._members:
            return
        sizes = np.bincount(self.of_face[self.of_face >= 0], minlength=len(self._members))
        first = [own[0] for own in self._members]
        centroids = np.array([summary.centroid for summary in self.summaries])
        pairs = dict(mutual_nearest(centroids, known.centroids, min_cosine))
        pairs |= self._known_by_faces(known, pairs)
        following = int(known.numbers.max(initial=NONE)) + 1
        for position in np.lexsort((first, -sizes)):
            self.recognised[position] = position in pairs
            self.numbers[position] = known.numbers[pairs[position]] if position in pairs else following
            following += position not in pairs

    def _known_by_faces(self, known: KnownIdentities, pairs: Mapping[int, int]) -> dict[int, int]:
        """Return identities that hold more than half of a known one's example faces; both are in no pair yet."""
        votes = np.zeros((len(self._members), len(known.numbers)))
        for face, position in self._faces.find(known.faces).items():
            if (holder := self.of_face[face]) != NONE:
                votes[holder, position] += 1
        examples = np.bincount(list(known.faces.values()), minlength=len(known.numbers))
        votes[:, 2 * votes.max(axis=0, initial=0) <= examples] = 0
        votes[list(pairs)], votes[:, list(pairs.values())] = 0, 0
        return dict(mutual_nearest(votes, np.eye(len(known.numbers)), 1))

    def similarities(self) -> Singles:
        """Return the cosine of each face (n) to the medoid of its identity; undefined for faces without identity."""
        if not self._members:
            return np.zeros(len(self._faces), np.float32)
        return np.einsum("nd,nd->n", self._faces.vectors, self._faces.vectors[self.medoids[self.of_face]])

    def faces_of(self) -> list[Ints]:
        """Return the faces of each identity, assigned noise included."""
        order = np.argsort(self.of_face, kind="stable")
        starts = np.searchsorted(self.of_face[order], np.arange(len(self._members) + 1))
        return [order[start:stop] for start, stop in pairwise(starts)]
