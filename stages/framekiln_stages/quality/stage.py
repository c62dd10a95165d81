"""Technical quality of each frame: sharpness, noise, blocks of a codec, bars, black, uniform and repeated frames.

Preparing training data begins with dropping such frames. No model is needed: `measures.py` has the formulas. Over- and
underexposed areas are columns of `lighting`.

Shapes: luma uint8 h w (BT.601, codes 0 to 255).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract import Drawing, NonNegative, Placement, Scope, Stage, Weights, field, views
from framekiln.contract.columns import is_pixel_column
from framekiln_stages.quality import measures
from framekiln_stages.shared.black_bars import Bars, Luma, find_bars
from framekiln_stages.shared.result_agreement import equal_share, float_values, mean_distance

BARS = pa.struct([(side, pa.int32()) for side in Bars._fields])
OUTPUTS = pa.schema(
    [
        field(
            "sharpness",
            pa.float32(),
            "short side that a sharp picture of the same detail would have: compares across sizes, at most the frame's "
            "own; null where no edge tells it",
            "px",
        ),
        field("noise", pa.float32(), "deviation of luma in the quietest tenth of the frame; null if clipped", "code"),
        field(
            "blockiness",
            pa.float32(),
            "excess of steps at borders of 8 x 8 blocks over others, from 0; null if small",
        ),
        field(
            "bars",
            BARS,
            "black bars round the picture, over the clip, or over a shot in it if they are alike on both sides; of one "
            "frame alone, as a photo, bars of any one tone; null where the whole clip is black",
            "px",
        ),
        field("is_black", pa.bool_(), "98 % of the pixels are nearly black"),
        field("is_uniform", pa.bool_(), "one even tone"),
        field(
            "change",
            pa.float32(),
            "difference to the next frame, mean of its most changed 16 x 16 px; null at the end",
            "code",
        ),
        field("repeats", pa.bool_(), "the next frame shows the same picture; null where `change` is"),
    ]
)


# Largest share of its short side that the detail of a blurred frame needs: a blur of 1.6 px. Of 112 photos 0.98 are
# above 0.54; of 100 softened by 1.2 px, 0.95 are above 0.29.
BLURRED = 0.25
# Least mean difference of two frames with a cut between, in codes. Chosen on 60 made clips, where 6 to 24 give the same
# bars: a shot that is divided by mistake has the bars of each of its parts.
CUT = 10.0


class Quality(Stage):
    """Sharpness, noise, blockiness, bars, and black, uniform and repeated frames."""

    version = 7  # 7: bars of each shot in a clip; 6: of the clip's own frames, without the next clip's first one
    scope = Scope.CLIP
    halo = 1
    thread_safe = True
    outputs = OUTPUTS
    cut_dependence = "bars are those of a whole clip"

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The measured pixels, and the limit of a repeated frame.

        Raises ValueError: `pixels` is not a pixel column.
        """

        pixels: str = "frame"  # measured pixel column; reduced pixels lack the detail that these measures need
        # Largest `change` of a repeated frame, in codes. At CRF 20 to 36 of x264, frames of a held photo have 0 to 2,
        # except key frames. Frames in which 40 x 24 px move by a quarter of a pixel have 2 to 6.
        same: NonNegative = 2.0

        def __post_init__(self) -> None:
            if not is_pixel_column(self.pixels):
                raise ValueError(f"pixels is frame or such as frame_720, not {self.pixels!r}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Full-size pixels unless set otherwise, and what tells the clip's frames from its halo."""
        return (self.config.pixels, "clip_index")

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Limit OpenCV to one thread: other workers use the other cores."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Measure the frames of one clip, and their change to the next frame."""
        with self.phase("preprocess"):
            lumas = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in views(batch[self.config.pixels])]
        with self.phase("infer"):
            own = [luma for luma, clip in zip(lumas, batch["clip_index"].to_pylist(), strict=True) if clip >= 0]
            bars = find_clip_bars(own, any_tone=len(lumas) == 1)
            rows = [
                self._describe(luma, after, around)
                for luma, after, around in itertools.zip_longest(lumas, lumas[1:], bars)  # no bars for the halo
            ]
        return pa.Table.from_pylist(rows, schema=OUTPUTS)

    def _describe(self, luma: Luma, following: Luma | None, bars: dict[str, int] | None) -> dict[str, Any]:
        inside = np.ascontiguousarray(Bars(**bars).cut(luma)) if bars else luma
        noise = measures.noise(inside)
        blocks = measures.blockiness(inside)
        blur = measures.edge_blur(inside, noise or 0.0, blocks or 0.0)
        own = {
            "sharpness": None if blur is None else measures.SHARP * min(inside.shape) / max(blur, measures.SHARP),
            "noise": noise,
            "blockiness": blocks,
            "bars": bars,
            "is_black": measures.is_black(luma),
            "is_uniform": measures.is_uniform(luma, noise or 0.0),
        }
        if following is None:
            return own
        if following.shape != luma.shape:
            return own | {"repeats": False}
        change = measures.change(luma, following)
        return own | {"change": change, "repeats": change <= self.config.same}

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return mean differences in the columns' units; drift is the largest share of rows that differ clearly."""
        off = {
            name: mean_distance(float_values(a[name]), float_values(b[name]))
            for name in ("sharpness", "noise", "blockiness", "change")
        }
        same = [equal_share(a[name], b[name]) for name in ("is_black", "is_uniform", "repeats")]
        size = float(np.nanmean(float_values(a["sharpness"]))) if a["sharpness"].null_count < len(a) else 1.0
        drift = max(1 - min(same), min(1.0, off["sharpness"] / max(size, 1.0)))
        return {f"{name}_difference": value for name, value in off.items()} | {"drift": drift}

    def summarize(self, rows: pa.Table, scale: float) -> list[str]:
        """Return how many frames are black, of one tone, blurred, or have bars."""
        side = np.minimum(float_values(rows["height"]), float_values(rows["width"]))
        barred = [any((bars or {}).values()) for bars in rows["bars"].to_pylist()]
        counts = {
            "black": pc.sum(rows["is_black"]).as_py(),
            "of one tone": pc.sum(pc.and_not(rows["is_uniform"], rows["is_black"])).as_py(),
            "blurred": int((float_values(rows["sharpness"]) < BLURRED * side).sum()),
            "with bars": sum(barred),
        }
        parts = [f"{round(scale * many):,} {name}" for name, many in counts.items() if many]
        return [f"frames: {', '.join(parts)}"] if parts else []

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        facts = [name[3:] for name in ("is_black", "is_uniform") if row.get(name)]
        if row.get("sharpness") is not None:
            facts.append(f"as sharp as {row['sharpness']:.0f} px")
        if row.get("bars") is not None and any(row["bars"].values()):
            facts.append("bars " + ", ".join(f"{side} {size} px" for side, size in row["bars"].items() if size))
        return Drawing(caption="; ".join(facts)) if facts else None


