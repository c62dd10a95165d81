"""Probabilities that two faces are one person, from their cosine and from how much the network could see of them.

Faces without detail resemble each other, whoever they are. Two strangers' faces of 56 px, blurred by 5 px, have a mean
cosine of 0.67. Sharp ones have 0.01. The expected cosine of strangers is at most the product of one number of each
face. That number is its embedding's length in directions that all faces without detail share. The excess over it is
evidence, and weighs more if the embedding is strong.

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
STRENGTHS = (8.0, 20.0)  # range of nearly all faces that the coefficients were chosen on
LEAST_EXCESS = -0.3  # below, the square would make less similar faces likelier
MOST_EXCESS = 0.6  # above, no stranger was seen, so more excess adds no certainty
SHARP = (17.6, 0.2)  # median strength and shared of unchanged photos
# Least `shared` with which a face forms no identity. Of 110 people in 15 kinds of degradation, 3 of 200 faces with
# their own number have more, and 11 of 28 with another's. Of unchanged photos 1 in 20 has more than 0.33.
LOST = 0.45
_LARGEST = 50.0  # log-odds


@dataclass(frozen=True, kw_only=True)
class CosineMeaning:
    """The meaning of a recognition network's cosines.

    Coefficients belong to 1, excess, strength, shared, excess x strength, excess x shared and excess squared. Strength
    is that of the weaker side, shared that of the blurrier side.
    """

    covered: float  # least shared of a face with a mask
    photo: Coefficients  # coefficients for a face and one photo of a person
    person: Coefficients  # coefficients for a face and the centroid of three photos


# Chosen on 110 people of Labeled Faces in the Wild (150 x 150 px, faces of 56 px), each photo unchanged and degraded in
# 34 ways (`common_directions`), and on three photos each of 24 of them and others. Tried on held-out people
# (benchmarks/accuracy/likeness.py, docs/measuring/accuracy.md). The first coefficient of each was lowered by 0.5 and
# 1.5: for probabilities of 0.95 to 0.99 the true log-odds were 0.5 to 0.8 less, and 2 of 2,113 held-out probes were
# wrong.
CALIBRATIONS = {
    "mobilefacenet": CosineMeaning(
        covered=0.45,
        photo=(-0.671, 6.343, -0.328, 6.501, 0.494, 0.555, 25.925),
        person=(-2.31, 22.874, -0.511, 12.165, -0.414, 9.625, 32.126),
    )
}
"""Calibrations by recognition network. Other networks have no probabilities."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Faces of one person, and the numbers for reading cosines to their centroid."""

    total: Floats  # d; sum of their embeddings
    shared_total: float  # sum of `shared`
    strength: float  # mean of its faces
    several: bool  # true for three photos and more

    @property
    def length(self) -> float:
        return max(float(np.linalg.norm(self.total)), 1e-9)

    @property
    def centroid(self) -> Floats:
        """The direction of the sum, d, of length 1."""
        return np.asarray(self.total / self.length)

    @property
    def shared(self) -> float:
        """The root of the mean cosine of strangers with the centroid, 0 to 1."""
        return self.shared_total / self.length


class Evidence:
    """The faces of a run, and each one's numbers as evidence.

    `shared`: n, zeros for uncalibrated networks. `probable`: true if there are probabilities.
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
        """Embeddings; their products with `mirrored` ones are excesses."""

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Return which faces show too little to begin a person, also covered ones (n); none if uncalibrated."""
        return np.asarray(self.shared >= LOST, np.bool_)

    @property
    def probable(self) -> bool:
        return self._calibration is not None

    def least_excess(self, faces: int) -> float:
        """Return the excess at which a sharp photo shows the person as likely as a stranger; 0 if uncalibrated.

        Among more faces, strangers come nearer.
        """
        if self._calibration is None:
            return 0.0
        excesses = np.linspace(0, 1, 1001)
        strength, shared = (np.full(len(excesses), value) for value in SHARP)
        odds = self.log_odds(excesses, strength, shared, np.zeros(len(excesses), bool))
        return float(np.interp(np.log(max(1, faces)), odds, excesses))

    def group(self, members: Ints, several: bool) -> Group:
        return Group(
            total=self.faces.vectors[members].astype(np.float64).sum(axis=0),
            shared_total=float(self.shared[members].sum()),
            strength=float(self.faces.strengths[members].mean()),
            several=several,
        )

    def excess_apart(self, faces: Ints, groups: Sequence[Group], member: NDArray[np.bool_]) -> Floats:
        """Return the excess of faces (n) and their groups; a group excludes the face itself."""
        vectors, shared = self.faces.vectors[faces].astype(np.float64), self.shared[faces]
        totals = np.array([group.total for group in groups]) - vectors * member[:, None]
        lengths = np.maximum(np.linalg.norm(totals, axis=1), 1e-9)
        others = np.array([group.shared_total for group in groups]) - shared * member
        return np.asarray((np.einsum("nd,nd->n", vectors, totals) - shared * others) / lengths)

    def log_odds(self, excess: Floats, strength: Floats, shared: Floats, several: NDArray[np.bool_]) -> Floats:
        """Return the log-odds (natural) that faces are one person, given equal prior odds.

        Args:
            excess: any shape, shared by all arguments.
            strength: of the weaker side.
            shared: of the blurrier side.
            several: the other side is a person of three photos and more.
        """
        assert self._calibration is not None
        strength, excess = strength.clip(*STRENGTHS), excess.clip(LEAST_EXCESS, MOST_EXCESS)
        products = (excess * strength, excess * shared, excess**2)
        terms = np.stack([np.ones(excess.shape), excess, strength, shared, *products], axis=-1)
        photo, person = terms @ self._calibration.photo, terms @ self._calibration.person
        return np.clip(np.where(several, person, photo), -_LARGEST, _LARGEST)
