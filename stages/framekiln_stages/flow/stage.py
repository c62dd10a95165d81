"""Motion and camera shake, from dense optical flow between neighbouring frames.

Motion separates pans from tripod shots, and shake separates hand-held shots from a gimbal's. The values of frame i
depend on frames i, i+1 and (shake only) i+2.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from frame i
to i+1; a camera's motion is a 2 3 matrix in px. Angles are in degrees as seen: 0 right, 90 up, from 0 to below 360.
"""

import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract import Drawing, Image, Legend, Placement, Scope, Stage, Weights, field, views
from framekiln.contract.limits import Natural, Proportion
from framekiln_stages.flow import flow_colors
from framekiln_stages.flow.motion import (
    DOUBTFUL,
    SMALLEST,
    Camera,
    Field,
    Motion,
    agreement,
    camera,
    motion,
    settle,
    shake,
    unstripe,
)
from framekiln_stages.shared.grey_images import Gray
from framekiln_stages.shared.result_agreement import float_values, mean_distance, unmatched_share
from framekiln_stages.shared.settings import PixelStage

PAIRS = 8  # pairs of frames in one RAFT call: correlations take 5.6 GB a pair at full HD, 8 to 12 MB at 224 px
# A rough flow back: px of both sides that are compared, and its allowed error in squared px. Chosen on 291 pairs of
# real films and made pairs: with its agreement it takes 0.23 of the flow's time. Every pair that it confirms has at
# least 0.8 by a full flow back. Of neighbours in films it leaves 22 in 100 in doubt, the full one 18.
EVERY, ROUGHLY = 4, 1.5
# Changes of DIS presets. `short` takes 0.87 of the medium preset's time and is as exact (RubberWhale 0.226 px both;
# artificial motion of 20 and 45 px 0.22 for 0.23 and 1.4 for 1.9), but agrees less for large motion. `rough` takes a
# fifth, at half the size: more pixels than `fast`, without its refinement. `back` takes 0.46. It finds the agreement of
# doubtful pairs within 0.05, but less where motion is large.
KINDS = {
    "preset": {},
    "short": {"GradientDescentIterations": 8},
    "back": {"PatchStride": 5, "VariationalRefinementIterations": 2},
    "rough": {
        "FinestScale": 0,
        "PatchStride": 6,
        "GradientDescentIterations": 12,
        "VariationalRefinementIterations": 0,
    },
}
LARGE = 0.6  # agreement below which motion may be too large for `short` and `back`: up to 90 px of 1242 they have more

OUTPUTS = pa.schema(
    [
        field(
            "motion_mean",
            pa.float32(),
            "mean length of the flow to the next frame, in px of the full frame; null below 0.5 motion_agreement, and "
            "where below 0.75 further looks find another motion",
            "px",
        ),
        field("motion_p95", pa.float32(), "95th percentile of that length; null as `motion`", "px"),
        field(
            "motion_direction",
            pa.float32(),
            "of the mean flow: 0 right, 90 up, below 360; null likewise and when still",
            "degree",
        ),
        field(
            "motion_agreement",
            pa.float32(),
            "share of pixels that the flow to the next frame and back returns to their start, 0 to 1",
        ),
        field(
            "shake",
            pa.float32(),
            "RMS change of the camera's motion to the next pair of frames; null where either does not agree",
            "frame diagonals",
        ),
    ]
)
FLOW_FIELD = field(
    "flow_field",
    pa.large_binary(),
    "flow at the computed size as a KITTI 16-bit PNG: x right, y down, to the next frame",
    "px",
)


