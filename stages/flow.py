"""How the picture moves from frame to frame: dense optical flow, boiled down to a few numbers a frame.

Motion tells a pan from a tripod shot, shake tells a hand from a gimbal, and a cut is where no motion explains the next
frame. What is said of frame i comes from frames i, i+1 and (shake only) i+2, so it does not matter where clips are cut.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from frame i
to i+1; a camera's motion is a 2 3 matrix in px. Angles are in degrees as seen: 0 right, 90 up, from 0 to below 360.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import Image, field, pixels_of, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights

if TYPE_CHECKING:
    from stages.nets.raft import Flows

Field = NDArray[np.float32]
Gray = NDArray[np.uint8]
Camera = NDArray[np.float64]
Backend = Literal["dis", "farneback", "raft"]
Preset = Literal["ultrafast", "fast", "medium"]

RAFT_WEIGHTS = ("raft-small-c-t-v2", "raft-small-princeton")
PAIRS = 8  # of frames in one call of RAFT: the correlations of full HD take 5.6 GB each, of 224 px 8 to 12 MB
SMALLEST = 16  # px: DIS matches patches of 8 px on a pyramid; in less there is no motion to speak of
KITTI_SCALE, KITTI_ZERO = 64.0, 32768.0  # KITTI 2015 development kit: u = (value - 2^15) / 64

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


class Flow(Stage):
    """Motion, shake and cuts from dense optical flow between neighbouring frames.

    All values are null for the last frame of a file and for a photo; shake also for the frame before the last.
    """

    scope = Scope.CLIP
    halo = 2  # shake compares the motion i -> i+1 with i+1 -> i+2
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """What to compute flow with, and at which size.

        Raises:
            ValueError: an unknown backend or preset, or weights of another network.
        """

        # RubberWhale, one core: DIS medium .23 px in 14 ms, Farneback .36 px in 33 ms. RAFT, .32 px, runs on a GPU
        # too, where pairs go in batches.
        backend: Backend = "dis"
        # Of RAFT: torchvision's training, 1.99 px on Sintel's clean pass; the authors' own is in the lockfile too.
        model: str = RAFT_WEIGHTS[0]
        preset: Preset = "medium"  # of DIS. RubberWhale: ultrafast .54 px, fast .44, medium .23
        # Short side, as in frame_224; 0 is full size. Medium at 224 costs what fast costs at full size (8-16 ms) and is
        # nearer to medium at full size: mean motion within 1-4 % against 1-8 %, on four clips of 480p to 720p.
        size: int = 224
        still: float = 0.1  # px of the computed size: below it the direction is that of noise
        # Residual that scores .5. Of 1,489 pairs inside shots none has over .11; of 153 cuts, 25 of them between takes
        # on one set, none under .20.
        cut_residual: float = 0.16
        cache: bool = False  # the dense field too

        def __post_init__(self) -> None:
            backends, presets = get_args(Backend), get_args(Preset)
            for value, known in ((self.backend, backends), (self.preset, presets), (self.model, RAFT_WEIGHTS)):
                if value not in known:
                    raise ValueError(f"{value!r} is none of {', '.join(known)}")

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, and the size of the full frame to scale by."""
        return (self.pixels, "height", "width")

    @property
    def outputs(self) -> pa.Schema:
        """Five numbers; with `cache` also the field itself."""
        return OUTPUTS.append(FLOW_FIELD) if self.config.cache else OUTPUTS

    @property
    def devices(self) -> tuple[str, ...]:  # type: ignore[override]  # it depends on the settings here
        """RAFT runs on a GPU too, OpenCV on processors only."""
        return ("cpu", "cuda") if self.config.backend == "raft" else ("cpu",)

    @property
    def weights(self) -> tuple[str, ...]:
        """RAFT's; OpenCV needs none."""
        return (self.config.model,) if self.config.backend == "raft" else ()

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load RAFT, or draw its weights where they are absent. Keep OpenCV to one thread.

        Workers side by side scale better than threads inside a pair of frames. It is a setting of the whole process, so
        once is enough; results do not depend on it.

        Raises:
            ValueError: the file does not hold RAFT's weights.
        """
        cv2.setNumThreads(1)
        if self.config.backend == "raft":
            self._raft, self._placement = self._load(weights.get(self.config.model), placement), placement
            return
        self.dis = cv2.DISOpticalFlow.create(getattr(cv2, f"DISOPTICAL_FLOW_PRESET_{self.config.preset.upper()}"))

    def _load(self, path: Path | None, placement: Placement) -> Flows:
        from stages.nets.raft import Flows

        return Flows(path, placement, self.chunk_rows.get("pairs", PAIRS))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Values as in `outputs` for consecutive frames: one clip and its halo."""
        images = views(batch[self.pixels])
        with self.phase("preprocess"):
            grays = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in images]
        flows = (
            self._learned(images)
            if self.config.backend == "raft"
            else itertools.starmap(self.between, itertools.pairwise(grays))
        )
        sides = zip(batch["height"].to_pylist(), batch["width"].to_pylist(), strict=True)
        rows: list[dict[str, Any]] = [{} for _ in grays]
        cameras: list[Camera | None] = []
        for row, (now, then), flow, (height, width) in zip(rows, itertools.pairwise(grays), flows, sides, strict=False):
            with self.phase("postprocess"):
                row.update({} if flow is None else self._describe(now, then, flow, height, width))
                cameras.append(None if flow is None else camera(flow))
        for row, gray, (one, other) in zip(rows, grays, itertools.pairwise(cameras), strict=False):
            row["shake"] = shake(one, other, *gray.shape)
        return pa.Table.from_pylist(rows, schema=self.outputs)

    def between(self, now: Gray, then: Gray) -> Field | None:
        """OpenCV's flow from one grey frame (h w) to the next; None where they differ in size or are under 16 px."""
        if not _comparable(now, then):
            return None
        with self.phase("infer"):
            if self.config.backend == "dis":
                return self.dis.calc(now, then, None)
            start = np.zeros((*now.shape, 2), np.float32)
            # OpenCV's tutorial settings with two more levels for fast motion; the best of six others gains .01 px.
            return cv2.calcOpticalFlowFarneback(now, then, start, 0.5, 5, 15, 3, 5, 1.2, 0)

    def _learned(self, images: Sequence[Image]) -> list[Field | None]:
        """RAFT's flow between RGB frames (h w 3) and the next ones; None as in `between`."""
        found: list[Field | None] = [None] * max(0, len(images) - 1)
        for _, alike in itertools.groupby(enumerate(itertools.pairwise(images)), lambda pair: pair[1][0].shape):
            numbers = [number for number, (now, then) in alike if _comparable(now, then)]
            for part in self.chunks(numbers, "pairs", PAIRS):
                with self.phase("infer"):
                    flows = self._raft([images[i] for i in part], [images[i + 1] for i in part])
                for i, flow in zip(part, flows, strict=True):
                    found[i] = flow
        return found

    def ceiling(self, rows: int) -> Callable[[], object] | None:
        """RAFT alone on as many pairs of noise of the asked size, 16:9; None for OpenCV's."""
        return self._raft.ceiling(rows, self.config.size or 1080) if self.config.backend == "raft" else None

    def _describe(self, now: Gray, then: Gray, flow: Field, height: int, width: int) -> dict[str, Any]:
        cut = score(residual(now, then, flow), self.config.cut_residual)
        field = {"flow_field": encode(flow)} if self.config.cache else {}
        return motion(flow, height, width, self.config.still) | {"cut": cut} | field

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """A line from the centre along the motion; None for a frame that has none."""
        if row.get("motion_mean") is None:
            return None
        lines, direction = [], row["motion_direction"]
        if direction is not None:
            angle = math.radians(direction)
            lines.append((0.5, 0.5, 0.5 + 0.3 * math.cos(angle), 0.5 - 0.3 * math.sin(angle)))
        return Drawing(lines=lines, caption=f"motion {row['motion_mean']:.1f} px, cut {row['cut']:.2f}")


