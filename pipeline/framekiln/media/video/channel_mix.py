"""One channel from several: their mean, as in players, without the losses of a plain mean.

The mean of two channels in opposite phase is silence, and a voice in one of two channels is half as loud. So for each
second of the track the mean covers the channels with sound, and channels that oppose the first of them are inverted. If
even that cancels, the loudest channel is taken. Seconds are counted from the track's first sample, so that all segments
of a video get the same sound.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

SILENT = 0.01  # share of the loudest channel's level, 40 dB below it: crosstalk and noise of a silent channel
CANCELS = 0.25  # share of that level, 12 dB below it; the mean of n independent channels has 1 / sqrt(n)
# A correlation below which a channel is inverted: that of sound in opposite phase in noise as loud as itself. In 27
# seconds of eight held-out videos the lowest is 0.64.
OPPOSES = -0.5
# Weights of channels by ITU-R BS.775, table 2, which keeps the centre's voices above music; of others 0.7071.
_WEIGHTS = {"FC": 1.0, "LFE": 0.0, "LFE2": 0.0} | dict.fromkeys(("BL", "BR", "BC", "SL", "SR"), 0.5)
_MOST = 16.0  # times full scale, for damaged floating-point samples; mono clips at 1
MIN_GAP_S = 0.015  # from this gap on, time stamps override the sample count: a packet of Opus is 20 ms, of AAC 21

Channels = NDArray[np.float32]  # c n


def mix(channels: Channels, weights: Sequence[float]) -> NDArray[np.float32]:
    """Return one channel (n) of c, each -1 to 1; `weights` are of the channels (c), all the same by default.

    >>> left = np.float32([0.5, -0.5])
    >>> mix(np.stack([left, -left])), mix(np.stack([left, 0 * left]))
    (array([ 0.5, -0.5], dtype=float32), array([ 0.5, -0.5], dtype=float32))
    """
    shares = np.array(weights or [1.0] * len(channels), np.float32)
    levels = np.sqrt(np.square(channels, dtype=np.float64).mean(axis=1)) * (shares > 0)
    loudest = levels.max()
    if not loudest:
        return channels.mean(axis=0)  # silence, or sound in the low channel alone
    heard = channels[levels >= SILENT * loudest]
    shares = shares[levels >= SILENT * loudest]
    likeness = heard @ heard[0] / np.sqrt(np.square(heard).sum(axis=1) * np.square(heard[0]).sum())
    mean: NDArray[np.float32] = np.where(likeness < OPPOSES, -shares, shares) / shares.sum() @ heard
    cancels = np.sqrt(np.square(mean, dtype=np.float64).mean()) < CANCELS * loudest
    return channels[levels.argmax()] if cancels else mean


def mixed_to_mono(pieces: Iterator[av.AudioFrame], start_s: float) -> Iterator[av.AudioFrame]:
    """Yield a track's sound as mono pieces; mono ones stay unchanged. `start_s`: of the first sample."""
    kept: list[Channels] = []  # channels of one second, from the sample `first` on
    first, count, rate = 0, 0, 1
    layout, weights, reader = "", list[float](), ChannelReader()
    for piece in pieces:
        at = first + count if piece.time is None else round((piece.time - start_s) * piece.sample_rate)
        follows = (rate, layout) == (piece.sample_rate, piece.layout.name)
        if not follows or abs(at - first - count) > MIN_GAP_S * rate:
            if kept:
                yield _make_frame(kept, weights, first, rate, start_s)
            kept, first, count, rate = [], at, 0, piece.sample_rate
            layout = piece.layout.name
            weights = [_WEIGHTS.get(channel.name, 0.7071) for channel in piece.layout.channels]
        if piece.layout.nb_channels == 1:
            yield piece
            first += piece.samples
            continue
        kept.append(reader.read(piece))
        count += piece.samples
        while (missing := rate - first % rate) <= count:  # a whole second
            whole = np.concatenate(kept, axis=1)
            yield _make_frame([whole[:, :missing]], weights, first, rate, start_s)
            kept, first, count = [whole[:, missing:]], first + missing, count - missing
    if count:
        yield _make_frame(kept, weights, first, rate, start_s)


class ChannelReader:
    """The channels of pieces in any form, read through one plane.

    PyAV ends the process when eight or more planes are read: it looks for the end of their list beyond it.
    """

    def __init__(self, rate: int | None = None) -> None:
        """Read samples at this rate; None: at their own."""
        self._rate = rate
        self._packers: dict[tuple[str, str, int], Any] = {}  # by the parameters of libav's resamplers

    def read(self, piece: av.AudioFrame) -> Channels:
        """Return the samples of each channel (c n), -1 to 1."""
        form = piece.layout.name, piece.format.name, piece.sample_rate
        if form not in self._packers:
            self._packers[form] = av.AudioResampler(format="flt", layout=piece.layout, rate=self._rate)
        packed = [part.to_ndarray()[0] for part in self._packers[form].resample(piece)]
        joined = np.concatenate([np.zeros(0, np.float32), *packed]).reshape(-1, piece.layout.nb_channels)
        return np.nan_to_num(joined).clip(-_MOST, _MOST).T


def _make_frame(kept: list[Channels], weights: Sequence[float], first: int, rate: int, start_s: float) -> av.AudioFrame:
    mono = np.ascontiguousarray(mix(np.concatenate(kept, axis=1), weights)[None], np.float32)
    frame = av.AudioFrame.from_ndarray(mono, format="fltp", layout="mono")
    frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
    frame.pts = round(start_s * rate) + first
    return frame