def find_clip_bars(lumas: Sequence[Luma], *, any_tone: bool) -> list[dict[str, int] | None]:
    """Return the bars of each frame of a clip: the clip's, or larger ones of the shot; None where the clip is black.

    Frames of another size have bars of their own.
    """
    found = dict[int, dict[str, int]]()
    for shape in {luma.shape for luma in lumas}:
        shots = _split_shots([at for at, luma in enumerate(lumas) if luma.shape == shape], lumas)
        brightest = [np.maximum.reduce([lumas[at] for at in shot]) for shot in shots]
        if measures.is_black(whole := np.maximum.reduce(brightest)):
            continue
        bars = find_bars(whole, any_tone=any_tone)
        for shot, light in zip(shots, brightest, strict=True):
            own = bars if len(shots) == 1 or measures.is_black(light) else find_bars(light, any_tone=False)
            is_larger = own.is_centred(shape) and all(map(int.__ge__, own, bars))
            found |= dict.fromkeys(shot, (own if is_larger else bars)._asdict())
    return [found.get(at) for at in range(len(lumas))]


def _split_shots(places: Sequence[int], lumas: Sequence[Luma]) -> list[list[int]]:
    """Return the places of each run of frames without a cut."""
    shots = [[places[0]]]
    for before, at in itertools.pairwise(places):
        if cv2.norm(lumas[before], lumas[at], cv2.NORM_L1) >= CUT * lumas[at].size:
            shots.append([])
        shots[-1].append(at)
    return shots
