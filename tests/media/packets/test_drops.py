"""Dropped pixel columns are not made, and packets are otherwise the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pil

from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.frames import FrameSpec
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from tests.support.media.media_factory import encoded, film, numbered

COLUMNS = ("frame", "frame_64", "sound")


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    """Photos of odd sizes, turned and cut off, an animation, a film with sound."""
    folder = tmp_path_factory.mktemp("in")
    rng = np.random.default_rng(0)
    for turn in range(1, 9):
        tags = Pil.Exif()
        tags[0x0112] = turn
        image = Pil.fromarray(rng.integers(0, 255, (133 + 40 * turn, 217, 3), np.uint8))
        data = encoded(image, "JPEG" if turn % 3 else "PNG", exif=tags)
        (folder / f"{turn}").write_bytes(data)
        (folder / f"{turn}-cut").write_bytes(data[: len(data) // 2])
    film(folder / "film.mkv", [numbered(i, 90, 121) for i in range(70)], gop=7, sound=np.arange(48_000, dtype=np.int16))
    return Unit(name="unit", media=tuple(list_media(str(folder))))


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("drops", [("frame",), ("frame_64",), ("sound",), ("frame", "frame_64"), COLUMNS])
def test_packets_differ_only_in_the_dropped_columns(unit: Unit, drops: tuple[str, ...], fast_mode: bool) -> None:
    config = DecodeConfig(packet_bytes=700_000, clip_frames=16, fast_mode=fast_mode)
    whole = list(decode(unit, COLUMNS, 1, config))
    reduced = list(decode(unit, COLUMNS, 1, config, drops=drops))
    assert len(whole) > 6 and sum(len(packet.failures) for packet in whole) == 8
    for packet, other in zip(whole, reduced, strict=True):
        assert other.rows.equals(packet.rows.drop_columns(list(drops)))
        assert (other.start, other.stop, other.failures, other.ends) == (
            packet.start,
            packet.stop,
            packet.failures,
            packet.ends,
        )


@settings(deadline=None)
@given(height=st.integers(1, 5000), width=st.integers(1, 5000), fast=st.booleans())
def test_bytes_are_known_without_the_pixels(height: int, width: int, fast: bool) -> None:
    names = ("frame", "frame_64", "frame_224")
    spec = FrameSpec(pixels=(), dropped=names, config=DecodeConfig(fast_mode=fast))
    factors = [spec.factor(name, height, width) for name in names]
    sizes = (len(range(0, height, factor)) * len(range(0, width, factor)) for factor in factors)
    assert spec.dropped_bytes(height, width) == 3 * sum(sizes)