def _comparable(now: Image, then: Image) -> bool:
    return now.shape == then.shape and min(now.shape[:2]) >= SMALLEST


def motion(flow: Field, height: int, width: int, still: float) -> dict[str, float | None]:
    """Length and direction of a flow field, in px of a frame of `height` by `width`.

    The direction is that of the mean vector, which is the circular mean weighted by length; None when that vector is
    shorter than `still` px of the computed size.
    """
    scale = np.array([width / flow.shape[1], height / flow.shape[0]], np.float32)
    length = cv2.magnitude(*cv2.split(flow * scale))
    x, y = cv2.mean(flow)[:2]
    turned = np.float32(math.degrees(math.atan2(-y * scale[1], x * scale[0])) % 360.0)
    return {
        "motion_mean": cv2.mean(length)[0],
        "motion_p95": float(np.percentile(length, 95)),
        "motion_direction": None if math.hypot(x, y) < still else float(turned) % 360.0,
    }


def camera(flow: Field) -> Camera | None:
    """The shift, rotation and zoom that most of a flow field follows, by RANSAC; None when there is none.

    This is the model of OpenCV's video stabiliser; its RANSAC has a fixed seed.
    """
    start = _grid(*flow.shape[:2])
    x, y = start.astype(int).T
    # 1 px at a short side of 448 and less, where DIS errs by about half of that; beyond, the same share of the frame.
    tolerance = max(1.0, min(flow.shape[:2]) / 448)
    matrix, _ = cv2.estimateAffinePartial2D(start, start + flow[y, x], ransacReprojThreshold=tolerance)
    return None if matrix is None or not np.isfinite(matrix).all() else matrix


