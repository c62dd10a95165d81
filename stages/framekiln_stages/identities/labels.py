"""Identities from clusters of faces: known people, faces outside clusters, pairs of photos, and stable numbers.

    clusters  ->  known people among them  ->  single faces, also for known people without a cluster  ->  pairs of the
      remaining faces  ->  numbers

Nobody appears twice in one frame, unless a person named both faces so.

Shapes: n faces of the run, c of them in clusters, g identities, d numbers of an embedding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.evidence import Evidence, Floats, Group
from framekiln_stages.identities.face_table import Ints
from framekiln_stages.identities.known import (
    ClusterSummary,
    KnownIdentities,
    NearestPeople,
    Rule,
    compare,
    mutual_nearest,
    summarize,
    weigh,
)
from framekiln_stages.identities.pairs import find_pairs, group_copies, keep_once_per_frame, split_looks

# Mean excess of two halves of one person. Chosen on 120 people of Labeled Faces in the Wild with ten kinds of drawn
# coverings: from 0.35 to 0.45 as many faces join clusters of others; at 0.3 three times as many do (docs/log.md).
LEAST_ALIKE = 0.35
_STEPS = 5  # rounds of moving faces to the nearer half


def split_people(evidence: Evidence, members: Ints) -> list[Ints]:
    """Return the members of a cluster (m), split until the halves of each part are alike.

    HDBSCAN joins groups by their nearest faces, and among many strangers in hats or hoods some pair is near. One
    person's halves are alike as wholes.
    """
    left, parts = [members], list[Ints]()
    while left:
        part = left.pop()
        vectors, shared = evidence.faces.vectors[part].astype(np.float64), evidence.shared[part]
        first = _halve(vectors)
        if evidence.probable and first.any() and not first.all():
            ones, others = (vectors[half].mean(axis=0) for half in (first, ~first))
            if ones @ others - shared[first].mean() * shared[~first].mean() < LEAST_ALIKE:
                left += [part[~first], part[first]]
                continue
        parts.append(part)
    return parts


def _halve(vectors: Floats) -> NDArray[np.bool_]:
    """Return which vectors (m d) are in one of two halves: by the widest direction, then by the nearer mean."""
    apart = vectors - vectors.mean(axis=0)
    first = apart @ np.linalg.eigh(apart.T @ apart)[1][:, -1] > 0
    for _ in range(_STEPS):
        if first.all() or not first.any():
            break
        sums = np.array([vectors[half].sum(axis=0) for half in (first, ~first)])
        nearness = vectors @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)).T
        first = nearness[:, 0] > nearness[:, 1]
    return first


NONE = -1


class Labels:
    """The identity of each face.

    `of_face` (n) is the index of a face's identity, or `NONE`; `numbers` (g) is by index. `assigned` (n) marks faces
    outside clusters that got an identity by similarity. `between` (n) marks faces with two about equally similar
    identities. `twice` (n) marks faces of a person who is already in their frame. `copies` (n) marks faces of a single
    picture. `recognised` (g) marks identities with an earlier number; `names` holds names given by a person.
    `similarity` and `runner_up` (n) are cosines to the centroids of a face's own and its most similar other identity;
    undefined without identity, and -1 without another. `probability` (n) is that of being the identity's person; NaN:
    the network has none.
    """

    def __init__(self, evidence: Evidence, exemplars: int) -> None:
        """Begin without identities; `exemplars`: number of example faces of each."""
        self._evidence, self._faces, self._exemplars = evidence, evidence.faces, exemplars
        count = len(self._faces)
        self.of_face = np.full(count, NONE)
        self.assigned, self.between, self.twice, self.copies = np.zeros((4, count), bool)
        self._people: list[Group] = []  # by index, also for known people without a cluster
        self._clusters: dict[int, Ints] = {}  # members by index
        self._pairs: dict[int, int] = {}  # known identity by index
        self._names: dict[int, str] = {}  # by index, if a person gave one
        self._given = frozenset[str]()  # names in the file

    def add(self, members: Ints, *, several: bool) -> None:
        """Form an identity from faces; `several`: of three photos and more."""
        self._clusters[len(self._people)] = members
        self.of_face[members] = len(self._people)
        self._people.append(self._evidence.group(members, several))

    def name(self, people: Mapping[str, Ints], given: Sequence[str], least: int) -> None:
        """Form an identity from the faces of each name.

        `given`: all names in the file, also of absent faces. `least`: number of pictures from which they are several.
        """
        self._given = frozenset(given)
        for name, members in people.items():
            self._names[len(self._people)] = name
            self.add(members, several=len(split_looks(self._faces, members, least)) == least)

    def form(self, members: Ints, clusters: Ints, least: int) -> None:
        """Form an identity from each cluster with enough different pictures.

        `members`: c, faces. `clusters`: c, from 0. `least`: number of pictures.
        """
        order = np.argsort(clusters, kind="stable")
        starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
        found = np.split(members[order], starts[1:]) if len(members) else []
        for part in (part for cluster in found for part in split_people(self._evidence, cluster)):
            own = self._keep_once(part)
            looks = len(split_looks(self._faces, own, least))
            if looks == least:
                self.add(own, several=True)
            self.copies[part] = looks == 1

    def settle(self, known: KnownIdentities, singles: Ints, candidates: Ints, rule: Rule, recognise: float) -> None:
        """Find known people among the clusters, assign single faces, find pairs, and number the identities.

        Known people keep their numbers. The others follow by size of the cluster, then by their first face.

        Args:
            known: people with numbers.
            singles: faces that may be assigned.
            candidates: faces that may form a pair.
            rule: the least evidence.
            recognise: least cosine of one person's two centroids.
        """
        self._pairs = self._match_clusters(known, recognise)
        for other in np.setdiff1d(np.flatnonzero(known.comparable), list(self._pairs.values())).tolist():
            if known.stored[other]["name"] not in {None, *self._given}:
                continue  # the name was corrected: it takes no more faces
            self._pairs[len(self._people)] = other
            self._people.append(known.group(other))
        beside = self._assign(singles, rule)
        left = candidates[(self.of_face[candidates] == NONE) & ~(beside.between | self.twice)[candidates]]
        groups = group_copies(self._evidence, left) if self._evidence.probable else []
        pairs = find_pairs(self._evidence, groups, rule.probability)
        for group in groups:
            self.copies[group] = len(group) > 1 and len(split_looks(self._faces, group, 2)) == 1
        for pair in pairs:
            self.add(self._keep_once(pair), several=False)
        if pairs:
            beside = self._assign(singles, rule)
        self.between = beside.between & (self.of_face == NONE)
        self._measure(beside)
        self._number(known)

    def _keep_once(self, members: Ints) -> Ints:
        """Return a person's members in different frames."""
        vectors = self._faces.vectors[members].astype(np.float64)
        likeness, person = vectors @ vectors.sum(axis=0), np.zeros(len(members), np.int64)
        return np.sort(members[keep_once_per_frame(self._faces, members, person, likeness)])

    def _assign(self, singles: Ints, rule: Rule) -> NearestPeople:
        """Give single faces the most similar identities."""
        beside = compare(self._evidence, self._people, rule)
        clear = singles[(self.of_face[singles] == NONE) & beside.enough[singles]]
        placed = np.flatnonzero(self.of_face != NONE)
        both, people = np.append(placed, clear), np.append(self.of_face[placed], beside.nearest[clear, 0])
        likeness = np.append(np.full(len(placed), np.inf), beside.cosines[clear, 0])
        free = keep_once_per_frame(self._faces, both, people, likeness)[len(placed) :]
        self.of_face[clear[free]] = people[len(placed) :][free]
        self.assigned[clear[free]] = True
        self.twice[clear[~free]] = True
        return beside

    def _match_clusters(self, known: KnownIdentities, min_cosine: float) -> dict[int, int]:
        """Return the known identities of clusters: by name, by centroid, or by faces after a change of the network."""
        if not self._people:
            return {}
        stored = {row["name"]: other for other, row in reversed(list(enumerate(known.stored))) if row["name"]}
        named = {position: stored[name] for position, name in self._names.items() if name in stored}
        here = np.setdiff1d(np.flatnonzero(known.comparable), list(named.values()))
        left = np.setdiff1d(np.arange(len(self._people)), list(named))
        centroids = np.array([self._people[position].centroid for position in left])
        similar = mutual_nearest(centroids, known.centroids[here], min_cosine)
        pairs = named | {int(left[position]): int(here[other]) for position, other in similar}
        return pairs | self._match_by_faces(known, pairs)

    def _match_by_faces(self, known: KnownIdentities, pairs: Mapping[int, int]) -> dict[int, int]:
        """Return identities with more than half of a known one's example faces, if neither has a partner yet."""
        votes = np.zeros((len(self._people), len(known.numbers)))
        for face, position in self._faces.find(known.faces).items():
            if (holder := self.of_face[face]) != NONE:
                votes[holder, position] += 1
        examples = np.bincount(list(known.faces.values()), minlength=len(known.numbers))
        votes[:, 2 * votes.max(axis=0, initial=0) <= examples] = 0
        votes[list(pairs)], votes[:, list(pairs.values())] = 0, 0
        return dict(mutual_nearest(votes, np.eye(len(known.numbers)), 1))

    def _measure(self, beside: NearestPeople) -> None:
        evidence, given = self._evidence, np.flatnonzero(self.of_face != NONE)
        own = self.of_face[given]
        self.similarity, self.runner_up = np.full((2, len(self.of_face)), -1.0)
        self.probability = np.full(len(self.of_face), np.nan)
        if not len(given):
            return
        vectors = self._faces.vectors[given].astype(np.float64)
        self.similarity[given] = np.einsum("nd,nd->n", vectors, np.array([p.centroid for p in self._people])[own])
        place = (beside.nearest[given, 0] == own).astype(int)
        self.runner_up[given] = beside.cosines[given, place]
        if evidence.probable:
            member = ~self.assigned[given]
            excess = evidence.excess_apart(given, [self._people[p] for p in own], member)
            odds = np.exp(weigh(evidence, given, self._people, own[:, None], excess[:, None]))[:, 0]
            self.probability[given] = odds / (len(self._people) + odds + beside.odds[given, place])

    def _number(self, known: KnownIdentities) -> None:
        """Drop people without faces, then summarize and number the others."""
        used = np.unique(self.of_face[self.of_face != NONE])
        members = [np.flatnonzero(self.of_face == p) for p in used]
        self.summaries = [self._summarize(int(p), own, known) for p, own in zip(used, members, strict=True)]
        before = [self._pairs.get(int(p)) for p in used]
        self.groups = [self._people[p] for p in used]
        self.names = [self._names.get(int(p)) for p in used]
        self.of_face = np.where(self.of_face == NONE, NONE, np.searchsorted(used, self.of_face))
        sizes = [-len(self._clusters.get(int(p), own)) for p, own in zip(used, members, strict=True)]
        firsts = [self._clusters.get(int(p), own)[0] for p, own in zip(used, members, strict=True)]
        following = int(known.numbers.max(initial=NONE)) + 1
        self.recognised = np.array([number is not None for number in before], bool)
        self.numbers = np.zeros(len(used), np.int64)
        for position in np.lexsort((firsts, sizes)) if firsts else ():
            number = before[position]
            self.numbers[position] = following if number is None else known.numbers[number]
            following += number is None

    def _summarize(self, person: int, own: Ints, known: KnownIdentities) -> ClusterSummary:
        """Summarize a person; without a cluster the centroid stays."""
        if person in self._clusters:
            return summarize(self._faces.vectors, self._clusters[person], self._exemplars)
        summary = summarize(self._faces.vectors, own, self._exemplars)
        return replace(summary, centroid=known.centroids[self._pairs[person]], cohesion=None)

    def faces_of(self) -> list[Ints]:
        order = np.argsort(self.of_face, kind="stable")
        starts = np.searchsorted(self.of_face[order], np.arange(len(self.numbers) + 1))
        return [order[start:stop] for start, stop in pairwise(starts)]