class Flow(PixelStage):
    """Motion and shake of each frame.

    All values are null for the last frame of a file and for a photo. Shake is also null for the frame before the last.
    Motion and shake are null if the flow back does not confirm the flow, for instance at a cut.
    """

    version = 7  # 7: pairs in doubt are confirmed by a cheaper flow back; the rough one counts fewer pixels
    scope = Scope.CLIP
    halo = 2  # shake compares the motion i -> i+1 with i+1 -> i+2
    dummy_weights = True
    chunk_kinds = ("pairs",)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Algorithm, model and size of the flow, and thresholds."""

        # Algorithm. RubberWhale on one core: DIS medium 0.23 px in 14 ms, Farneback 0.36 px in 33 ms. RAFT, 0.32 px,
        # also runs on a GPU, with pairs in batches.
        backend: Literal["dis", "farneback", "raft"] = "dis"
        # Weights of RAFT: torchvision's, 1.99 px on Sintel's clean pass, or the authors'.
        model: Literal["raft-small-c-t-v2", "raft-small-princeton"] = "raft-small-c-t-v2"
        # Effort of DIS. Errors on RubberWhale: ultrafast 0.54 px, fast 0.44, medium 0.23.
        preset: Literal["ultrafast", "fast", "medium"] = "medium"
        # Short side of the computed flow in px; 0: full size. frame_224 has a short side of 224 to 447 px. If the flow
        # there and back does not agree, it is computed again at this size and without smooth light (`flow.motion`), and
        # the surest is taken: in 11 made pairs with motion of 120 px the error falls from 8.5 to 3.6 px, while this
        # size alone doubles errors up to 60 px. Medium at 224 costs what fast costs at full size, and is nearer to
        # medium at full size: mean motion within 1-4 % against 1-8 %, on four clips of 480p to 720p.
        size: Natural = 224
        still: float = 0.1  # px of the computed size; shorter motion gets no direction, since that would be noise
        # Least agreement; below it motion is null. In 55 made pairs of 1242x375 with motion of 10 to 250 px, the mean
        # length is off by 0 to 27 % above 0.5, by half on average below, and by up to 37 % above on three other photos.
        # There 0.14, 0.37, 0.65 and 0.95 of the pixels agree, and 0.10, 0.27, 0.60 and 0.99 are right: within 1.8 px at
        # the computed size or 5 %.
        min_agreement: Proportion = 0.5
        cache: bool = False  # also write the dense field

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
        Raises ValueError: the file does not contain RAFT's weights.
        """
        cv2.setNumThreads(1)
        if self.config.backend == "raft":
            from framekiln_stages.nets.raft import Flows

            rows = self.chunk_sizes.get("pairs", PAIRS)
            self._raft = Flows(weights.get(self.config.model), placement, rows, self.phase)
            return
        self._own = threading.local()  # DIS keeps its pyramids between calls

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Measure consecutive frames: one clip and its halo."""
        with self.phase("preprocess"):
            images = views(batch[self.pixels])
            grays = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in images]
        sides = zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)
        rows: list[dict[str, Any]] = [{} for _ in grays]
        cameras: list[Camera | None] = []
        pairs = itertools.starmap(self._look, itertools.pairwise(grays))
        looks = self._run_raft(images) if self.config.backend == "raft" else pairs
        for row, found, side in zip(rows, looks, sides, strict=False):
            with self.phase("postprocess"):
                row.update({} if found is None else self._describe(found, *side))
                cameras.append(None if found is None or row["motion_mean"] is None else camera(found.flow))
        for row, gray, pair_of in zip(rows, grays, itertools.pairwise(cameras), strict=False):
            row["shake"] = shake(*pair_of, *gray.shape)
        return pa.Table.from_pylist(rows, schema=self.outputs)

    def _look(self, now: Gray, then: Gray) -> Motion | None:
        # A clip's last pair lies in its halo, and is the first pair of the next clip: a tenth of the pairs at full HD.
        before = getattr(self._own, "pair", None)
        if before is not None and np.array_equal(before[0], now) and np.array_equal(before[1], then):
            return self._own.found
        self._own.pair, self._own.found = (now, then), self._look_closely(now, then)
        return self._own.found

    def _look_closely(self, now: Gray, then: Gray) -> Motion | None:
        # The cheapest flow back confirms what it can; only pairs in doubt are computed again.
        if not _is_comparable(now, then):
            return None
        flow = self.between(now, then, "short")
        found = Motion(flow, agreement(flow, self._guess(then, now), EVERY, ROUGHLY))
        again = (now, then, self.config.size, self._confirm)
        if found.agreement < DOUBTFUL:
            found = self._confirm(now, then, flow)
            found = settle(found, *again) if found.agreement < DOUBTFUL else found
        return unstripe(found, *again, self._guess)

    def _guess(self, now: Gray, then: Gray) -> Field:
        """Return a rough flow at half the size, in px of that size."""
        half = (now.shape[1] // 2, now.shape[0] // 2)
        now, then = (cv2.resize(each, half, interpolation=cv2.INTER_AREA) for each in (now, then))
        return self.between(now, then, "rough")

    def _confirm(self, now: Gray, then: Gray, short: Field | None = None) -> Motion:
        flow = self.between(now, then) if short is None else short
        sure = agreement(flow, self.between(then, now, "back"), 2, ROUGHLY)
        if sure < LARGE:
            flow = flow if short is None else self.between(now, then)
            sure = agreement(flow, self.between(then, now), 2)
        return Motion(flow, sure)

    def between(self, now: Gray, then: Gray, kind: str = "preset") -> Field:
        """Return OpenCV's flow from a grey frame (h w, at least 12 px) to the next, by one of `KINDS`."""
        with self.phase("infer"):
            if self.config.backend == "dis" or kind in ("rough", "back"):
                return self._get_dis(kind).calc(now, then, None)
            start = np.zeros((*now.shape, 2), np.float32)
            # OpenCV's tutorial settings with two more levels for fast motion; the best of six others gains 0.01 px.
            return cv2.calcOpticalFlowFarneback(now, then, start, 0.5, 5, 15, 3, 5, 1.2, 0)

    def _get_dis(self, kind: str) -> cv2.DISOpticalFlow:
        # one for each thread
        if not hasattr(self._own, kind):
            dis = cv2.DISOpticalFlow.create(getattr(cv2, f"DISOPTICAL_FLOW_PRESET_{self.config.preset.upper()}"))
            for name, value in KINDS[kind].items():
                getattr(dis, f"set{name}")(value)
            setattr(self._own, kind, dis)
        found: cv2.DISOpticalFlow = getattr(self._own, kind)
        return found

    def _run_raft(self, images: Sequence[Image]) -> list[Motion | None]:
        """Return RAFT's flow from each RGB frame (h w 3) to the next; None as in `between`."""
        looks: list[Motion | None] = [None] * max(0, len(images) - 1)
        for _, group in itertools.groupby(enumerate(itertools.pairwise(images)), lambda item: item[1][0].shape):
            numbers = [number for number, pair in group if _is_comparable(*pair)]
            for part in self.chunks(numbers, "pairs", PAIRS):
                with self.phase("infer"):
                    both = self._raft(images[part[0] : part[-1] + 2])
                for i, flow, back in zip(part, *both, strict=True):
                    looks[i] = Motion(flow, agreement(flow, back))
        return looks

    def _describe(self, look: Motion, height: int, width: int) -> dict[str, Any]:
        flow, sure = look.flow, look.agreement
        given = look.known and sure >= self.config.min_agreement
        known = motion(flow, height, width, self.config.still) if given else {}
        field = {"flow_field": flow_colors.encode(flow)} if self.config.cache else {}
        return {"motion_mean": None} | known | {"motion_agreement": sure} | field

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return differences of the flow's length (relative to its mean) and direction."""
        mine, others = (float_values(run["motion_mean"]) for run in (a, b))
        length = float(np.nanmean((mine + others) / 2)) if np.isfinite(mine + others).any() else 0.0
        share = mean_distance(mine, others) / length if length else 0.0
        turn = mean_distance(*(float_values(run["motion_direction"]) for run in (a, b)), period=360.0)
        missing = unmatched_share(mine, others)
        figures = {"magnitude_difference": share, "direction_difference": turn}
        return figures | {"drift": min(1.0, max(share, missing))}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return a line along the mean motion, and the colours of the field or of its mean; None without flow."""
        if row.get("motion_agreement") is None:
            return None
        if row["motion_mean"] is None:
            return Drawing(caption=f"motion unknown, agreement {row['motion_agreement']:.2f}")
        lines, direction = [], row["motion_direction"]
        if direction is not None:
            angle = math.radians(direction)
            lines.append((0.5, 0.5, 0.5 + 0.3 * math.cos(angle), 0.5 - 0.3 * math.sin(angle)))
        return Drawing(
            lines=lines,
            overlay=flow_colors.coloured(row),
            legend=Legend(image=flow_colors.legend(), text=flow_colors.LEGEND),
            caption=f"motion {row['motion_mean']:.1f} px",
        )


def _is_comparable(now: Image, then: Image) -> bool:
    return now.shape == then.shape and min(now.shape[:2]) >= SMALLEST
