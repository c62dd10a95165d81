"""The light of a picture in numbers: how much, how hard, what colour and from where; and whether a video holds it.

Light that is mixed or jumps spoils a collection silently, and telling needs no model: it is arithmetic on pixels. These
are taken for sRGB and decoded by the curve of IEC 61966-2-1, through tables, since 8 bits know only 256 values.

Shapes: image uint8 h w 3; luminance uint16 h w, 65535 for linear 1; counts int64 65536, pixels of each luminance.
Angles are in degrees as seen: 0 right, 90 up, from 0 to below 360.
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
from pipeline.stage import Drawing, Scope, Stage, Table, Weights

Luminance = NDArray[np.uint16]

_CODES = np.arange(256) / 255
LINEAR = np.where(_CODES <= 0.04045, _CODES / 12.92, ((_CODES + 0.055) / 1.055) ** 2.4)
SIXTH = (LINEAR**6).astype(np.float32)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # IEC 61966-2-1
_PARTS = [np.rint(LINEAR * weight * 65535).astype(np.uint16) for weight in TO_XYZ[1]]
_LEVELS = np.arange(65536) / 65535
LIGHTNESS = np.where(_LEVELS > 216 / 24389, 116 * np.cbrt(_LEVELS) - 16, _LEVELS * 24389 / 27)  # CIE L*, 0 to 100
LIGHTNESS_SQUARED = LIGHTNESS**2
MID_GREY = 0.18  # of linear luminance: the grey card
DARKEST = float(LINEAR[1])  # the least light that 8 bits tell from none, 9.2 stops under mid-grey
SECOND_DIFFERENCE = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)

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

    def setup(self, weights: Weights, device: str) -> None:  # noqa: ARG002
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
        low, median, high = (stops(_LEVELS[rank]) for rank in ranks)
        # Sums, not `@`: the threads of BLAS wait for each other on a busy machine, 16 ms where this takes .2.
        tables = (_LEVELS, LIGHTNESS, LIGHTNESS_SQUARED)
        mean, lightness, squared = (float((counts * table).sum()) / light.size for table in tables)
        far = abs(median) >= self.config.key_stops
        own = {
            "exposure": stops(mean),
            "contrast": math.sqrt(max(0.0, squared - lightness**2)) / 100,
            "dynamic_range": high - low,
            "lighting_key": "mid-key" if not far else "low-key" if median < 0 else "high-key",
        }
        return own | clipping(image) | colour(image) | direction(light)

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


def luminance(image: Image) -> Luminance:
    """Linear luminance (ITU-R BT.709 weights), 65535 for white."""
    red, green, blue = (cv2.LUT(channel, part) for channel, part in zip(cv2.split(image), _PARTS, strict=True))
    return cv2.add(cv2.add(red, green), blue)


def stops(level: float) -> float:
    """A linear luminance in stops over mid-grey; what is darker than 8 bits can say counts as that."""
    return math.log2(max(level, DARKEST) / MID_GREY)


def largest(image: Image) -> NDArray[np.uint8]:
    """The largest of each pixel's three codes (h w)."""
    red, green, blue = cv2.split(image)
    return cv2.max(cv2.max(red, green), blue)


def clipping(image: Image) -> dict[str, float]:
    """Shares of pixels at the ends of the scale, or one code from them: JPEG rounds that far."""
    top = largest(image)
    return {
        "clipped_shadows": np.count_nonzero(top <= 1) / top.size,
        "clipped_highlights": np.count_nonzero(top >= 254) / top.size,
    }


