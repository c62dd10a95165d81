"""The best of several copies, of photos and of films, and why it is the best.

Shapes: n copies in one table; a group is some of their positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.shared.result_agreement import float_values

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Copies:
    """What decides which of some copies is the best."""

    detail: Values  # n; logarithm of px of a short side
    flaws: Values  # n; blockiness, and noise: 5 codes are as bad as a blockiness of 1
    pixels: Values  # n; inside of bars
    bare: Values  # n; 1 without bars

    @classmethod
    def measure(cls, rows: pa.Table) -> "Copies":
        """Read sizes, bars and columns of `quality`. A copy without a sharp edge has no detail."""
        own = {name: np.nan_to_num(float_values(rows[name])) for name in ("sharpness", "blockiness", "noise")}
        bars = [bar or {} for bar in rows["bars"].to_pylist()]
        height, width = (
            float_values(rows[name]) - [bar.get(a, 0) + bar.get(b, 0) for bar in bars]
            for name, a, b in (("height", "top", "bottom"), ("width", "left", "right"))
        )
        return cls(
            detail=np.log(np.maximum(own["sharpness"], 1.0)),
            flaws=own["blockiness"] + own["noise"] / 5,
            pixels=height * width,
            bare=np.array([float(not any(bar.values())) for bar in bars]),
        )

    @classmethod
    def concat(cls, parts: Sequence["Copies"]) -> "Copies":
        """Join copies."""
        return cls(
            **{
                name: np.concatenate([np.empty(0), *(vars(part)[name] for part in parts)])
                for name in cls.__annotations__
            }
        )

    def median(self) -> "Copies":
        """Return the medians as one copy: those of a film's frames are the film's."""
        return Copies(**{name: np.median(values, keepdims=True) for name, values in vars(self).items()})

    def order(self, group: Sequence[int]) -> dict[int, str]:
        """Return the members of a group, the best first, each with why it is better than all after it."""
        left, found = list(group), {}
        while left:
            best, reason = self.choose(left)
            found[best] = reason
            left.remove(best)
        return found

    def choose(self, group: Sequence[int]) -> tuple[int, str]:
        """Return the best of a group, the first of equal ones, and the name of what decides."""
        left = np.array(group)
        for reason, values, margin in (
            ("sharper", self.detail, 0.05),
            ("cleaner", -self.flaws, 0.1),
            ("larger", self.pixels, 0.0),
            ("bare", self.bare, 0.0),
        ):
            left = left[values[left] >= values[left].max() - margin]
            if len(left) == 1:
                return int(left[0]), reason
        return int(left[0]), "first"
