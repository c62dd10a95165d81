"""Drawings of a stage's results over a thumbnail, for the report.

Coordinates are fractions of width and height, from 0 to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Area:
    """A part of an image, filled half transparently and outlined."""

    rings: Sequence[Sequence[tuple[float, float]]]  # closed outlines (x, y); a ring inside another is a hole
    colour: int = 0  # number of the colour in a palette that repeats


@dataclass(frozen=True, kw_only=True)
class Label:
    """Text that begins at a point."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Legend:
    """The meaning of an overlay's colours."""

    image: bytes  # PNG, JPEG or WebP
    text: str


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Shapes and images over one thumbnail."""

    lines: list[tuple[float, float, float, float]] = field(default_factory=list)  # x0, y0, x1, y1
    points: list[tuple[float, float]] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    overlay: bytes | None = None  # image over the whole frame: PNG with transparency
    result_image: bytes | None = None  # frame that the stage made, shown beside the original: PNG, JPEG or WebP
    legend: Legend | None = None
    caption: str = ""