def colour(image: Image) -> dict[str, float | None]:
    """Colour temperature in K and tint (Duv) of the light, as the picture renders it.

    The light's colour is estimated by shades of grey with the Minkowski norm 6 (Finlayson and Trezzi 2004) over pixels
    that are not clipped; its temperature by McCamy 1992, its Duv by Ohno 2014. A camera's white balance has been at
    work, so this is the cast that is left. Both are None outside the range of McCamy's formula, 2000 to 12500 K, and
    beyond a Duv of 0.05, where CIE 15 speaks of no colour temperature; also where under 1 % of the pixels are not
    clipped, or the estimate is darker than code 16, whose steps of 6 % would make the colour.
    """
    whole = (largest(image) < 254).astype(np.uint8)
    light = np.array(cv2.mean(cv2.LUT(image, SIXTH), whole)[:3]) ** (1 / 6)
    unknown: dict[str, float | None] = {"colour_temperature": None, "tint": None}
    if np.count_nonzero(whole) < 0.01 * whole.size or light.max() < LINEAR[16]:
        return unknown
    x, y, _ = TO_XYZ @ light / (TO_XYZ @ light).sum()
    kelvin, tint = temperature(x, y), duv(x, y)
    inside = 2000 <= kelvin <= 12500 and abs(tint) <= 0.05
    return {"colour_temperature": kelvin, "tint": tint} if inside else unknown


def temperature(x: float, y: float) -> float:
    """Correlated colour temperature in K of a CIE 1931 chromaticity (McCamy 1992)."""
    n = (x - 0.3320) / (0.1858 - y)
    return 449.0 * n**3 + 3525.0 * n**2 + 6823.3 * n + 5520.33


def duv(x: float, y: float) -> float:
    """Distance of a CIE 1931 chromaticity from the Planckian locus in CIE 1960 u, v; above it positive (Ohno 2014)."""
    u, v = 4 * x / (12 * y - 2 * x + 3), 6 * y / (12 * y - 2 * x + 3)
    distance = math.hypot(u - 0.292, v - 0.24)
    locus = (-0.00616793, 0.0893944, -0.5179722, 1.5317403, -2.4243787, 1.925865, -0.471106)
    return distance - float(np.polyval(locus, math.acos((u - 0.292) / distance)))


def direction(light: Luminance) -> dict[str, float | None]:
    """The side from which the frame is lit, in degrees, and how far that explains its light and dark, 0 to 1.

    A plane is fitted by least squares to the lightness of at most 32 cells a side: the direction is uphill, the
    strength is R squared. It is the picture's balance of light, of which dark trousers are a part, not a lamp in the
    room. The direction is None where the plane rises by less than 2.3 L* over the frame, which is the least difference
    that an eye sees (Mahy et al. 1994).
    """
    shrink = min(1.0, 32 / max(light.shape))
    height, width = (max(1, round(side * shrink)) for side in light.shape)
    cells = LIGHTNESS[cv2.resize(light, (width, height), interpolation=cv2.INTER_AREA)]
    x, y = (np.arange(n) - (n - 1) / 2 for n in (width, height))
    across, down = (cells.mean(0) @ x / max(x @ x, 1), cells.mean(1) @ y / max(y @ y, 1))
    explained = across**2 * (x @ x) / width + down**2 * (y @ y) / height
    rise = abs(across) * width + abs(down) * height
    return {
        "light_direction": None if rise < 2.3 else turn(math.degrees(math.atan2(-down, across))),
        "light_strength": min(1.0, explained / max(float(cells.var()), 1e-9)),
    }


def turn(degrees: float) -> float:
    """An angle as a 32-bit float from 0 to below 360."""
    return float(np.float32(degrees % 360.0)) % 360.0


def noise(image: Image) -> float | None:
    """Standard deviation of the noise in codes of luma (BT.601), by Immerkaer 1996; None under 3 px.

    It is looked for in the middle 512 by 512 pixels. Fine texture counts as noise: of a photo this is an upper bound.
    """
    top, left = ((side - 512) // 2 if side > 512 else 0 for side in image.shape[:2])
    luma = cv2.cvtColor(image[top : top + 512, left : left + 512], cv2.COLOR_RGB2GRAY)
    if min(luma.shape) < 3:
        return None
    bends = cv2.filter2D(luma, cv2.CV_16S, SECOND_DIFFERENCE)[1:-1, 1:-1]
    return math.sqrt(math.pi / 2) * cv2.norm(bends, cv2.NORM_L1) / (6 * bends.size)


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
