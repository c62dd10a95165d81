"""Two photos of one person with nothing else near: the smallest evidence of somebody.

Shapes: n faces, k nearest of each, g groups of copies.
"""

from collections.abc import Sequence

import numpy as np

from framekiln_stages.identities.cosine_knn import Points, plain_float32
from framekiln_stages.identities.evidence import Evidence, Floats
from framekiln_stages.identities.face_table import Ints
from framekiln_stages.identities.looks import are_copies

NEAREST = 16  # nearest faces that are checked: partners and copies


def find_pairs(evidence: Evidence, groups: Sequence[Ints], probability: float) -> list[Ints]:
    """Return pairs of different photos that are each other's only likely partner, with their copies.

    `groups`: faces without a person, copies of one picture together. `probability`: least, for either of them.
    """
    first = np.array([group[0] for group in groups], np.int64)
    if len(first) < 2:
        return []
    nearest, odds = _find_nearest(evidence, first)
    sure = odds[:, 0] / (len(first) + odds.sum(axis=1)) >= probability
    partners = np.where(sure, nearest[:, 0], -1)
    pairs = [(i, int(j)) for i, j in enumerate(partners) if j > i and partners[j] == i]
    return [np.sort(np.concatenate([groups[i], groups[j]])) for i, j in pairs]


def group_copies(evidence: Evidence, candidates: Ints) -> list[Ints]:
    """Return faces (n) with copies of one picture together, the largest first, as it shows most."""
    owner = np.arange(len(candidates))
    if len(candidates) > 1:
        nearest, _ = _find_nearest(evidence, candidates)
        before = np.zeros(len(candidates), bool)
        for i in np.argsort(-evidence.faces.sides[candidates], kind="stable").tolist():
            near = nearest[i][nearest[i] >= 0]
            leaders = np.unique(owner[near[before[near]]])
            same = leaders[are_copies(evidence.faces, int(candidates[i]), candidates[leaders], frames=True)]
            if len(same):  # the others' copies were too far from the first for its nearest faces
                first = int(same[0])
                one = same[are_copies(evidence.faces, int(candidates[first]), candidates[same], frames=True)]
                owner[np.isin(owner, one)] = owner[i] = first
            before[i] = True
    everyone = np.arange(len(candidates))
    return [
        candidates[np.append(leader, everyone[(owner == leader) & (everyone != leader)])]
        for leader in dict.fromkeys(owner.tolist())
    ]


def _find_nearest(evidence: Evidence, faces: Ints) -> tuple[Ints, Floats]:
    """Return each face's nearest faces by index, and the odds that they are one person (n k)."""
    with plain_float32():
        points = Points(evidence.faces.vectors[faces], "cpu", evidence.shared[faces])
        nearest, excesses = points.nearest(np.arange(len(faces)), min(NEAREST, len(faces) - 1), exact=True)
    strengths, shared, frames = (
        values[faces] for values in (evidence.faces.strengths, evidence.shared, evidence.faces.pictures)
    )
    odds = evidence.log_odds(
        excesses,
        np.minimum(strengths[:, None], strengths[nearest]),
        np.maximum(shared[:, None], shared[nearest]),
        np.zeros(nearest.shape, bool),
    )
    possible = (nearest >= 0) & (frames[nearest] != frames[:, None])
    odds = np.where(possible, np.exp(odds), 0)
    order = np.argsort(-odds, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, 1), np.take_along_axis(odds, order, 1)
