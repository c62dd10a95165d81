"""A film as hashes of its frames over time, and how far two films show the same.

Shapes: n frames; w windows of a frame, of which the first is the whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.duplicates.hashes import BITS, Bytes, turn_hashes
from framekiln_stages.duplicates.search import Ints

Numbers = NDArray[np.float64]
Place = dict[str, float]

LOOK_S, STILL_S = 0.25, 0.5  # s between looks; without motion
SLOWER, LONGEST_S = 1 / 16, 8.0  # s between looks while a picture stands: this share of the time, up to so many
MOVED = 4  # bits that codec noise changes
# Bits of the same moment. With 20, of films that are cropped off the middle six of seven are missed, with 24 one.
# Unrelated films have 31 and more, and three bits less leave a tenth. Two takes before one camera may have 17, so a
# moment must also be sharp.
NEAR = 24
SHARP = 0.9  # of the bits at other shifts (quantile 0.1): copies have 0.03 to 0.9, two takes at least 0.98
BESIDE_S = (0.5, 2.0)  # s from a shift to the others it is compared with
MOST_S = 60.0  # s around a shift that are searched: while a picture stands, many shifts are alike
GAP_S = 2.0  # of fast motion, without a match inside a part
ROUNDED_S = 0.001  # containers count times in ms
STEP_S, TRIED = 0.01, 300  # of shifts that are tried for a part; frames of it that are compared for each


@dataclass(frozen=True, eq=False, kw_only=True)
class Film:
    """The frames of a film, or some of them."""

    time: Numbers  # n
    hashes: Bytes  # n w 16; 0 for a flat frame

    def turn(self, view: int) -> "Film":
        """Return the film as it is in one of `VIEWS`; flat frames look the same in each."""
        turned = turn_hashes(self.hashes.reshape(-1, 16), view).reshape(self.hashes.shape)
        return Film(time=self.time, hashes=np.where(self.hashes.any(axis=2, keepdims=True), turned, self.hashes))

    @cached_property
    def gap(self) -> float:
        """Return the usual time from a frame to the next, in s."""
        return float(np.median(np.diff(self.time))) if len(self.time) > 1 else 0.0

    @cached_property
    def seconds(self) -> float:
        """Return the time from the first frame that is not flat to the last one, in s."""
        return float(np.ptp(self.time[self.hashes[:, 0].any(axis=1)]))

    @property
    def ends(self) -> Numbers:
        """Return the time (n) up to which each frame is shown."""
        return np.append(self.time[1:], self.time[-1] + self.gap)

    def show(self, time: float) -> float:
        """Return the time of the frame that is shown at a time, which may be off by half a frame."""
        return float(self.time[max(0, int(np.searchsorted(self.time, time + self.gap / 2, side="right")) - 1)])

    def look(self) -> "Film":
        """Return the frames that are searched: where the picture has changed, and ever fewer while it stands."""
        words = np.ascontiguousarray(self.hashes[:, 0]).view(np.uint64)
        looks, begin = list[int](), 0  # begin: of the picture that stands
        for at in np.flatnonzero(words.any(axis=1)).tolist():
            last = looks[-1] if looks else at
            moved, begun = (np.bitwise_count(words[at] ^ words[then]).sum() for then in (last, begin))
            begin = begin if looks and begun <= NEAR else at
            stood = min(LONGEST_S, SLOWER * (self.time[at] - self.time[begin]))
            if not looks or self.time[at] - self.time[last] >= max(stood, LOOK_S if moved > MOVED else STILL_S):
                looks.append(at)
        return Film(time=self.time[looks], hashes=self.hashes[looks])

    def compare(self, time: Numbers, hashes: Bytes) -> tuple[Ints, Ints]:
        """Return the frame shown at each time (n), and in how many bits it differs from `hashes` (n w 16; or n 1 16).

        It differs in all bits before the first frame and after the last one. The bits are n w.
        """
        own = float(np.median(np.diff(time))) if len(time) > 1 else 0.0
        shown = np.searchsorted(self.time, time + self.gap / 2, side="right") - 1
        spare = 0.9 * max(self.gap, own)  # the frames of the slower film stand as long
        is_beyond = (time < self.time[0] - spare) | (time > self.time[-1] + spare)
        bits = np.bitwise_count(self.hashes[shown.clip(0)] ^ hashes).sum(axis=2, dtype=np.int64)
        return shown.clip(0), np.where(is_beyond[:, None], BITS, bits)

    def follow(
        self, other: "Film", span: tuple[float, float], shift: float, spread: float, least: float
    ) -> Iterator[Place]:
        """Yield the first and last frame of a part in both films, as far as their frames look alike, and the mean bits.

        The part is divided where frames differ for two seconds: one film has something there that the other lacks.

        `span`: of the part in this film, in s, to within a look. `shift`: of `other`, to within `spread`. `least`: s
        from its first frame to the end of its last one.
        """
        begin, end = np.searchsorted(self.time, span)
        shift, window = self._find_shift(other, slice(begin, end + 1), shift, spread)
        own = Film(time=self.time, hashes=self.hashes[:, [window]])
        shown, bits = other.compare(own.time + shift, own.hashes)
        alike, alike_there = (found[:, 0] <= NEAR for found in (bits, own.compare(other.time - shift, other.hashes)[1]))
        inside = np.arange(begin, end + 1)[alike[begin : end + 1]]
        for part in np.split(inside, np.flatnonzero(np.diff(self.time[inside]) > GAP_S) + 1):
            if not len(part):
                continue
            first, last = _widen(alike, part)
            there = np.arange(shown[first], shown[last] + 1)
            there = there[alike_there[there]]
            other_first, other_last = _widen(alike_there, there) if len(there) else (shown[first], shown[last])
            lasts_s = other.ends[other_last] - other.time[other_first]
            if lasts_s >= least - ROUNDED_S and own._is_sharp(other, slice(first, last + 1), shift):
                yield {
                    "bits": float(bits[part].mean()),
                    "shift": shift,
                    "start_s": float(self.time[first]),
                    "end_s": float(self.time[last]),
                    "other_start_s": float(other.time[other_first]),
                    "other_end_s": float(other.time[other_last]),
                }

    def _find_shift(self, other: "Film", part: slice, shift: float, spread: float) -> tuple[float, int]:
        """Return the shift of `other` and the window at which a part differs least: first to a frame, then finer."""
        window = 0
        for step, far in ((max(min(self.gap, other.gap), STEP_S), spread), (STEP_S, 2 * other.gap)):
            tried = shift + np.arange(-far, far + step, step)
            bits = np.array([each.sum(axis=0) for each in self._try(other, part, tried)])
            window = int(bits.min(axis=0).argmin())
            shift = float(np.median(tried[bits[:, window] == bits.min()]))
        return shift, window

    def _is_sharp(self, other: "Film", part: slice, shift: float) -> bool:
        """Return whether a part's frames differ less at this shift than at nearly all others: two takes do not."""
        beside = np.arange(*BESIDE_S, 0.1)
        tried = self._try(other, part, np.concatenate(([0.0], beside, -beside)) + shift)
        means = np.array([_average(bits) for bits in tried])
        beside = means[1:][means[1:] < BITS]
        return not len(beside) or bool(means[0] < SHARP * np.quantile(beside, 0.1))

    def _try(self, other: "Film", part: slice, shifts: Numbers) -> Iterator[Ints]:
        """Yield the differing bits of some of a part's frames (k w), at each shift."""
        some = slice(part.start, part.stop, 1 + (part.stop - part.start) // TRIED)
        for shift in shifts:
            yield other.compare(self.time[some] + shift, self.hashes[some])[1]


def _average(bits: Ints) -> float:
    """Return the mean bits of the frames (k 1) that are in both films; all bits if they are less than half."""
    inside = bits[bits < BITS]
    return float(inside.mean()) if 2 * len(inside) >= len(bits) else float(BITS)


def _widen(alike: NDArray[np.bool_], part: Ints) -> tuple[int, int]:
    """Return the first and last frame of a part, after adding the neighbours that are alike (n) without a break."""
    first, last = int(part[0]), int(part[-1])
    before, after = np.flatnonzero(~alike[:first]), np.flatnonzero(~alike[last + 1 :])
    return int(before[-1]) + 1 if len(before) else 0, last + int(after[0]) if len(after) else len(alike) - 1
