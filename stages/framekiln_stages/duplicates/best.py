"""The best of several copies of photos or videos, and the reason.

Shapes: n copies in one table; a group is some of their positions.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.shared.result_agreement import float_values

Values = NDArray[np.float64]


# A copy that was enlarged has less noise than a smaller one, and hardly more detail. Chosen on 100 photos, enlarged by
# 1.25 to 3, and reduced. Enlarged twice they read as up to 1.5 times as sharp, with half the noise. Halved, sharp ones
# read as 1.8 to 2.4 times less sharp with as much noise, softer ones as 1.1 to 1.7 times less. With these limits no
# reduced copy of 35 further photos replaces its original, which would be worse than keeping an enlarged one.
SAME_DETAIL, SAME_NOISE = math.log(1.05), 0.8  # the larger one loses no detail
GAIN, LESS_NOISE = 0.35, 0.55  # exponent of the ratio of sides
TAGS, EDITED, CHANGE = ("camera_model", "taken_at"), "edited_at", "change"
# A crooked scan has a margin on all four sides, and no bars. 7 of 500 photos have one; so do 100 of 100 such scans.
PLAIN, MARGIN = 6, 0.6  # codes from the margin's tone; share of cells in a line of a thumbnail
# A brightened copy has more of its picture at the top level. Chosen on 250 photos and 14 kinds of changed copies.
BRIGHTEST, CLIPPED = 0.97, 0.005  # share of the brightest cell's level in a thumbnail; least share of cells
SHARPER, CLEANER = 0.05, 0.1  # differences that count: of the logarithm, of blockiness
# A crop can read as sharper, as it lacks what was soft: by at most 0.24 in 617 made crops of 19 photos, on which this
# was chosen, and by more in one of 568 crops of 19 others. A whole that was enlarged by a half has 0.3 less.
CROP_SHARPER, CROP_CLEANER = 0.25, 1.0  # of the logarithm; of blockiness
# A repeated frame changes less than this share of the upper quartile: codecs alter it, strong ones by several codes. Of
# three films of 30 fps 0.01 of the frames do; converted to 50 or 60 fps, at CRF 20 and 28, 0.4 or 0.5.
STILL = 0.2
FEWER = 0.1  # difference of shares of repeated frames: films of 20 to 30 fps gain 0.1 to 0.4 by conversion to 50
# A film has the detail of its sharpest frames. Most are blurred by motion, and a smaller film shows as much of those.
SHARPEST_FRAMES = 0.95  # quantile: of 21 reduced copies 3 were kept by the median, 1 by 0.9, none by this
# A grey copy has lost its colours for good. Of 45 photos grey versions have 0, toned ones up to 1.6 as JPEG 60, 2.0 as
# JPEG 40 and 3.5 as JPEG 20. Of the 39 coloured ones one has 3.6 (stars), all others have 5.6 and more.
ONE_TONE, COLOURED = 1.6, 4.0  # of `colours`
# Text over a photo can read as sharper, and so can more contrast. Both change its thumbnail: by 15 codes or more in all
# 83 such copies of 292 photos, on which this was chosen. Compression changes it by up to 5, a blur of 1 px by 6 in 0.9.
CHANGED = 12  # codes of the most changed cell
SHARPER_AT_ONE_SIZE = 0.1  # more contrast reads as sharper: by 0.05 for three in ten of 250 copies made brighter by 1.6


@dataclass(frozen=True, eq=False, kw_only=True)
class Copies:
    """Figures that decide which of some copies is the best."""

    detail: Values  # n; logarithm of px of a short side
    blocks: Values  # n; blockiness
    noise: Values  # n; codes: 5 are as bad as a blockiness of 1
    side: Values  # n; px of the short side, without bars and margins
    pixels: Values  # n; without bars and margins
    bare: Values  # n; 1: no bars or margins
    tags: Values  # n; the camera's tags: 2 with model and time, which most programs drop; 1 less if edited
    change: Values  # n; to the next frame of a film; of a film as one copy the share of repeated frames
    clipped: Values  # n; share of the thumbnail's cells as bright as the brightest
    colours: Values  # n; as of `fingerprint`; nan if unknown

    @classmethod
    def measure(cls, rows: pa.Table) -> "Copies":
        """Read sizes, bars and columns of `quality`. A copy without a sharp edge has no detail."""
        own = {name: np.nan_to_num(float_values(rows[name])) for name in ("sharpness", "blockiness", "noise")}
        bars = [bar or {} for bar in rows["bars"].to_pylist()]
        height, width = (
            float_values(rows[name]) - [bar.get(a, 0) + bar.get(b, 0) for bar in bars]
            for name, a, b in (("height", "top", "bottom"), ("width", "left", "right"))
        )
        page = np.minimum(height, width)
        inside = np.array([_measure_inside(small.as_py()) for small in rows["thumbnail"]]).reshape(-1, 2)
        height, width = height * inside[:, 0], width * inside[:, 1]
        tags = [rows[name].is_valid() for name in TAGS if name in rows.column_names] or [np.zeros(len(rows))]
        edited = np.asarray(rows[EDITED].is_valid()) if EDITED in rows.column_names else 0.0
        return cls(
            detail=np.log(np.maximum(own["sharpness"] * np.minimum(height, width) / page, 1.0)),
            blocks=own["blockiness"],
            noise=own["noise"],
            side=np.minimum(height, width),
            pixels=height * width,
            bare=np.array([float(not any(bar.values())) for bar in bars]) * (inside == 1).all(axis=1),
            tags=np.sum(tags, axis=0) - edited,
            change=np.nan_to_num(float_values(rows[CHANGE])) if CHANGE in rows.column_names else 0 * own["noise"],
            clipped=np.array([_measure_brightest(small.as_py()) for small in rows["thumbnail"]], np.float64),
            colours=float_values(rows["colours"]),
        )

    def median(self) -> "Copies":
        """Return a film as one copy: medians of its frames, detail of the sharpest, share of repeated ones."""
        found = {name: np.median(values, keepdims=True) for name, values in vars(self).items()}
        is_repeated = self.change < STILL * np.quantile(self.change, 0.75)
        detail = np.quantile(self.detail, SHARPEST_FRAMES, keepdims=True)
        return Copies(**found | {"detail": detail, "change": np.mean(is_repeated, keepdims=True)})

    def order(self, group: Sequence[int]) -> dict[int, str]:
        """Return the members of a group, best first, each with the reason why it beats all after it."""
        left, found = list(group), {}
        while left:
            best, reason = self.choose(left)
            found[best] = reason
            left.remove(best)
        return found

    def find_lesser(self, looks: Sequence[int], crops: Iterable[tuple[int, int]]) -> set[int]:
        """Return the copies that are crops of another one that shows more at the same scale.

        `looks`: n, equal for equal hashes. `crops`: pairs of a look and that of its crop. A look's largest copy counts.
        """
        largest = {looks[at]: int(at) for at in np.argsort(self.pixels, kind="stable")}
        wholes: dict[int, list[int]] = {}
        for whole, crop in crops:
            wholes.setdefault(crop, []).append(largest[whole])
        return {
            at for at, look in enumerate(looks) if any(self._shows_more(whole, at) for whole in wholes.get(look, ()))
        }

    def choose(
        self, group: Sequence[int], lesser: Collection[int] = (), thumbnails: pa.ChunkedArray | None = None
    ) -> tuple[int, str]:
        """Return the best of a group (the first of equal ones), and the name of the deciding figure.

        `lesser`: as `find_lesser` returns them. `thumbnails`: n; without them no photo is taken for an edited one.
        """
        wholes = [at for at in group if at not in lesser] or group
        if len(wholes) == 1 < len(group):
            return wholes[0], "whole"
        rules = (("coloured", self._has_lost_colours), ("original", self._is_enlarged))
        for reason, is_lesser in (*rules, ("tags", partial(self._is_edited, thumbnails))):
            before, wholes = wholes, [at for at in wholes if not any(is_lesser(at, other) for other in wholes)]
            if len(wholes) == 1 < len(before):
                return wholes[0], reason
        left = np.array(wholes)
        is_one_size = np.ptp(self.pixels[left]) == 0
        for reason, values, margin in (
            ("sharper", self.detail, SHARPER_AT_ONE_SIZE if is_one_size else SHARPER),
            ("bare", self.bare, 0.0),
            ("distinct", -self.change, FEWER),
            ("tags", self.tags, 0.0),  # before "cleaner": a copy saved again can be smoother than its original
            ("cleaner", -self.blocks - self.noise / 5, CLEANER),
            ("larger", self.pixels, 0.0),
            ("unclipped", -self.clipped, CLIPPED),
        ):
            left = left[values[left] >= values[left].max() - margin]
            if len(left) == 1:
                return int(left[0]), reason
        return int(left[0]), "first"

    def _shows_more(self, whole: int, crop: int) -> bool:
        """Return whether a picture has the pixels of its crop and more, unless it lost their detail."""
        return bool(
            self.pixels[whole] >= self.pixels[crop] * (1 - SHARPER)
            and self.bare[whole] >= self.bare[crop]
            and self.detail[crop] - self.detail[whole] <= CROP_SHARPER
            and self.blocks[whole] - self.blocks[crop] <= CROP_CLEANER
            and not self._has_lost_colours(whole, crop)
        )

    def _has_lost_colours(self, at: int, other: int) -> bool:
        """Return whether a copy is of one tone, while another of its size and detail has colours."""
        return bool(
            self.colours[at] < ONE_TONE
            and self.colours[other] >= COLOURED
            and self.pixels[other] >= self.pixels[at] * (1 - SHARPER)
            and self.detail[at] - self.detail[other] <= CROP_SHARPER
            and self.blocks[other] - self.blocks[at] <= CROP_CLEANER
        )

    def _is_enlarged(self, at: int, other: int) -> bool:
        """Return whether a copy has the detail of a smaller one in more pixels."""
        gain, growth = self.detail[at] - self.detail[other], math.log(self.side[at] / self.side[other])
        noise = (self.noise[at] + 0.05) / (self.noise[other] + 0.05)
        if growth < SHARPER or not self.detail[other] or self.blocks[other] - self.blocks[at] > CLEANER:
            return False
        return bool((gain < SAME_DETAIL and noise < SAME_NOISE) or (gain < GAIN * growth and noise < LESS_NOISE))

    def _is_edited(self, thumbnails: pa.ChunkedArray | None, at: int, other: int) -> bool:
        """Return whether a copy was edited, or looks so, while the other is the camera's own photo of the same size.

        A copy without tags that looks the same counts as unedited: the other may be compressed from it.
        """
        if thumbnails is None or not self.tags[other] == len(TAGS) > self.tags[at]:
            return False
        looks = [thumbnails[int(each)].as_py() for each in (at, other)]
        is_larger = self.pixels[at] * (1 - SHARPER) > self.pixels[other]  # edges that are taken for bars do not count
        if is_larger or None in looks or self.blocks[other] - self.blocks[at] > CROP_CLEANER:
            return False
        own, shown = (np.frombuffer(look, np.uint8).astype(np.int16) for look in looks)
        return bool(self.tags[at] > 0 or np.abs(own - shown).max() > CHANGED)


def _measure_brightest(thumbnail: bytes | None) -> float:
    """Return the share of a thumbnail's cells as bright as its brightest; 0 for a video, which has no thumbnail."""
    if thumbnail is None:
        return 0.0
    cells = np.frombuffer(thumbnail, np.uint8)
    return float(np.mean(cells >= BRIGHTEST * cells.max()))


def _measure_inside(thumbnail: bytes | None) -> tuple[float, float]:
    """Return the shares of a thumbnail's height and width inside of a plain margin on all four sides; 1 without."""
    if thumbnail is None:
        return 1.0, 1.0
    side = math.isqrt(len(thumbnail))
    cells = np.frombuffer(thumbnail, np.uint8).reshape(side, side).astype(np.float32)
    for at in (1, 0):  # the outermost cells may show the ground behind a page
        own = slice(at, side - at)
        is_plain = np.abs(cells - np.median([cells[at], cells[~at], cells[:, at], cells[:, ~at]])) <= PLAIN
        lines = [is_plain.mean(axis=axis)[own] >= MARGIN for axis in (1, 0)]
        if all(line[0] and line[-1] and not line.all() for line in lines):
            rows, columns = ((np.ptp(np.flatnonzero(~line)) or 1) / side for line in lines)  # half of the outer cells
            return float(rows), float(columns)
    return 1.0, 1.0
