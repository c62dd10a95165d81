"""Faces compared with people: who is nearest, and whether that suffices to give a face an identity.

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
    """The least evidence for giving a face an identity: a probability, or without one cosines and a quality."""

    probability: float
    cosine: float | None  # None: no face gets one
    margin: float  # lead over the cosine to anybody else
    quality: float


@dataclass(frozen=True, kw_only=True)
class NearestPeople:
    """Each face with its two most similar people."""

    nearest: Ints  # n 2; indices of people, -1: none
    cosines: Floats  # n 2; -1: none
    odds: Floats  # n 2; that both are one person, given equal prior odds; 0: none
    people: int  # people compared
    enough: NDArray[np.bool_]  # n; the face gets the first one's identity
    between: NDArray[np.bool_]  # n; the face belongs to one of two people


def compare(evidence: Evidence, people: Sequence[Group], rule: Rule) -> NearestPeople:
    """Compare faces with people."""
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
    return NearestPeople(
        nearest=nearest, cosines=cosines, odds=odds, people=len(people), enough=enough & there[:, 0] & given,
        between=near & ~enough & given,
    )  # fmt: skip


def weigh(evidence: Evidence, faces: Ints, people: Sequence[Group], positions: Ints, excesses: Floats) -> Floats:
    """Return the log-odds of faces (n) and people (n k) from their indices and excesses (n k)."""
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
