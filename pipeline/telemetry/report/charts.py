"""Charts as inline SVG: no library to load, sharp in print, coloured by the page's style sheet in light and dark.

Everything that is not a number goes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.telemetry.report.distributions import Bar, Histogram
from pipeline.telemetry.report.words import coordinate as _n
from pipeline.telemetry.report.words import count, number, on_axis

WIDTH, HEIGHT = 280, 124  # in units of the drawing; it is scaled to the width of its card
_LEFT, _RIGHT, _TOP, _BOTTOM = 2.0, 278.0, 18.0, 104.0
_ASIDE = 16.0  # kept at an end of the axis for a bar of what lies beyond it
_LETTER = 7.0  # width of a digit, amply


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Where the axis lies in the drawing."""

    left: float
    right: float
    tallest: int

    @classmethod
    def of(cls, about: Histogram) -> _Frame:
        left, right = _LEFT + _ASIDE * bool(about.below), _RIGHT - _ASIDE * bool(about.above)
        return cls(left=left, right=right, tallest=max(about.below, about.above, *(bar.rows for bar in about.bars)))


def histogram(about: Histogram, what: str) -> Markup:
    """Bars over a labelled axis, with a dashed line at the median; each bar says its numbers when pointed at.

    Args:
        about: counts and axis.
        what: name of what is counted, for those who hear the page.
    """
    frame = _Frame.of(about)
    axis = Markup('<line class="axis" x1="0" y1="{}" x2="{}" y2="{}"/>').format(_n(_BOTTOM), WIDTH, _n(_BOTTOM))
    top = _text(_LEFT, 11, "start", f"tallest bar: {count(frame.tallest, 'row')}")
    parts = Markup("").join([top, *_bars(about, frame), axis, *_median(about, frame), *_ticks(about, frame)])
    template = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return template.format(WIDTH, HEIGHT, _summary(about, what), parts)


def _bars(about: Histogram, frame: _Frame) -> Iterator[Markup]:
    step = (frame.right - frame.left) / len(about.bars)
    for i, bar in enumerate(about.bars):
        yield _bar(bar, frame.left + (i + 0.5) * step, min(step - min(1.0, step / 5), 40.0), frame, "bar")
    width = _ASIDE - 6
    if about.below:
        yield _bar(Bar(label=f"under {number(about.low)}", rows=about.below), _LEFT + width / 2, width, frame, "beyond")
    if about.above:
        yield _bar(
            Bar(label=f"over {number(about.high)}", rows=about.above), _RIGHT - width / 2, width, frame, "beyond"
        )


def _bar(bar: Bar, middle: float, width: float, frame: _Frame, look: str) -> Markup:
    height = (_BOTTOM - _TOP) * bar.rows / frame.tallest
    if bar.rows:
        height = max(height, 1.5)  # a single row among thousands is still to be seen
    template = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>')
    place = (_n(middle - width / 2), _n(_BOTTOM - height), _n(width), _n(height))
    return template.format(look, *place, bar.label, count(bar.rows, "row"))


def _median(about: Histogram, frame: _Frame) -> Iterator[Markup]:
    if about.low <= about.median <= about.high and len(about.bars) > 1:
        x = _n(frame.left + (frame.right - frame.left) * (about.median - about.low) / (about.high - about.low))
        yield Markup('<line class="median" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(x, _n(_TOP - 3), x, _n(_BOTTOM))


def _ticks(about: Histogram, frame: _Frame) -> list[Markup]:
    bars, y, width = about.bars, HEIGHT - 5, about.high - about.low
    if about.discrete:
        step = (frame.right - frame.left) / len(bars)
        every = math.ceil(_LETTER * (1 + max(len(bar.label) for bar in bars)) / step)
        return [
            _text(frame.left + (i + 0.5) * step, y, "middle", bars[i].label) for i in range(0, len(bars), max(1, every))
        ]
    middle = (about.low + about.high) / 2, (frame.left + frame.right) / 2
    places = (("start", about.low, frame.left), ("middle", *middle), ("end", about.high, frame.right))
    return [_text(x, y, anchor, on_axis(value, width)) for anchor, value, x in places]


def _text(x: float, y: float, anchor: str, said: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(_n(x), _n(y), anchor, said)


def _summary(about: Histogram, what: str) -> str:
    top = max(about.bars, key=lambda bar: bar.rows)
    return f"Histogram of {what}: median {number(about.median)}; most rows, {top.rows:,}, at {top.label}."
