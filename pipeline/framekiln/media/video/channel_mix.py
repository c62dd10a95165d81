"""One channel of several: their mean, as players give it, but without what a mean hides.

The mean of two channels in opposite phase is silence, and a voice in one channel of two is half as loud. So for each
second of the track the mean is taken over the channels with sound. Where even that cancels, the loudest channel is
taken. A second is counted from the track's first sample, so that all segments of a film get the same sound.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

SILENT = 0.01  # of the loudest channel's level, 40 dB below it: crosstalk and noise of a channel without sound
CANCELS = 0.25  # of that level, 12 dB below it; the mean of independent channels, n of them, has 1 / sqrt(n)

MIN_GAP_S = 0.015  # from this gap on, time stamps override the sample count: a packet of Opus is 20 ms, of AAC 21

Channels = NDArray[np.float32]  # c n


def mix(channels: Channels) -> NDArray[np.float32]:
    """Return one channel (n) of c, each -1 to 1.

    >>> left = np.float32([0.5, -0.5])
    >>> mix(np.stack([left, -left])), mix(np.stack([left, 0 * left]))
    (array([ 0.5, -0.5], dtype=float32), array([ 0.5, -0.5], dtype=float32))
    """
    levels = np.sqrt(np.square(channels, dtype=np.float64).mean(axis=1))
    loudest = levels.max()
    mean: NDArray[np.float32] = channels[levels >= SILENT * loudest].mean(axis=0)
    cancels = np.sqrt(np.square(mean, dtype=np.float64).mean()) < CANCELS * loudest
    return channels[levels.argmax()] if cancels else mean


def mixed_to_mono(pieces: Iterator[av.AudioFrame], start_s: float) -> Iterator[av.AudioFrame]:
    """Yield a track's sound as mono pieces; those that are mono stay as they are. `start_s`: of the first sample."""
    kept: list[Channels] = []  # of one second, from the sample `first` on
    first, count, rate = 0, 0, 1
    planar, layout = _make_planar(None), ""
    for piece in pieces:
        at = first + count if piece.time is None else round((piece.time - start_s) * piece.sample_rate)
        follows = (rate, layout) == (piece.sample_rate, piece.layout.name)
        if not follows or abs(at - first - count) > MIN_GAP_S * rate:
            if kept:
                yield _make_frame(kept, first, rate, start_s)
            kept, first, count, rate = [], at, 0, piece.sample_rate
            planar, layout = _make_planar(piece.layout), piece.layout.name
        if piece.layout.nb_channels == 1:
            yield piece
            first += piece.samples
            continue
        kept += [part.to_ndarray() for part in planar.resample(piece)]
        count += piece.samples
        while (missing := rate - first % rate) <= count:  # a whole second
            whole = np.concatenate(kept, axis=1)
            yield _make_frame([whole[:, :missing]], first, rate, start_s)
            kept, first, count = [whole[:, missing:]], first + missing, count - missing
    if count:
        yield _make_frame(kept, first, rate, start_s)


def _make_planar(layout: Any) -> Any:
    return av.AudioResampler(format="fltp", layout=layout)


def _make_frame(kept: list[Channels], first: int, rate: int, start_s: float) -> av.AudioFrame:
    mono = np.ascontiguousarray(mix(np.concatenate(kept, axis=1))[None])
    frame = av.AudioFrame.from_ndarray(mono, format="fltp", layout="mono")
    frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
    frame.pts = round(start_s * rate) + first
    return frame
