"""Shots of a video and the transitions between them.

Tracks and lip sync must not read across a cut. Cuts come from optical flow in small pixels: flashes and passing objects
mislead it less than colours. Fades, dissolves and wipes come from colours in a few pixels, since flow does not show
them. `changes.py`, `transitions.py` and `gradual.py` beside this file have the rules.

Shapes: image uint8 h w 3; a grid is the image at 4 by 4 pixels, uint8 48 in the order row, column, channel.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract import MEDIA_ID, Drawing, Image, Placement, Scope, Stage, Table, Weights, field, views
from framekiln.contract.limits import Positive, Proportion
from framekiln_stages.shots.changes import cut_scores
from framekiln_stages.shots.gradual import DISSOLVE, LEAST_S, gradual, is_mixture, is_other_light
from framekiln_stages.shots.transitions import Transition, boundaries, cuts, fades, flashes, residuals

# Pixels of the grid, each the mean of its tile; with 8, motion moves dissolves 1.6 to 2 times as far off their line.
SIDE = 4
GRID = SIDE * SIDE * 3

FEATURES = pa.schema(
    [
        field("colour_grid", pa.list_(pa.uint8(), GRID), "mean colour in 4 by 4 tiles: row, column, RGB", "code"),
        field("luma_deviation", pa.float32(), "standard deviation of luma; near 0 for a plain colour", "code"),
        field("cut", pa.float32(), "score of a cut before the next frame, 0 to 1, no probability; `shots` uses more"),
    ]
)


class Features(Stage):
    """Features of each frame for finding transitions; only the score of a cut is null, for the last frame."""

    version = 5  # 5: bands of a rolling shutter; 4: captions; 3: small pixels, apart from light and black bars
    scope = Scope.CLIP
    halo = 1
    thread_safe = True
    inputs = ("frame_224",)  # small pixels, since means over large tiles do not depend on the size
    outputs = FEATURES

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The limit of the score."""

        # Residual that scores 0.5. Chosen on ten photos and four videos: of 205 pairs of neighbours in shots at 25
        # frames a second none has over 0.06; of 312 cuts, 12 between speakers before one wall, none under 0.26. On as
        # many others: 0.10 and 0.24.
        cut_residual: Positive = 0.19

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Limit OpenCV to one thread: a frame takes a millisecond or two."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Compute features of consecutive frames: one clip and its halo."""
        with self.phase("infer"):
            images = views(batch["frame_224"])
            tiles = [_average(_average(image, len(image)), SIDE) for image in images]
            grays = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in images]
            spread = [float(cv2.meanStdDev(gray)[1][0, 0]) for gray in grays]
            cut = [*cut_scores(grays, self.config.cut_residual), None][: len(grays)]
        grids = pa.FixedSizeListArray.from_arrays(pa.array(np.array(tiles, np.uint8).reshape(-1)), GRID)
        return pa.table([grids, pa.array(spread, pa.float32()), pa.array(cut, pa.float32())], schema=FEATURES)


def _average(image: Image, height: int) -> Image:
    # columns, then rows: both at once takes four times as long
    return np.asarray(cv2.resize(image, (SIDE, height), interpolation=cv2.INTER_AREA), np.uint8)


SHOTS = pa.schema(
    [
        MEDIA_ID,
        field("shot", pa.int32(), "number of the shot in its file, from 0", nullable=False),
        field("first_frame", pa.int32(), "frame_index of its first frame", nullable=False),
        field("last_frame", pa.int32(), "frame_index of its last frame", nullable=False),
        field("frames", pa.int32(), "number of its computed frames", nullable=False),
        field("start_s", pa.float64(), "time of its first frame; null for a photo", "s"),
        field("end_s", pa.float64(), "time of its last frame; null for a photo", "s"),
    ]
)
KIND = (
    "cut, dissolve, wipe, fade_out or fade_in; what pops up over a sixth of the frame or more is a cut too; wipes are "
    "found with a straight edge, along a side, from 0.24 s on"
)
TRANSITIONS = pa.schema(
    [
        MEDIA_ID,
        field("transition", pa.int32(), "number of the transition in its file, from 0", nullable=False),
        field("kind", pa.string(), KIND, nullable=False),
        field("colour", pa.string(), "black or white; null unless it is a fade"),
        field("first_frame", pa.int32(), "last frame that is wholly of the old image", nullable=False),
        field("last_frame", pa.int32(), "first frame that is wholly of the new image", nullable=False),
    ]
)