def shake(now: Camera | None, then: Camera | None, height: int, width: int) -> float | None:
    """How much the camera's motion changes from one pair of frames to the next: RMS over the frame, in frame diagonals.

    A steady pan, tilt, roll or zoom gives 0. 0.001 is two pixels of a full-HD frame.
    """
    if now is None or then is None:
        return None
    change = _grid(height, width) @ (then - now)[:, :2].T + (then - now)[:, 2]
    return float(np.sqrt((change**2).sum(1).mean()) / math.hypot(height, width))


def _grid(height: int, width: int) -> NDArray[np.float32]:
    """About 24 by 24 points (n 2) in x, y."""
    down, right = max(1, height // 24), max(1, width // 24)
    y, x = np.mgrid[down // 2 : height : down, right // 2 : width : right]
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)


def residual(now: Gray, then: Gray, flow: Field) -> float:
    """How little of a frame is found again in the next, warped back along the flow: 0 all, 1 nothing, 2 its negative.

    It is 1 minus the local correlation of the two (windows of 1/18 of the short side), weighted by local contrast.
    Correlation does not see a change of exposure. A distance of colour histograms was tried beside it and left out: two
    stops more light raise it to .87, and it says .13 at a real cut between two dark faces but .38 inside a fade.
    """
    window = (max(7, min(now.shape) // 18 | 1),) * 2
    height, width = now.shape
    to_x = flow[..., 0] + np.arange(width, dtype=np.float32)
    to_y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    a = now.astype(np.float32)
    b = cv2.remap(then.astype(np.float32), to_x, to_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    mean_a, mean_b = cv2.blur(a, window), cv2.blur(b, window)
    var_a = np.maximum(cv2.blur(a * a, window) - mean_a * mean_a, 0)
    var_b = np.maximum(cv2.blur(b * b, window) - mean_b * mean_b, 0)
    floor = 30.0  # a deviation of 5.5 codes: where there is little but compression noise, frames count as alike
    alike = (cv2.blur(a * b, window) - mean_a * mean_b + floor) / np.sqrt((var_a + floor) * (var_b + floor))
    weight = np.sqrt(var_a) + np.sqrt(var_b) + 1.0
    return 1.0 - float(np.average(alike, weights=weight))


def score(left: float, half: float) -> float:
    """A residual as a score from 0 to 1, .5 at `half`, by the Hill curve r^4 / (r^4 + half^4)."""
    raised = max(0.0, left) ** 4
    return raised / (raised + half**4)


def encode(flow: Field) -> bytes:
    """A flow field as a KITTI 16-bit PNG: red x, green y, both in 1/64 px around 2^15; blue 1 where valid.

    Rounding errs by at most 1/128 px. What exceeds 511 px or is not finite is marked invalid.
    """
    valid = np.all(np.abs(flow) <= 511, axis=-1, keepdims=True)
    steps = np.where(valid, flow, 0) * KITTI_SCALE + KITTI_ZERO
    x, y = cv2.split(np.rint(steps).astype(np.uint16))
    return cv2.imencode(".png", cv2.merge([valid.astype(np.uint16), y, x]), [cv2.IMWRITE_PNG_COMPRESSION, 1])[
        1
    ].tobytes()


def decode(data: bytes) -> Field:
    """The flow field in a KITTI 16-bit PNG; NaN where it is marked invalid.

    Raises:
        ValueError: not a PNG of 16 bits and three channels.
    """
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if image is None or image.dtype != np.uint16 or image.ndim != 3:
        raise ValueError("not a KITTI flow field: a PNG of 16 bits and three channels is needed")
    flow = (image[..., 2:0:-1].astype(np.float32) - np.float32(KITTI_ZERO)) / np.float32(KITTI_SCALE)
    flow[image[..., 0] == 0] = np.nan
    return flow
