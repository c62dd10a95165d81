"""Offsets of sound against the truth: GRID's speakers, whose sound is in step, with their sound moved and swapped.

Confidences were fitted on four of the six clips (three speakers). The two clips that were kept aside have
figures of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.accuracy import AccuracyFigure
from tests.support.stages.sync_factory import ASIDE, CLIPS, FRAME, clip, heard, judge, moved, spoken, table_of

NEAR = (-8, -4, 0, 4, 8)  # frames, of 40 ms: within what broadcasts and phones do
FAR = (-24, -20, -16, 16, 20, 24)
BEYOND = (-36, -30, 30, 36)
RIGHT = 2.0  # frames
NOISE = (None, 15.0, 5.0)  # dB of the speech over white noise
Row = dict[str, Any]
# no library at hand answers the questions without a network's weights
_figure = partial(AccuracyFigure, "sync")


def measure() -> list[AccuracyFigure]:
    """Return the figures of sync."""
    near, far, beyond = (_own(CLIPS, moves) for moves in (NEAR, FAR, BEYOND))
    others = [judge(table_of(a, heard(b))) for a in CLIPS for b in CLIPS if a != b]
    given = float(np.mean([row["offset_frames"] is not None for row in others]))
    figures = [
        _figure("6 clips x 5 moves within 0.32 s", "offsets within 2 frames, share", _right(near)),
        _figure("6 clips x 6 moves of 0.64 to 0.96 s", "offsets within 2 frames, share", _right(far)),
        _figure("6 clips x 6 moves of 0.64 to 0.96 s", "wrong offsets, share", _wrong(far), better="lower"),
        _figure("6 clips x 4 moves of 1.2 to 1.44 s", "wrong offsets, share", _wrong(beyond), better="lower"),
        _figure("30 pairs of lips and another's sound", "offsets given, share", given, better="lower"),
        _figure("own sound near against another's", "AUC of the confidence", _auc([row for _, row in near], others)),
    ]
    return [*figures, _calibration(NOISE, "clean and noisy"), _calibration((None,), "clean")]


def _own(clips: Sequence[str], moves: Sequence[int]) -> list[tuple[int, Row]]:
    return [(by, judge(table_of(name, heard(name, by)))) for name in clips for by in moves]


def _off(by: float, row: Row) -> float:
    """Return the error in frames; NaN without an offset."""
    return float("nan") if row["offset_frames"] is None else abs(row["offset_frames"] - by)


def _right(rows: Sequence[tuple[int, Row]]) -> float:
    return float(np.mean([_off(*pair) <= RIGHT for pair in rows]))


def _wrong(rows: Sequence[tuple[int, Row]]) -> float:
    return float(np.mean([_off(*pair) > RIGHT for pair in rows]))


def _auc(own: Sequence[Row], others: Sequence[Row]) -> float:
    mine, theirs = (np.array([row["confidence"] or 0.0 for row in rows]) for rows in (own, others))
    return float(((mine[:, None] > theirs) + 0.5 * (mine[:, None] == theirs)).mean())


def _calibration(noise: Sequence[float | None], what: str) -> AccuracyFigure:
    """Return the gap between confidence and share of right offsets, of speakers that no threshold was chosen on."""
    own = [(by, row) for name in ASIDE for by, row in _noisy(name, name, noise)]
    swapped = [row for name in ASIDE for other in CLIPS if other != name for _, row in _noisy(name, other, noise)]
    shown = np.array([row["confidence"] or 0.0 for _, row in own] + [row["confidence"] or 0.0 for row in swapped])
    true = np.array([_off(*pair) <= RIGHT for pair in own] + [False] * len(swapped))
    weight = np.r_[np.full(len(own), 0.5 / len(own)), np.full(len(swapped), 0.5 / len(swapped))]
    bins = np.minimum(shown * 5, 4).astype(int)
    gap = sum(abs(((shown - true) * weight)[bins == number].sum()) for number in range(5))
    data = f"2 speakers kept aside, {what}: {len(own)} own, {len(swapped)} another's"
    return _figure(data, "expected calibration error", float(gap), better="lower")


def _noisy(lips: str, sound: str, noise: Sequence[float | None]) -> Iterator[tuple[int, Row]]:
    """Yield moves and rows of lips with a sound at 0.32 s either way, in white noise of these levels; None for none."""
    rng = np.random.default_rng(0)
    for by in (-8, 0, 8):
        samples = moved(clip(sound)[2], by).astype(float)
        level = float(np.sqrt((samples**2).mean()))
        for decibel in noise:
            hiss = 0.0 if decibel is None else rng.standard_normal(len(samples)) * level * 10 ** (-decibel / 20)
            loud = (samples + hiss).clip(-32768, 32767).astype(np.int16)
            yield by, judge(table_of(lips, spoken(loud[: FRAME * 75], clip(lips)[3])), min_confidence=0.0)