class Shots(Stage):
    """Cuts, fades, dissolves and wipes of a file, and the shots between them."""

    version = 9  # 9: shots of one frame are no dissolve; 8: fades of which few frames show a half, strobes
    finds = (("transitions", "cut or fade", "cuts and fades"),)
    scope = Scope.MEDIA
    inputs = ("media_id", "frame_index", "time_s", *FEATURES.names)
    tables: ClassVar[dict[str, Table]] = {
        "shots": Table(schema=SHOTS, keys=("media_id", "shot"), description="shots; every frame is in one"),
        "transitions": Table(
            schema=TRANSITIONS, keys=("media_id", "transition"), description="cuts, fades, dissolves and wipes"
        ),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Thresholds of transitions."""

        cut: Proportion = 0.5  # least score of a cut, the middle of its scale
        # Shortest time between cuts, in seconds; closer cuts are one. A flash or a bad frame takes 1 to 2 frames of
        # 40 ms, a shot rarely under 1/3 s.
        shortest_s: Positive = 0.12
        # Codes. Images before and after a flash differ by less; the flash differs from both by twice as much. Dark
        # images around two real cuts differed by 2 and 10, so similarity alone is not enough.
        flash: Positive = 12.0
        longest_flash_s: Positive = 2.0  # longest decay of a flash's light; 0.2 to 1.1 s in the flashes tried
        # Most luma deviation of a plain frame, in codes: 0.1 in a faded frame, at least 20 in 8 clips without.
        plain: Positive = 6.0
        longest_s: Positive = 3.0  # longest fade, dissolve or wipe; longer ones are rare, and slow pans look like them
        # Least codes between a dissolve's images, an eighth of the scale; the sun coming out changes less.
        dissolve: Positive = 32.0

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """Find the shots of one file; a frame without features takes those of the frame before it."""
        rows = batch.sort_by("frame_index")
        transitions = self.find(rows)
        plain = rows["luma_deviation"].fill_null(np.inf).to_numpy() < self.config.plain
        starts = [0, *boundaries(transitions, plain), len(rows)]
        media, index, time = (rows[name].to_pylist() for name in ("media_id", "frame_index", "time_s"))
        shots = [
            (media[a], number, index[a], index[b - 1], b - a, time[a], time[b - 1])
            for number, (a, b) in enumerate(itertools.pairwise(starts))
            if b > a
        ]
        changes = [
            (media[0], number, item.kind, item.colour or None, index[item.first], index[item.last])
            for number, item in enumerate(transitions)
        ]
        return {"shots": _make_table(shots, SHOTS), "transitions": _make_table(changes, TRANSITIONS)}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        captions = [
            f"shot {shot['shot']}, frames {shot['first_frame']} to {shot['last_frame']}" for shot in row["shots"]
        ]
        captions += [f"in a {item['kind'].replace('_', ' ')}" for item in row["transitions"]]
        return Drawing(caption=", ".join(captions)) if captions else None

    def find(self, rows: pa.Table) -> list[Transition]:
        """Return the transitions between a file's rows, sorted by frame."""
        measured = np.flatnonzero(rows["luma_deviation"].is_valid().to_numpy())
        if not measured.size:
            return []
        # for each row the last one with features, else the first one
        known = measured[np.maximum(np.searchsorted(measured, np.arange(len(rows)), side="right") - 1, 0)]
        grid = np.stack(rows["colour_grid"].take(pa.array(known)).to_numpy(zero_copy_only=False)).astype(np.float32)
        contrast, score = (
            rows[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("luma_deviation", "cut")
        )
        config, times = self.config, rows["time_s"].fill_null(0.0).to_numpy()  # null: a photo, one frame
        brief, longest = (config.cut, config.shortest_s, config.flash), max(LEAST_S, config.longest_s)
        contrast = contrast[known]
        hard = [one for one in cuts(score, grid, times, *brief) if not is_other_light(grid, contrast, one.first)]
        soft = fades(contrast, grid, times, config.plain, longest, [item.last for item in hard])
        bright = flashes(score, grid, times, *brief, config.longest_flash_s)
        hard, soft = ([one for one in own if not any(one.first in each for each in bright)] for own in (hard, soft))
        hard = [item for item in hard if not any(fade.first <= item.first < fade.last for fade in soft)]
        busy = np.zeros(len(grid), np.bool_)
        for item in soft:
            busy[item.first : item.last + 1] = True
        left = residuals(score) * Features.Config().cut_residual
        slow = gradual(grid, contrast, times, config.dissolve, longest, busy)
        slow = [one for one in slow if one.kind != DISSOLVE or is_mixture(left[one.first : one.last])]
        hard = [item for item in hard if not any(one.first <= item.first < one.last for one in slow)]
        return sorted([*hard, *soft, *slow])


def _make_table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
