"""Probabilities that two faces are of one person: a cosine, read with what the network could see of both faces.

Faces without detail resemble each other, whoever they are of: two strangers whose faces of 56 px are blurred by 5 px
have a cosine of 0.67 on average, two sharp ones 0.01. The cosine to expect of strangers is a product of one number of
each face, which follows from its sharpness. What exceeds it is evidence, and weighs more where the embedding is strong.

    excess = cosine - shared(a) shared(b)      log-odds = a + b excess + c excess^2 + d strength + ...
    probability = odds / g / (1 + sum of odds / g)      with g people: as likely one of them as nobody

Shapes: n faces, g people, d numbers of an embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.identities.face_table import FaceTable, Ints

Floats = NDArray[np.float64]
Coefficients = tuple[float, float, float, float, float, float, float]
STRENGTHS = (8.0, 20.0)  # of nearly all faces that the coefficients were chosen on
LEAST_EXCESS = -0.3  # below, the square would make less similar faces likelier
SHARP = (17.0, 0.1)  # median strength and shared of photos as they are
_LARGEST = 50.0  # of log-odds


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The meaning of one recognition network's cosines.

    Coefficients are those of 1, excess, strength, shared, excess x strength, excess x shared and excess squared.
    Strength is that of the weaker side, shared that of the blurrier one.
    """

    sharpness: Sequence[float]  # of aligned faces, ascending
    shared: Sequence[float]  # root of the mean cosine of two strangers of that sharpness
    covered: float  # the same of two strangers with masks
    photo: Coefficients  # a face with one photo of a person
    person: Coefficients  # a face with the centroid of three photos


# Chosen on 467 people of Labeled Faces in the Wild (150 x 150 px, faces of 56 px), each photo as it is and degraded in
# 16 ways: Gaussian blur of 1 to 7 px, faces of 18 to 64 px, both, JPEG at 10, darkness with noise, motion. Tried on 233
# people kept aside (benchmarks/accuracy/likeness.py, docs/measuring/accuracy.md). The first of both was raised by 0.3
# when coverings were left out, since of 171 probabilities of 0.5 to 0.95 0.97 were right.
CALIBRATIONS = {
    "mobilefacenet": Calibration(
        sharpness=(2.3, 2.9, 4.3, 7.2, 11.5, 22.0, 43.0, 60.0, 110.0),
        shared=(0.85, 0.82, 0.72, 0.55, 0.40, 0.27, 0.17, 0.13, 0.10),
        covered=0.45,
        photo=(3.123, -1.107, -0.393, 1.651, 0.912, -0.117, 15.549),
        person=(3.475, -0.422, -0.502, 2.892, 0.92, 1.218, 17.619),
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
        """Length of the sum."""
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
        known = found is not None and bool(np.isfinite(faces.sharpness).all() and np.isfinite(faces.strengths).all())
        self._calibration = found if known else None
        self.shared = np.zeros(len(faces))
        if self._calibration is not None:
            table = self._calibration
            levels = np.log(np.maximum(faces.sharpness, 1e-3))
            sharp = np.interp(levels, np.log(table.sharpness), table.shared)
            self.shared = np.where(faces.covered, np.maximum(sharp, table.covered), sharp)
        self.weighted = np.column_stack([faces.vectors, -self.shared.astype(faces.vectors.dtype)])  # n d+1
        """Embeddings whose products with `mirrored` ones are excesses."""

    @property
    def probable(self) -> bool:
        """Return whether the network is calibrated."""
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
        strength, excess = strength.clip(*STRENGTHS), excess.clip(LEAST_EXCESS)
        products = (excess * strength, excess * shared, excess**2)
        terms = np.stack([np.ones(excess.shape), excess, strength, shared, *products], axis=-1)
        photo, person = terms @ self._calibration.photo, terms @ self._calibration.person
        return np.clip(np.where(several, person, photo), -_LARGEST, _LARGEST)
