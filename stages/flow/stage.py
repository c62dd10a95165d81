"""Motion, camera shake and cuts, from dense optical flow between neighbouring frames.

Motion separates pans from tripod shots, and shake separates hand-held shots from a gimbal's. A cut is where no motion
explains the next frame. The values of frame i depend on frames i, i+1 and (shake only) i+2.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from frame i
to i+1; a camera's motion is a 2 3 matrix in px. Angles are in degrees as seen: 0 right, 90 up, from 0 to below 360.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import cv2
import numpy as np
import pyarrow as pa

from pipeline.contract.columns import Image, field, views
from pipeline.contract.drawing import Drawing, Legend
from pipeline.contract.placement import Placement
from pipeline.contract.stage import Scope, Stage, Weights
from stages.flow import flow_colors, kitti_png
from stages.flow.motion import Camera, Field, Gray, camera, motion, residual, score, shake
from stages.shared.pixel_stage import PixelStage
from stages.shared.result_agreement import float_values, mean_distance, mean_or, unmatched_share

Backend = Literal["dis", "farneback", "raft"]
Preset = Literal["ultrafast", "fast", "medium"]

RAFT_WEIGHTS = ("raft-small-c-t-v2", "raft-small-princeton")
PAIRS = 8  # of frames in one RAFT call: correlations take 5.6 GB a pair at full HD, 8 to 12 MB at 224 px
SMALLEST = 16  # px: DIS matches patches of 8 px on a pyramid

LEGEND = (
    "Colour is where things move (by the Middlebury wheel), white is rest, and full colour is the speed that a "
    "twentieth of the image exceeds. Where the field was not kept (cache), the whole image has its mean's colour."
)
FIELD_OPACITY, TINT_OPACITY = 0.75, 0.3  # of the colours, over the image

OUTPUTS = pa.schema(
    [
        field("motion_mean", pa.float32(), "mean length of the flow to the next frame, in the full-size frame", "px"),
        field("motion_p95", pa.float32(), "95th percentile of that length", "px"),
        field("motion_direction", pa.float32(), "of the mean flow: 0 right, 90 up; null when still", "degree"),
        field("shake", pa.float32(), "RMS change of the camera's motion to the next pair of frames", "frame diagonals"),
        field("cut", pa.float32(), "score of a scene cut before the next frame, 0 to 1; above .5 motion means nothing"),
    ]
)
FLOW_FIELD = field("flow_field", pa.large_binary(), "flow at the computed size as a KITTI 16-bit PNG", "px")


class Flow(PixelStage):
    """Motion, shake and cuts of each frame.

    All values are null for the last frame of a file and for a photo. Shake is also null for the frame before the last.
    """

    scope = Scope.CLIP
    halo = 2  # shake compares the motion i -> i+1 with i+1 -> i+2
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Algorithm, model and size of the flow, and thresholds.

        Raises:
            ValueError: an unknown backend or preset, or weights of another network.
        """

        # RubberWhale, one core: DIS medium 0.23 px in 14 ms, Farneback 0.36 px in 33 ms. RAFT, 0.32 px, runs on a GPU
        # too, where pairs go in batches.
        backend: Backend = "dis"
        # Of RAFT: torchvision's training, 1.99 px on Sintel's clean pass; the authors' own is in the lockfile too.
        model: str = RAFT_WEIGHTS[0]
        preset: Preset = "medium"  # of DIS. Errors on RubberWhale: ultrafast 0.54 px, fast 0.44, medium 0.23
        # Short side, as in frame_224; 0 is full size. Medium at 224 costs what fast costs at full size (8-16 ms) and is
        # nearer to medium at full size: mean motion within 1-4 % against 1-8 %, on four clips of 480p to 720p.
        size: int = 224
        still: float = 0.1  # px of the computed size: shorter motion has the direction of noise
        # Residual that scores 0.5. Of 1,489 pairs inside shots none has over 0.11; of 153 cuts, 25 between takes
        # on one set, none under 0.20.
        cut_residual: float = 0.16
        cache: bool = False  # the dense field too

        def __post_init__(self) -> None:
            backends, presets = get_args(Backend), get_args(Preset)
            for value, known in ((self.backend, backends), (self.preset, presets), (self.model, RAFT_WEIGHTS)):
                if value not in known:
                    raise ValueError(f"{value!r} is none of {', '.join(known)}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, and the size of the full frame, which scales the results."""
        return (self.pixels, "height", "width")

    @property
    def outputs(self) -> pa.Schema:
        """Five numbers; with `cache` also the flow field."""
        return OUTPUTS.append(FLOW_FIELD) if self.config.cache else OUTPUTS

    @property
    def devices(self) -> tuple[str, ...]:  # type: ignore[override]  # it depends on the settings here
        """RAFT runs on a GPU too, OpenCV on the CPU only."""
        return ("cpu", "cuda") if self.config.backend == "raft" else ("cpu",)

    @property
    def weights(self) -> tuple[str, ...]:
        """RAFT's weights; OpenCV has none."""
        return (self.config.model,) if self.config.backend == "raft" else ()

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load RAFT, with random weights where they are missing, and limit OpenCV to one thread.

        Parallel workers scale better than threads inside a pair of frames. Results do not depend on threads.

        Raises:
            ValueError: the file does not contain RAFT's weights.
        """
        cv2.setNumThreads(1)
        if self.config.backend == "raft":
            from stages.nets.raft import Flows

            rows = self.chunk_sizes.get("pairs", PAIRS)
            self._raft = Flows(weights.get(self.config.model), placement, rows, self.phase)
            return
        self.dis = cv2.DISOpticalFlow.create(getattr(cv2, f"DISOPTICAL_FLOW_PRESET_{self.config.preset.upper()}"))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Measure consecutive frames: one clip and its halo."""
        images = views(batch[self.pixels])
        with self.phase("preprocess"):
            grays = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in images]
        raft = self.config.backend == "raft"
        flows = self._learned(images) if raft else itertools.starmap(self.between, itertools.pairwise(grays))
        sides = zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)
        rows: list[dict[str, Any]] = [{} for _ in grays]
        cameras: list[Camera | None] = []
        for row, (now, then), flow, (height, width) in zip(rows, itertools.pairwise(grays), flows, sides, strict=False):
            with self.phase("postprocess"):
                row.update({} if flow is None else self._describe(now, then, flow, height, width))
                cameras.append(None if flow is None else camera(flow))
        for row, gray, pair in zip(rows, grays, itertools.pairwise(cameras), strict=False):
            row["shake"] = shake(*pair, *gray.shape)
        return pa.Table.from_pylist(rows, schema=self.outputs)

    def between(self, now: Gray, then: Gray) -> Field | None:
        """Return OpenCV's flow from a grey frame (h w) to the next; None if sizes differ or are below 16 px."""
        if not _comparable(now, then):
            return None
        with self.phase("infer"):
            if self.config.backend == "dis":
                return self.dis.calc(now, then, None)
            start = np.zeros((*now.shape, 2), np.float32)
            # OpenCV's tutorial settings with two more levels for fast motion; the best of six others gains 0.01 px.
            return cv2.calcOpticalFlowFarneback(now, then, start, 0.5, 5, 15, 3, 5, 1.2, 0)

    def _learned(self, images: Sequence[Image]) -> list[Field | None]:
        """Return RAFT's flow from each RGB frame (h w 3) to the next; None as in `between`."""
        fields: list[Field | None] = [None] * max(0, len(images) - 1)
        for _, group in itertools.groupby(enumerate(itertools.pairwise(images)), lambda item: item[1][0].shape):
            numbers = [number for number, pair in group if _comparable(*pair)]
            for part in self.chunks(numbers, "pairs", PAIRS):
                with self.phase("infer"):
                    flows = self._raft([images[i] for i in part], [images[i + 1] for i in part])
                for i, flow in zip(part, flows, strict=True):
                    fields[i] = flow
        return fields

    def _describe(self, now: Gray, then: Gray, flow: Field, height: int, width: int) -> dict[str, Any]:
        cut = score(residual(now, then, flow), self.config.cut_residual)
        field = {"flow_field": kitti_png.encode(flow)} if self.config.cache else {}
        return motion(flow, height, width, self.config.still) | {"cut": cut} | field

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return differences of the flow's length (relative to its mean) and direction, and the agreement of cuts."""
        mine, others = (float_values(run["motion_mean"]) for run in (a, b))
        length = float(np.nanmean((mine + others) / 2)) if np.isfinite(mine + others).any() else 0.0
        share = mean_distance(mine, others) / length if length else 0.0
        turn = mean_distance(*(float_values(run["motion_direction"]) for run in (a, b)), period=360.0)
        cuts = [float_values(run["cut"]) > 0.5 for run in (a, b)]
        same = mean_or(1.0, cuts[0] == cuts[1])
        missing = unmatched_share(mine, others)
        figures = {"magnitude_difference": share, "direction_difference": turn, "cut_agreement": same}
        return figures | {"drift": min(1.0, max(share, 1 - same, missing))}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return a line along the mean motion, and the colours of the field or of its mean; None without motion."""
        if row.get("motion_mean") is None:
            return None
        lines, direction = [], row["motion_direction"]
        if direction is not None:
            angle = math.radians(direction)
            lines.append((0.5, 0.5, 0.5 + 0.3 * math.cos(angle), 0.5 - 0.3 * math.sin(angle)))
        return Drawing(
            lines=lines,
            overlay=_coloured(row),
            legend=Legend(image=flow_colors.legend(), text=LEGEND),
            caption=f"motion {row['motion_mean']:.1f} px, cut {row['cut']:.2f}",
        )


def _coloured(row: Mapping[str, Any]) -> bytes:
    """Return the stored field in Middlebury's colours as a PNG, or a tint by the mean motion without it."""
    if row.get("flow_field"):
        flow = kitti_png.decode(row["flow_field"])
        lengths = np.linalg.norm(flow, axis=-1)
        known = lengths[np.isfinite(lengths)]
        scale = max(1.0, float(np.percentile(known, 95))) if known.size else 1.0
        return flow_colors.png(flow_colors.colours(flow, scale), FIELD_OPACITY)
    angle = math.radians(row["motion_direction"] or 0.0)
    length = 0.0 if row["motion_direction"] is None else row["motion_mean"]
    mean = np.array([[[length * math.cos(angle), -length * math.sin(angle)]]], np.float32)
    return flow_colors.png(flow_colors.colours(mean, max(1.0, row["motion_p95"] or 0.0)), TINT_OPACITY)


def _comparable(now: Image, then: Image) -> bool:
    return now.shape == then.shape and min(now.shape[:2]) >= SMALLEST
