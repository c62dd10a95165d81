"""Which frames of a video are one shot, so that nobody is followed across a cut, nor lips held against others' speech.

Cuts come from optical flow, which no flash or passer-by deceives as colours would; fades and dissolves from colours in
a few pixels, which flow cannot see. `stages/nets/transitions.py` holds the rules.

Shapes: image uint8 h w 3; a grid is the picture at 4 by 4 pixels, uint8 48 in the order row, column, channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pyarrow as pa

from pipeline.columns import MEDIA_ID, Image, field, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Table, Weights
from stages.nets.transitions import Transition, boundaries, cuts, dissolves, fades

SIDE = 4  # pixels of the grid; at 8, motion inside shots takes dissolves 1.6 to 2 times as far off their line
GRID = SIDE * SIDE * 3

FEATURES = pa.schema(
    [
        field("colour_grid", pa.list_(pa.uint8(), GRID), "mean colour in 4 by 4 tiles: row, column, RGB", "code"),
        field("luma_deviation", pa.float32(), "standard deviation of luma; near 0 for a plain colour", "code"),
    ]
)


class Features(Stage):
    """What fades and dissolves are found by, of each frame alone."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Small pixels: means over large tiles do not depend on the size."""
        return ("frame_224",)

    @property
    def outputs(self) -> pa.Schema:
        """The colours of 16 tiles and one number; never null."""
        return FEATURES

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Keep OpenCV to one thread: a frame takes a fraction of a millisecond."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Values as in `outputs` for any frames, of any sizes."""
        with self.phase("infer"):
            images = views(batch["frame_224"])
            grids = np.array([tiles(image) for image in images], np.uint8).reshape(-1)
            spread = [float(cv2.meanStdDev(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[1][0, 0]) for image in images]
        column = pa.FixedSizeListArray.from_arrays(pa.array(grids), GRID)
        return pa.table([column, pa.array(spread, pa.float32())], schema=FEATURES)


def tiles(image: Image) -> Image:
    """The picture (h w 3) at 4 by 4 pixels, each the mean of its tile."""
    return np.asarray(cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA), np.uint8)


SHOTS = pa.schema(
    [
        MEDIA_ID,
        field("shot", pa.int32(), "number of the shot in its file, from 0", nullable=False),
        field("first_frame", pa.int32(), "frame_index of its first frame", nullable=False),
        field("last_frame", pa.int32(), "frame_index of its last frame", nullable=False),
        field("frames", pa.int32(), "frames that were looked at", nullable=False),
        field("start_s", pa.float64(), "time of its first frame; null for a photo", "s"),
        field("end_s", pa.float64(), "time of its last frame; null for a photo", "s"),
    ]
)
TRANSITIONS = pa.schema(
    [
        MEDIA_ID,
        field("transition", pa.int32(), "number of the transition in its file, from 0", nullable=False),
        field("kind", pa.string(), "cut, dissolve, fade_out or fade_in", nullable=False),
        field("colour", pa.string(), "black or white; null unless it is a fade"),
        field("first_frame", pa.int32(), "last frame that is wholly of the old picture", nullable=False),
        field("last_frame", pa.int32(), "first frame that is wholly of the new picture", nullable=False),
    ]
)


class Shots(Stage):
    """Cuts, fades and dissolves of a file, and the shots between them."""

    scope = Scope.MEDIA

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """What counts as a transition.

        Raises:
            ValueError: a score outside 0 to 1, or a length or a number of codes that is not positive.
        """

        cut: float = 0.5  # score of flow's: its own middle between pairs inside shots and real cuts
        # Frames between two cuts that are one: a flash or a bad frame is 1 to 2 long, a shot hardly under 8 (1/3 s).
        shortest: int = 3
        # codes: the same picture before and after a flash, which differs from both by twice that. Dark pictures on both
        # sides of two real cuts were 2 and 10 apart, so that likeness alone says nothing.
        flash: float = 12.0
        plain: float = 6.0  # codes of luma deviation: a faded frame had .1, the least of 8 clips without a fade 20
        longest: int = 75  # frames, three seconds at 25 fps: longer ones are rare, and a slow pan is straight too
        dissolve: float = 32.0  # codes between the pictures, an eighth of the scale: sunlight coming out changes less

        def __post_init__(self) -> None:
            if not 0 <= self.cut <= 1:
                raise ValueError(f"cut must lie between 0 and 1, not {self.cut}")
            if min(self.shortest, self.flash, self.plain, self.dissolve) <= 0 or self.longest < 4:
                raise ValueError("shortest, flash, plain and dissolve must be above 0, and longest at least 4")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Features of all frames of a file, and flow's score of a cut."""
        return ("media_id", "frame_index", "time_s", "cut", *FEATURES.names)

    @property
    def tables(self) -> dict[str, Table]:
        """One row a shot, and one a transition."""
        return {
            "shots": Table(schema=SHOTS, keys=("media_id", "shot"), description="shots; every frame is in one"),
            "transitions": Table(
                schema=TRANSITIONS, keys=("media_id", "transition"), description="cuts, fades and dissolves"
            ),
        }

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """All frames of one file, in any order; a frame whose features failed is taken for the one before it."""
        rows = batch.sort_by("frame_index")
        found = self.find(rows)
        starts = [0, *boundaries(found, len(rows)), len(rows)]
        media, index, time = (rows[name].to_pylist() for name in ("media_id", "frame_index", "time_s"))
        shots = [
            (media[a], number, index[a], index[b - 1], b - a, time[a], time[b - 1])
            for number, (a, b) in enumerate(itertools.pairwise(starts))
            if b > a
        ]
        changes = [
            (media[0], number, item.kind, item.colour or None, index[item.first], index[item.last])
            for number, item in enumerate(found)
        ]
        return {"shots": _table(shots, SHOTS), "transitions": _table(changes, TRANSITIONS)}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Which shot the frame lies in, and the transition that it is part of, in words."""
        said = [f"shot {one['shot']}, frames {one['first_frame']} to {one['last_frame']}" for one in row["shots"]]
        said += [f"in a {one['kind'].replace('_', ' ')}" for one in row["transitions"]]
        return Drawing(caption=", ".join(said)) if said else None

    def find(self, rows: pa.Table) -> list[Transition]:
        """Transitions between a file's rows, which are in order."""
        known = _fill(rows["luma_deviation"].is_valid().to_numpy())
        if known is None:
            return []
        grid = np.stack(rows["colour_grid"].take(pa.array(known)).to_numpy(zero_copy_only=False)).astype(np.float32)
        contrast, score = (
            rows[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("luma_deviation", "cut")
        )
        config = self.config
        hard = cuts(score, grid, config.cut, config.shortest, config.flash)
        soft = fades(contrast[known], grid, config.plain, config.longest, [item.last for item in hard])
        hard = [item for item in hard if not any(fade.first <= item.first < fade.last for fade in soft)]
        busy = np.zeros(len(grid), np.bool_)
        for item in (*hard, *soft):
            busy[item.first : item.last + 1] = True
        return sorted([*hard, *soft, *dissolves(grid, config.dissolve, config.longest, busy)])


def _fill(known: Any) -> Any:
    """For each row, the last known row up to it, or the first known one; None where none is."""
    at = np.flatnonzero(known)
    if not at.size:
        return None
    return at[np.maximum(np.searchsorted(at, np.arange(len(known)), side="right") - 1, 0)]


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
