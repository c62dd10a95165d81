"""Films with sound, made from photos that installed packages bring, in the containers of cameras and web sites."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from tests.support.media.media_factory import film
from tests.support.media.photos import take

FRAMES, RATE = 160, 25
KINDS = {  # codec of the pictures, its options, codec of the sound
    "film.mp4": ("libx264", {"bf": "3", "threads": "1"}, "aac"),
    "film.mkv": ("libx265", {"x265-params": "log-level=none:pools=1"}, "pcm_s16le"),
    "film.mpg": ("mpeg1video", {}, "mp2"),
}


@cache
def made_film(name: str) -> Path:
    """One of KINDS: 160 frames of 320 x 180 with speech-like noise, a key frame at least each 12th."""
    codec, options, sound_codec = KINDS[name]
    rng = np.random.default_rng(0)
    swell = np.abs(np.sin(np.arange(FRAMES * 48_000 // RATE) / 7_000))
    sound = (4_000 * swell * rng.standard_normal(len(swell))).clip(-32_000, 32_000).astype(np.int16)
    return film(
        Path(mkdtemp()) / name,
        take("china.jpg", FRAMES, 180, 320),
        codec=codec,
        pix_fmt="yuv420p",
        options=options,
        sound=sound,
        sound_codec=sound_codec,
    )
