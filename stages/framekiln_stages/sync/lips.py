"""Lips of shots, on a part of a file's time grid.

Shapes: g points of the file's grid of `GRID_HZ` a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from framekiln_stages.sync.speech import GRID_HZ, Signal


@dataclass(frozen=True)
class Lips:
    """Lips of one or several shots on a part of the grid."""

    shots: tuple[int, ...]
    lips: Signal  # speed of the opening; NaN where unknown
    at: int  # grid point of the first value
    first: int  # frame_index
    last: int

    @property
    def seconds(self) -> float:
        """Return the duration of known values."""
        return float((~np.isnan(self.lips)).sum()) / GRID_HZ

    @staticmethod
    def joined(parts: "Sequence[Lips]", points: int) -> "Lips":
        """Join the lips of shots of one file, in order, on the whole grid; shots do not overlap."""
        lips = np.full(points, np.nan)
        for part in parts:
            known = np.flatnonzero(~np.isnan(part.lips))
            lips[part.at + known] = part.lips[known]
        return Lips(tuple(shot for part in parts for shot in part.shots), lips, 0, parts[0].first, parts[-1].last)

    def columns(self) -> dict[str, Any]:
        """Return shots, duration and frames, as values of the table `sync`."""
        return {
            "shots": list(self.shots),
            "face_seconds": self.seconds,
            "first_frame": self.first,
            "last_frame": self.last,
        }
