"""Faces beside people: who is the nearest, and whether that is enough to give a face that person's identity.

Shapes: n faces, g people, d numbers of an embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.evidence import Evidence, Floats, Group
from framekiln_stages.identities.face_table import Ints
from framekiln_stages.identities.known import two_nearest


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The least evidence for giving a face somebody's identity: a probability, or without one cosines and a quality."""

    probability: float
    cosine: float | None  # None: no face is given one
    margin: float  # by which the cosine exceeds that to anybody else
    quality: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Each face beside the two people that it is most like."""

    nearest: Ints  # n 2; positions of people, -1 without
    cosines: Floats  # n 2; -1 without
    odds: Floats  # n 2; that faces are of one person, if both were as likely before; 0 without
    people: int  # that all faces were compared with
    enough: NDArray[np.bool_]  # n; to give the face the first one's identity
    between: NDArray[np.bool_]  # n; it is somebody's, but whose?


def compare(evidence: Evidence, people: Sequence[Group], rule: Rule) -> Comparison:
    """Return all faces beside some people."""
    faces = evidence.faces
    targets = np.array([[*group.centroid, group.shared] for group in people]).reshape(
        len(people), evidence.weighted.shape[1]
    )
    nearest, excesses = two_nearest(evidence.weighted, targets)
    there = nearest >= 0
    shared = evidence.shared[:, None] * targets[nearest, -1] if len(people) else 0
    cosines = np.where(there, excesses + shared, -1)
    if evidence.probable:
        odds = np.exp(weigh(evidence, np.arange(len(faces)), people, nearest, excesses)) * there
        first, either = (sums / (max(1, len(people)) + odds.sum(axis=1)) for sums in (odds[:, 0], odds.sum(axis=1)))
        enough, near = first >= rule.probability, either >= rule.probability
    else:
        odds = np.zeros(nearest.shape)
        near = (cosines[:, 0] >= (rule.cosine or 0)) & (faces.qualities >= rule.quality)
        enough = near & (cosines[:, 0] - cosines[:, 1] >= rule.margin)
    given = rule.cosine is not None
    return Comparison(
        nearest=nearest, cosines=cosines, odds=odds, people=len(people), enough=enough & there[:, 0] & given,
        between=near & ~enough & given,
    )  # fmt: skip


def weigh(evidence: Evidence, faces: Ints, people: Sequence[Group], positions: Ints, excesses: Floats) -> Floats:
    """Return the log-odds of faces (n) and people (n k) by their positions and excesses (n k)."""
    if not people:
        return np.zeros(positions.shape)
    strengths, shared, several = (
        np.array([getattr(group, name) for group in people])[positions] for name in ("strength", "shared", "several")
    )
    return evidence.log_odds(
        excesses,
        np.minimum(evidence.faces.strengths[faces, None], strengths),
        np.maximum(evidence.shared[faces, None], shared),
        several,
    )
