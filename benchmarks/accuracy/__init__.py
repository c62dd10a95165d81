"""Accuracy of the stages on real media with ground truth, beside the libraries called directly.

Each module measures one subject and has a function `measure()`. docs/measuring/accuracy.md explains the figures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AccuracyFigure:
    """A measured value; `value` and `library` share the unit that `measure` names."""

    subject: str  # "faces", "sync"
    data: str  # the media and its number of items: "obama, biden, single: 96 photos"
    measure: str  # "recall of labelled people", "end-point error, px"
    value: float
    library: float | None = None  # None: no library answers the same question
    better: str = "higher"  # or "lower"

    @property
    def key(self) -> str:
        """Return the name by which two measurements of the same figure are matched."""
        return f"{self.subject} | {self.data} | {self.measure}"
