"""The light of a picture in numbers: how much, how hard, what colour and from where; and whether a video holds it.

Light that is mixed or jumps spoils a collection silently, and telling needs no model: it is arithmetic on pixels, of
which `stages/nets/photometry.py` holds the formulas.

Shapes: image uint8 h w 3; counts int64 65536, pixels of each luminance. Angles are in degrees as seen: 0 right, 90 up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import FRAME_INDEX, MEDIA_ID, Image, field, is_pixels, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Table, Weights
from stages.nets.likeness import mean_distance, numbers, share_equal
from stages.nets.photometry import (
    LEVELS,
    LIGHTNESS,
    LIGHTNESS_SQUARED,
    clipping,
    colour,
    direction,
    luminance,
    noise,
    stops,
)

OUTPUTS = pa.schema(
    [
        field("exposure", pa.float32(), "mean linear luminance over mid-grey 0.18, from -9.2 (black) to 2.5", "stop"),
        field("clipped_shadows", pa.float32(), "share of pixels with every channel at code 0 or 1"),
        field("clipped_highlights", pa.float32(), "share of pixels with any channel at code 254 or 255"),
        field("contrast", pa.float32(), "RMS contrast: standard deviation of lightness L*/100, 0 to 0.5"),
        field("dynamic_range", pa.float32(), "from the 1st to the 99th percentile of luminance, 0 to 11.7", "stop"),
        field("colour_temperature", pa.float32(), "of the estimated light, 2000 to 12500; neutral is 6504", "K"),
        field(
            "tint", pa.float32(), "Duv, distance from the Planckian locus: above 0 green, below magenta; neutral .003"
        ),
        field("light_direction", pa.float32(), "side from which the frame is lit: 0 right, 90 up", "degree"),
        field(
            "light_strength", pa.float32(), "share of the coarse variance of lightness that this side explains, 0 to 1"
        ),
        field("noise", pa.float32(), "standard deviation of luma noise by Immerkaer; fine texture adds to it", "code"),
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
"""How far two values of a column can be apart, by the ranges above; noise has none."""


class Lighting(Stage):
    """Exposure, contrast, colour and direction of the light, and noise, of each frame.

    The colour and direction are null where the picture does not tell them: see `colour` and `direction`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """What to call low-key and high-key, and where to look for noise.

        Raises:
            ValueError: `noise_pixels` is no pixel column.
        """

        # A median of 2 stops under or over mid-grey: zones III and VII of Adams's zone system, the darkest and lightest
        # with texture; also the two ends, 0.045 and 0.72, of the keys in Reinhard et al. 2002.
        key_stops: float = 2.0
        # "frame" costs a full-size decode. Averaging k by k pixels divides white noise by k and packs texture closer:
        # at frame_224 this is the noise that a model sees; the sensor's is found at full size only.
        noise_pixels: str = "frame_224"

        def __post_init__(self) -> None:
            if not is_pixels(self.noise_pixels):
                raise ValueError(f"noise_pixels is frame or such as frame_224, not {self.noise_pixels!r}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Small pixels suffice: every value but the noise is of the whole picture."""
        return tuple(dict.fromkeys(("frame_224", self.config.noise_pixels)))

    @property
    def outputs(self) -> pa.Schema:
        """One value each; units and ranges are in the schema."""
        return OUTPUTS

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Keep OpenCV to one thread: a frame takes a millisecond or two, and other workers have the other cores."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Values as in `outputs` for any frames, of any sizes."""
        pairs = zip(views(batch["frame_224"]), views(batch[self.config.noise_pixels]), strict=True)
        with self.phase("infer"):
            rows = [self._describe(image) | {"noise": noise(detail)} for image, detail in pairs]
        return pa.Table.from_pylist(rows, schema=OUTPUTS)

    def _describe(self, image: Image) -> dict[str, Any]:
        light = luminance(image)
        counts = np.bincount(light.ravel(), minlength=65536)
        ranks = np.searchsorted(counts.cumsum(), np.array([0.01, 0.5, 0.99]) * light.size)
        low, median, high = (stops(LEVELS[rank]) for rank in ranks)
        # Sums, not `@`: the threads of BLAS wait for each other on a busy machine, 16 ms where this takes .2.
        tables = (LEVELS, LIGHTNESS, LIGHTNESS_SQUARED)
        mean, lightness, squared = (float((counts * table).sum()) / light.size for table in tables)
        far = abs(median) >= self.config.key_stops
        own = {
            "exposure": stops(mean),
            "contrast": math.sqrt(max(0.0, squared - lightness**2)) / 100,
            "dynamic_range": high - low,
            "lighting_key": "mid-key" if not far else "low-key" if median < 0 else "high-key",
        }
        return own | clipping(image) | colour(image) | direction(light)

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Mean differences of what is measured, in its units; drift is the largest as a share of what it can reach."""
        off = {
            name: mean_distance(
                *(numbers(one[name]) for one in (a, b)), period=360.0 if name == "light_direction" else 0
            )
            for name in REACH
        }
        same = share_equal(a["lighting_key"], b["lighting_key"])
        unseen = [share_equal(a[name].is_null(), b[name].is_null()) for name in REACH]
        drift = max(1 - same, 1 - min(unseen), *(off[name] / reach for name, reach in REACH.items()))
        figures = {f"{name}_difference": value for name, value in off.items()}
        return figures | {"key_agreement": same, "drift": min(1.0, drift)}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """An arrow from the centre towards the light, longer the stronger; exposure and colour temperature beneath."""
        if row.get("exposure") is None:
            return None
        kelvin = "" if row["colour_temperature"] is None else f", {row['colour_temperature']:.0f} K"
        caption = f"{row['exposure']:+.1f} stops, {row['lighting_key']}{kelvin}"
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
MEASURED = ("exposure", "colour_temperature", "light_direction", "light_strength")
UNITS = {"exposure": "stop", "colour": "mired", "direction": "degree"}
Series = NDArray[np.float64]  # n, one value a frame; NaN where not measured


class Steadiness(Stage):
    """Whether a video's light holds still: spread and jumps of exposure, colour and direction."""

    scope = Scope.MEDIA

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The least change from one frame to the next that is a jump."""

        exposure_jump: float = 1 / 3  # stop: one click of a camera's exposure dial
        # mired: the weakest correction filter sold, 1/8 CTO; a quarter of it is just noticeable (Judd 1932).
        colour_jump: float = 20.0
        direction_jump: float = 30.0  # degree: an hour of the clock face by which photographers place lights
        strength: float = 0.1  # from which a direction counts: below, whoever passes by turns it
        # From the median step, in units of 1.4826 MAD, so that neither a steady ramp nor restless light is a jump;
        # normal noise goes beyond 6 once in 5e8 frames.
        deviations: float = 6.0

    @property
    def inputs(self) -> tuple[str, ...]:
        """Lighting's columns of all frames of a file."""
        return ("media_id", "frame_index", "time_s", *MEASURED)

    @property
    def tables(self) -> dict[str, Table]:
        """One row a file, and one row a jump."""
        keys = ("media_id", "frame_index", "quantity")
        return {
            "lighting_steadiness": Table(schema=SPREADS, keys=keys[:1], description="spread of a file's light"),
            "lighting_jumps": Table(schema=JUMPS, keys=keys, description="sudden changes of a file's light"),
        }

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        """All frames of one file, in any order. Spreads of fewer than two measured frames are null."""
        rows = batch.sort_by("frame_index")
        series = self._series(rows)
        found = [self._jump(rows, name, at, size) for name in UNITS for at, size in self._jumps(name, series[name])]
        spreads = {name: deviation(values, name) for name, values in series.items()}
        shares = [value / (3 * self._least(name)) for name, value in spreads.items() if value is not None]
        own = {"frames": len(rows), "jumps": len(found), "consistency": math.exp(-np.mean(shares)) if shares else None}
        own |= {f"{name}_std": value for name, value in spreads.items()}
        files = [{"media_id": rows["media_id"][0].as_py()} | own] if len(rows) else []
        found.sort(key=lambda jump: jump["frame_index"])
        return {
            "lighting_steadiness": pa.Table.from_pylist(files, schema=SPREADS),
            "lighting_jumps": pa.Table.from_pylist(found, schema=JUMPS),
        }

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """How steady the light of the file is, and what jumps at this frame, in words."""
        spreads = [one for one in row["lighting_steadiness"] if one["consistency"] is not None]
        said = [f"consistency {one['consistency']:.2f}, jumps: {one['jumps']}" for one in spreads]
        said += [f"{one['quantity']} jumps by {one['size']:+.2g} {one['unit']}" for one in row["lighting_jumps"]]
        return Drawing(caption="; ".join(said)) if said else None

    def _series(self, rows: pa.Table) -> dict[str, Series]:
        exposure, kelvin, angle, strength = (_floats(rows[name]) for name in MEASURED)
        angle[~(strength >= self.config.strength)] = np.nan
        return {"exposure": exposure, "colour": 1e6 / kelvin, "direction": angle}

    def _least(self, name: str) -> float:
        return float(getattr(self.config, f"{name}_jump"))

    def _jumps(self, name: str, values: Series) -> list[tuple[int, float]]:
        """Position and size of the steps between neighbours that stand out; both frames must be measured."""
        steps = np.diff(values)
        if name == "direction":
            steps = (steps + 180.0) % 360.0 - 180.0
        at = np.flatnonzero(~np.isnan(steps))
        if not at.size:
            return []
        off = np.abs(steps[at] - np.median(steps[at]))
        bound = max(self._least(name), self.config.deviations * 1.4826 * float(np.median(off)))
        return [(int(i) + 1, float(steps[i])) for i in at[off > bound]]

    def _jump(self, rows: pa.Table, name: str, at: int, size: float) -> dict[str, Any]:
        where = {key: rows[key][at].as_py() for key in ("media_id", "frame_index", "time_s")}
        return where | {"quantity": name, "size": size, "unit": UNITS[name]}


def _floats(column: pa.ChunkedArray) -> Series:
    return np.array(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def deviation(values: Series, name: str) -> float | None:
    """Standard deviation; of a direction the angular deviation sqrt(2 (1 - R)) in degrees (Batschelet 1981)."""
    known = values[~np.isnan(values)]
    if known.size < 2:
        return None
    if name != "direction":
        return float(known.std())
    length = abs(np.exp(1j * np.radians(known)).mean())
    return math.degrees(math.sqrt(max(0.0, 2 * (1 - length))))
