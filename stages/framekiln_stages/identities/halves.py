"""Clusters of two people, found by comparing their halves: one person's are alike as wholes, not by a single pair.

HDBSCAN joins groups by their nearest faces, and among many strangers in hats or hoods some pair is near.

Shapes: m members of a cluster, d numbers of an embedding.
"""

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.evidence import Evidence, Floats
from framekiln_stages.identities.face_table import Ints

# Mean excess of two halves of one person. Chosen on 120 people of Labeled Faces in the Wild with ten kinds of drawn
# coverings: from 0.35 to 0.45 as many faces join clusters of others; at 0.3 three times as many do (docs/log.md).
LEAST_ALIKE = 0.35
_STEPS = 5  # rounds of moving faces to the nearer half


def split_people(evidence: Evidence, members: Ints) -> list[Ints]:
    """Return the members of a cluster (m), split until the halves of each part are alike."""
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
