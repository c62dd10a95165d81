"""Clusters of faces become people: a face that stands for each, a second chance for noise, a number that stays.

Shapes: n faces of the run, c of them in clusters, g identities, d numbers of an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stages.nets.face_rows import FaceRows, Ints, Singles
from stages.nets.members import Vectors, mutual_best, nearest, portrait

NONE = -1


@dataclass(frozen=True, kw_only=True)
class Known:
    """Identities of an earlier output."""

    numbers: Ints  # g
    centroids: Vectors  # g d


class People:
    """Identities in the making."""

    def __init__(self, faces: FaceRows, members: Ints, labels: Ints, exemplars: int) -> None:
        """Clusters of faces.

        Args:
            faces: all faces.
            members: c, those in clusters.
            labels: c, their clusters from 0.
            exemplars: faces that show each of them.
        """
        self._faces = faces
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        self._members = [np.sort(part) for part in np.split(members[order], starts[1:])] if len(members) else []
        self.portraits = [portrait(faces.vectors, own, exemplars) for own in self._members]
        self.of_face = np.full(len(faces), NONE)  # n; which of them, then its number
        for place, own in enumerate(self._members):
            self.of_face[own] = place
        self.assigned = np.zeros(len(faces), bool)
        self.numbers: Ints = np.arange(len(self._members))
        self.recognised = np.zeros(len(self._members), bool)

    @property
    def medoids(self) -> Ints:
        """Of each identity."""
        return np.array([one.medoid for one in self.portraits], np.int64)

    def give_second_chance(self, noise: Ints, least: float) -> None:
        """Give faces of no cluster to the identity of the nearest medoid, where their cosine is at least `least`."""
        if not self._members:
            return
        best, cosines = nearest(self._faces.vectors[noise], self._faces.vectors[self.medoids])
        near = cosines >= least
        self.of_face[noise[near]] = best[near]
        self.assigned[noise[near]] = True

    def give_numbers(self, known: Known, least: float) -> None:
        """Known identities keep their numbers; the others follow, the largest first, of equal ones the first seen."""
        if not self._members:
            return
        sizes = np.bincount(self.of_face[self.of_face >= 0], minlength=len(self._members))
        first = [own[0] for own in self._members]
        centroids = np.array([one.centroid for one in self.portraits])
        pairs = dict(mutual_best(centroids, known.centroids, least))
        following = int(known.numbers.max(initial=NONE)) + 1
        for place in np.lexsort((first, -sizes)):
            self.recognised[place] = place in pairs
            self.numbers[place] = known.numbers[pairs[place]] if place in pairs else following
            following += place not in pairs

    def similarities(self) -> Singles:
        """Cosine of each face (n) to the medoid of its identity; of those without identity anything."""
        if not self._members:
            return np.zeros(len(self._faces), np.float32)
        return np.einsum("nd,nd->n", self._faces.vectors, self._faces.vectors[self.medoids[self.of_face]])

    def faces_of(self) -> list[Ints]:
        """The faces of each identity, those of a second chance included."""
        order = np.argsort(self.of_face, kind="stable")
        starts = np.searchsorted(self.of_face[order], np.arange(len(self._members) + 1))
        return [order[start:stop] for start, stop in pairwise(starts)]
