"""Probabilities that two faces are of one person: a cosine, read with what the network could see of both faces.

Faces without detail resemble each other, whoever they are of: two strangers whose faces of 56 px are blurred by 5 px
have a cosine of 0.67 on average, two sharp ones 0.01. The cosine to expect of strangers is at most a product of one
number of each face: the length of its embedding in directions that all faces without detail share. What exceeds it is
evidence, and weighs more where the embedding is strong.

    excess = cosine - shared(a) shared(b)      log-odds = a + b excess + c excess^2 + d strength + ...
    probability = odds / g / (1 + sum of odds / g)      with g people: as likely one of them as nobody

Shapes: n faces, g people, d numbers of an embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.common_directions import lost_detail
from framekiln_stages.identities.face_table import FaceTable, Ints

Floats = NDArray[np.float64]
Coefficients = tuple[float, float, float, float, float, float, float]
STRENGTHS = (8.0, 20.0)  # of nearly all faces that the coefficients were chosen on
LEAST_EXCESS = -0.3  # below, the square would make less similar faces likelier
MOST_EXCESS = 0.6  # above, no stranger was seen, and nothing says how much surer it makes
SHARP = (17.6, 0.2)  # median strength and shared of photos as they are
# Shared from which a face forms no identity. Of 110 people in 15 kinds of degradation 3 of 200 faces with their own
# number have more, and 11 of 28 with somebody else's; of photos as they are 1 in 20 has more than 0.33.
LOST = 0.45
_LARGEST = 50.0  # of log-odds


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The meaning of one recognition network's cosines.

    Coefficients are those of 1, excess, strength, shared, excess x strength, excess x shared and excess squared.
    Strength is that of the weaker side, shared that of the blurrier one.
    """

    covered: float  # least shared of a face with a mask
    photo: Coefficients  # a face with one photo of a person
    person: Coefficients  # a face with the centroid of three photos


# Chosen on 110 people of Labeled Faces in the Wild (150 x 150 px, faces of 56 px), each photo as it is and degraded in
# 34 ways (`common_directions`), and on three photos each of 24 of them and others. Tried on people kept aside
# (benchmarks/accuracy/likeness.py, docs/measuring/accuracy.md). The first of each was lowered by 0.5 and 1.5, since of
# probabilities of 0.95 to 0.99 0.5 to 0.8 less of the log-odds was true, and 2 of 2,113 probes kept aside were wrong.
CALIBRATIONS = {
    "mobilefacenet": Calibration(
        covered=0.45,
        photo=(-0.671, 6.343, -0.328, 6.501, 0.494, 0.555, 25.925),
        person=(-2.31, 22.874, -0.511, 12.165, -0.414, 9.625, 32.126),
    )
}
"""By recognition network. Of other networks there is no probability."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Faces of one person, and what is needed to read cosines to their centroid."""

    total: Floats  # d; sum of their embeddings
    shared_total: float  # sum of `shared`
    strength: float  # mean of its faces
    several: bool  # three photos and more

    @property
    def length(self) -> float:
        return max(float(np.linalg.norm(self.total)), 1e-9)

    @property
    def centroid(self) -> Floats:
        """Direction of the sum, d, of length 1."""
        return np.asarray(self.total / self.length)

    @property
    def shared(self) -> float:
        """The root of the mean cosine that strangers have with the centroid, 0 to 1."""
        return self.shared_total / self.length


class Evidence:
    """The faces of a run and what is known of each as evidence.

    `shared` is n, zeros where the network is not calibrated; `probable` says whether there are probabilities.
    """

    def __init__(self, faces: FaceTable) -> None:
        self.faces = faces
        found = CALIBRATIONS.get(faces.network or "")
        self._calibration = found if np.isfinite(faces.strengths).all() else None
        self.shared = np.zeros(len(faces))
        if self._calibration is not None:
            lost = np.linalg.norm(faces.vectors @ lost_detail(faces.network, faces.vectors.shape[1]), axis=1)
            self.shared = np.where(faces.covered, np.maximum(lost, self._calibration.covered), lost)
        self.weighted = np.column_stack([faces.vectors, -self.shared.astype(faces.vectors.dtype)])  # n d+1
        """Embeddings whose products with `mirrored` ones are excesses."""

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Return which faces show too little to begin a person, also covered ones (n); none uncalibrated."""
        return np.asarray(self.shared >= LOST, np.bool_)

    @property
    def probable(self) -> bool:
        return self._calibration is not None

    def least_excess(self, faces: int) -> float:
        """Return the excess at which a sharp photo is as likely one of some faces' as a stranger's; 0 uncalibrated.

        Among more faces strangers come nearer.
        """
        if self._calibration is None:
            return 0.0
        excesses = np.linspace(0, 1, 1001)
        strength, shared = (np.full(len(excesses), value) for value in SHARP)
        odds = self.log_odds(excesses, strength, shared, np.zeros(len(excesses), bool))
        return float(np.interp(np.log(max(1, faces)), odds, excesses))

    def group(self, members: Ints, several: bool) -> Group:
        """Return some faces of one person as a group."""
        return Group(
            total=self.faces.vectors[members].astype(np.float64).sum(axis=0),
            shared_total=float(self.shared[members].sum()),
            strength=float(self.faces.strengths[members].mean()),
            several=several,
        )

    def excess_apart(self, faces: Ints, groups: Sequence[Group], member: NDArray[np.bool_]) -> Floats:
        """Return the excess of faces (n) and their groups, each group without the face where it is a member."""
        vectors, shared = self.faces.vectors[faces].astype(np.float64), self.shared[faces]
        totals = np.array([group.total for group in groups]) - vectors * member[:, None]
        lengths = np.maximum(np.linalg.norm(totals, axis=1), 1e-9)
        others = np.array([group.shared_total for group in groups]) - shared * member
        return np.asarray((np.einsum("nd,nd->n", vectors, totals) - shared * others) / lengths)

    def log_odds(self, excess: Floats, strength: Floats, shared: Floats, several: NDArray[np.bool_]) -> Floats:
        """Return the natural logarithm of the odds that faces are of one person, if both were as likely before.

        Args:
            excess: any shape, as all.
            strength: of the weaker side.
            shared: of the blurrier side.
            several: whether the other side is a person of three photos and more.
        """
        assert self._calibration is not None
        strength, excess = strength.clip(*STRENGTHS), excess.clip(LEAST_EXCESS, MOST_EXCESS)
        products = (excess * strength, excess * shared, excess**2)
        terms = np.stack([np.ones(excess.shape), excess, strength, shared, *products], axis=-1)
        photo, person = terms @ self._calibration.photo, terms @ self._calibration.person
        return np.clip(np.where(several, person, photo), -_LARGEST, _LARGEST)
