"""Exposure, contrast, colour and direction of the light in each frame, and their steadiness over a video.

No model is needed: `stages/framekiln_stages/lighting/photometry.py` has the formulas.

Shapes: image uint8 h w 3; counts int64 65536, pixels of each luminance. Angles are in degrees as seen: 0 right, 90 up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, Image, Placement, Scope, Stage, Table, Weights, field, views
from framekiln.contract.columns import FRAME_INDEX, MEDIA_ID
from framekiln_stages.lighting import photometry
from framekiln_stages.lighting.shading import direction
from framekiln_stages.shared.result_agreement import equal_share, float_values, mean_distance

OUTPUTS = pa.schema(
    [
        field(
            "exposure",
            pa.float32(),
            "mean linear luminance over mid-grey 0.18: 2.5 where all is white, -10 and less where nearly all is black; "
            "null where all is black",
            "stop",
        ),
        field(
            "clipped_shadows",
            pa.float32(),
            "share of pixels with every channel at code 0 or 1, inside of black bars that are alike on both sides",
        ),
        field("clipped_highlights", pa.float32(), "share of pixels there with any channel at code 254 or 255"),
        field("contrast", pa.float32(), "RMS contrast: standard deviation of lightness L*/100, 0 to 0.5"),
        field("dynamic_range", pa.float32(), "from the 1st to the 99th percentile of luminance, 0 to 11.7", "stop"),
        field("colour_temperature", pa.float32(), "of the estimated light, 2000 to 12500; neutral is 6504", "K"),
        field(
            "tint", pa.float32(), "Duv, distance from the Planckian locus: above 0 green, below magenta; neutral 0.003"
        ),
        field(
            "light_direction",
            pa.float32(),
            "side from which the light comes: 0 right, 90 up, below 360; null if unknown",
            "degree",
        ),
        field(
            "light_strength", pa.float32(), "share of the coarse variance of lightness explained by this side, 0 to 1"
        ),
        field("lighting_key", pa.string(), "low-key, mid-key or high-key"),
    ]
)

REACH = {
    "exposure": 11.7,
    "clipped_shadows": 1.0,
    "clipped_highlights": 1.0,
    "contrast": 0.5,
    "dynamic_range": 11.7,
    "colour_temperature": 10_500.0,
    "light_direction": 180.0,
    "light_strength": 1.0,
}
"""Largest difference of a column's values, from the ranges above."""


