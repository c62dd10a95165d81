"""Numbers as people read them: a report full of 0.10133333 and 14227.1 is not read at all."""

from __future__ import annotations

import math

_MINUTE, _HOUR = 60, 3600


def number(value: float) -> str:
    """A count with thousands separators, or three significant digits: 12,345; 3.14; 0.0012; 2.1e-05."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{value:+}"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def on_axis(value: float, width: float) -> str:
    """A value of an axis of the given width, to a hundredth of it: what matters less than that is noise there."""
    if not 1e-5 < width < 1e9:
        return number(float(value))
    text = f"{value:,.{max(0, 2 - math.floor(math.log10(width)))}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def duration(seconds: float) -> str:
    """Seconds with the unit that fits: 3.2 ms; 14.2 s; 2 min 13 s; 3 h 5 min."""
    if seconds < 0.9995:
        return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"
    if seconds < _MINUTE - 0.05:
        return f"{number(seconds)} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR:,} h {whole % _HOUR // _MINUTE} min"


def share(part: float, whole: float) -> str:
    """A percentage that never rounds something to nothing, nor almost all to all."""
    if not whole:
        return "0%"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    return ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """A number of things: 1 file; 1,203 files; no files."""
    word = noun if amount == 1 else plural or f"{noun}s"
    return f"{amount:,} {word}" if amount else f"no {word}"


def shorten(text: str, longest: int) -> str:
    """A text with its middle left out when it is longer."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"


def coordinate(value: float) -> str:
    """A coordinate of a drawing with one decimal, and no more characters than that takes."""
    return f"{value:.1f}".removesuffix(".0")


def moment(seconds: float) -> str:
    """Time since a beginning: 0.25 s; 12 s; 2:05; 1:02:05."""
    if seconds < _MINUTE - 0.5:
        return f"{number(round(seconds, 2) if seconds < 10 else round(seconds))} s"
    whole = round(seconds)
    tail = f"{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"
    return f"{whole // _HOUR}:{tail}" if whole >= _HOUR else tail.removeprefix("0")