class Lighting(Stage):
    """Exposure, contrast, colour and direction of the light of each frame.

    Exposure is null for a black image.
    Colour and direction are null if an image does not determine them: see `colour` and `direction`.
    """

    version = 8  # 8: clipped shares inside of black bars; 5 to 7: direction of a solid, or of the frame, or none
    thread_safe = True
    inputs = ("frame_224",)
    outputs = OUTPUTS

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Threshold of low-key and high-key."""

        # Stops of the median under or over mid-grey for low-key and high-key: zones III and VII of Adams's zone system,
        # the darkest and lightest with texture; also the two ends, 0.045 and 0.72, of the keys in Reinhard et al. 2002.
        key_stops: float = 2.0

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Limit OpenCV to one thread: a frame takes 1 to 2 ms, and other workers use the other cores."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        with self.phase("infer"):
            rows = [self._describe(image) for image in views(batch["frame_224"])]
        return pa.Table.from_pylist(rows, schema=OUTPUTS)

    def _describe(self, image: Image) -> dict[str, Any]:
        light = photometry.luminance(image)
        levels, counts = photometry.histogram(light)
        ranks = levels[np.searchsorted(counts.cumsum(), np.array([0.01, 0.5, 0.99]) * light.size)]
        low, median, high = (photometry.stops(photometry.LEVELS[rank]) for rank in ranks)
        lightness, top = np.take(photometry.LIGHTNESS, light), photometry.largest(image)
        far = abs(median) >= self.config.key_stops
        own = {
            "exposure": photometry.exposure(cv2.mean(light)[0] / 65535),
            "contrast": float(cv2.meanStdDev(lightness)[1].item()) / 100,
            "dynamic_range": high - low,
            "lighting_key": "mid-key" if not far else "low-key" if median < 0 else "high-key",
        }
        return own | photometry.clipping(top) | photometry.colour(image, top) | direction(lightness)

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return mean differences in the columns' units; drift is the largest as a fraction of its `REACH`."""
        off = {
            name: mean_distance(
                *(float_values(run[name]) for run in (a, b)), period=360.0 if name == "light_direction" else 0
            )
            for name in REACH
        }
        same = equal_share(a["lighting_key"], b["lighting_key"])
        nulls = [equal_share(a[name].is_null(), b[name].is_null()) for name in REACH]
        drift = max(1 - same, 1 - min(nulls), *(off[name] / reach for name, reach in REACH.items()))
        figures = {f"{name}_difference": value for name, value in off.items()}
        return figures | {"key_agreement": same, "drift": min(1.0, drift)}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return an arrow towards the light, with its strength as length, and exposure and colour as caption."""
        if row.get("exposure") is None:
            return None
        kelvin = "" if row["colour_temperature"] is None else f", {row['colour_temperature']:.0f} K"
        caption = f"{round(row['exposure'], 1) + 0.0:+.1f} stops, {row['lighting_key']}{kelvin}"
        if row["light_direction"] is None:
            return Drawing(caption=caption)
        length, angle = 0.15 + 0.3 * row["light_strength"], math.radians(row["light_direction"])
        x, y = math.cos(angle), -math.sin(angle)
        tip = (0.5 + length * x, 0.5 + length * y)
        barbs = [(*tip, tip[0] - 0.06 * (x - side * y), tip[1] - 0.06 * (y + side * x)) for side in (0.5, -0.5)]
        return Drawing(lines=[(0.5, 0.5, *tip), *barbs], caption=caption)


SPREADS = pa.schema(
    [
        MEDIA_ID,
        field("frames", pa.int64(), "number of frames", nullable=False),
        field("exposure_std", pa.float32(), "standard deviation of the exposure", "stop"),
        field("colour_std", pa.float32(), "standard deviation of the colour temperature", "mired"),
        field("direction_std", pa.float32(), "angular deviation of the light's direction, 0 to 81", "degree"),
        field("jumps", pa.int64(), "number of rows in lighting_jumps", nullable=False),
        field(
            "consistency", pa.float32(), "exp(-mean of each deviation over three times its jump), 0 to 1; 1 is steady"
        ),
    ]
)
JUMPS = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        field("time_s", pa.float64(), "time of the first frame in the new light; null for a photo", "s"),
        field("quantity", pa.string(), "exposure, colour or direction", nullable=False),
        field("size", pa.float32(), "change from the frame before, in `unit`", nullable=False),
        field("unit", pa.string(), "stop, mired (a million over K) or degree", nullable=False),
    ]
)
_JUMP_PLACE = ("media_id", "frame_index", "time_s")
MEASURED = ("exposure", "colour_temperature", "light_direction", "light_strength", "clipped_shadows")
UNITS = {"exposure": "stop", "colour": "mired", "direction": "degree"}
Series = NDArray[np.float64]  # n, one value a frame; NaN where not measured


class Steadiness(Stage):
    """Spread and jumps of a video's exposure, colour and direction of light."""

    finds = (("lighting_jumps", "light jump", "light jumps"),)
    version = 2
    scope = Scope.MEDIA
    inputs = (*_JUMP_PLACE, *MEASURED)
    tables: ClassVar[dict[str, Table]] = {
        "lighting_steadiness": Table(schema=SPREADS, keys=("media_id",), description="spread of a file's light"),
        "lighting_jumps": Table(
            schema=JUMPS, keys=("media_id", "frame_index", "quantity"), description="sudden changes of a file's light"
        ),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Least change from one frame to the next that counts as a jump.

        There is no limit in seconds: a change of lamps, or of a camera's setting, lies between two frames at any rate.
        A slow change has larger steps at a lower rate; the median step allows for this (`deviations`).
        """

        exposure_jump: float = 1 / 3  # stops: one click of a camera's exposure dial
        # Mired: the weakest correction filter sold, 1/8 CTO; a quarter of it is just noticeable (Judd 1932).
        colour_jump: float = 20.0
        direction_jump: float = 30.0  # degrees: an hour of the clock face by which photographers place lights
        strength: float = 0.1  # least strength of a direction that counts: below it, passing objects change it
        # Distance of a jump from the median step, in units of 1.4826 MAD. So neither a steady ramp nor restless light
        # is a jump; normal noise exceeds 6 once in 5e8 frames.
        deviations: float = 6.0

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """Compute the spreads and jumps of one file; spreads of fewer than two measured frames are null."""
        rows = batch.sort_by("frame_index")
        light, kelvin, angle, strength, black = (float_values(rows[name]).copy() for name in MEASURED)
        angle[~(strength >= self.config.strength)] = np.nan
        # Below the darkest code, stops describe single pixels, and a fade to black would be a row of jumps.
        light[np.isnan(light) & (black == 1)] = -np.inf
        light = np.maximum(light, photometry.stops(0.0))
        series: dict[str, Series] = {"exposure": light, "colour": 1e6 / kelvin, "direction": angle}
        jumps = [
            {key: rows[key][at].as_py() for key in _JUMP_PLACE} | {"quantity": name, "size": size, "unit": unit}
            for name, unit in UNITS.items()
            for at, size in self._find_jumps(name, series[name])
        ]
        spreads = {name: deviation(values, name) for name, values in series.items()}
        shares = [value / (3 * self._get_least(name)) for name, value in spreads.items() if value is not None]
        own = {"frames": len(rows), "jumps": len(jumps), "consistency": math.exp(-np.mean(shares)) if shares else None}
        own |= {f"{name}_std": value for name, value in spreads.items()}
        files = [{"media_id": rows["media_id"][0].as_py()} | own] if len(rows) else []
        jumps.sort(key=lambda jump: jump["frame_index"])
        return {
            "lighting_steadiness": pa.Table.from_pylist(files, schema=SPREADS),
            "lighting_jumps": pa.Table.from_pylist(jumps, schema=JUMPS),
        }

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        spreads = [spread for spread in row["lighting_steadiness"] if spread["consistency"] is not None]
        captions = [f"consistency {spread['consistency']:.2f}, jumps: {spread['jumps']}" for spread in spreads]
        captions += [
            f"{jump['quantity']} jumps by {jump['size']:+.2g} {jump['unit']}" for jump in row["lighting_jumps"]
        ]
        return Drawing(caption="; ".join(captions)) if captions else None

    def _get_least(self, name: str) -> float:
        return float(getattr(self.config, f"{name}_jump"))

    def _find_jumps(self, name: str, values: Series) -> list[tuple[int, float]]:
        """Return position and size of outlying steps between measured neighbours."""
        steps = np.diff(values)
        if name == "direction":
            steps = (steps + 180.0) % 360.0 - 180.0
        at = np.flatnonzero(~np.isnan(steps))
        if not at.size:
            return []
        off = np.abs(steps[at] - np.median(steps[at]))
        bound = max(self._get_least(name), self.config.deviations * 1.4826 * float(np.median(off)))
        return [(int(i) + 1, float(steps[i])) for i in at[off > bound]]


def deviation(values: Series, name: str) -> float | None:
    """Return the standard deviation of known values; None for fewer than two.

    For a direction it is the angular deviation sqrt(2 (1 - R)) in degrees (Batschelet 1981).
    """
    known = values[~np.isnan(values)]
    if known.size < 2:
        return None
    if name != "direction":
        return float(known.std())
    length = abs(np.exp(1j * np.radians(known)).mean())
    return math.degrees(math.sqrt(max(0.0, 2 * (1 - length))))
