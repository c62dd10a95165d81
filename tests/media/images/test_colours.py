"""Ten bits, BT.2020 and HDR against the formulas of the recommendations."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.media.media_factory import decoded
from tests.support.media.own_thread import in_own_thread

_RGB = np.array([[1, 1, 1], [0.5, 0.5, 0.5], [0.18, 0.18, 0.18], [0.05, 0.05, 0.05], [0.8, 0.4, 0.3], [0.3, 0.4, 0.6]])
_709_TO_2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])  # BT.2087
_SIDE = 32


@in_own_thread
def ten_bits(path: Path, signal: np.ndarray, *, transfer: int, primaries: int, codec: str = "libx265") -> Path:
    """Write three frames of patches; `signal` (n 3) is R'G'B' in 0 to 1, coded by BT.2020's matrix, limited range."""
    red, green, blue = signal.T
    luma = 0.2627 * red + 0.6780 * green + 0.0593 * blue
    planes = [64 + 876 * luma, 512 + 896 * (blue - luma) / 1.8814, 512 + 896 * (red - luma) / 1.4746]
    options = {"crf": "1"} | ({"x265-params": "log-level=none"} if codec == "libx265" else {})
    with av.open(str(path), "w") as out:
        track = out.add_stream(codec, rate=25, options=options)
        track.width, track.height, track.pix_fmt = _SIDE * len(signal), 2 * _SIDE, "yuv420p10le"
        context = track.codec_context
        context.colorspace, context.color_range, context.color_trc, context.color_primaries = 9, 1, transfer, primaries
        av_frame = av.VideoFrame(track.width, track.height, "yuv420p10le")
        for number, (plane, values) in enumerate(zip(av_frame.planes, planes, strict=True)):
            side = _SIDE // (2 if number else 1)
            row = np.zeros(plane.line_size // 2, np.uint16)
            row[: side * len(values)] = np.repeat(values.round().astype(np.uint16), side)
            plane.update(np.tile(row, (plane.height, 1)).tobytes())
        av_frame.colorspace, av_frame.color_range = 9, 1
        av_frame.color_trc, av_frame.color_primaries = transfer, primaries
        for time in range(3):
            av_frame.pts = time
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
    return path


def patches(path: Path) -> np.ndarray:
    rows, failures = decoded(path)
    assert failures == [] and len(rows) == 3
    return rows[1]["frame"][_SIDE, _SIDE // 2 :: _SIDE].astype(int)


def srgb(linear: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1, to 0 to 255."""
    return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
def test_ten_bits_in_the_matrix_of_bt_2020(tmp_path: Path, codec: str) -> None:
    path = ten_bits(tmp_path / "film.mkv", _RGB, transfer=14, primaries=9, codec=codec)
    assert np.abs(patches(path) - 255 * _RGB).max() <= 4


def test_pq_is_mapped_to_srgb(tmp_path: Path) -> None:
    """Reference white, 203 cd/m2 by ITU-R BT.2408, becomes white; darker values keep their lightness."""
    light = (_RGB @ _709_TO_2020.T * 203 / 10_000) ** (2610 / 16384)  # SMPTE ST 2084
    signal = ((3424 / 4096 + 2413 / 128 * light) / (1 + 2392 / 128 * light)) ** (2523 / 32)
    path = ten_bits(tmp_path / "film.mp4", signal, transfer=16, primaries=9)
    assert np.abs(patches(path) - srgb(_RGB)).max() <= 8


def test_hlg_is_mapped_to_srgb(tmp_path: Path) -> None:
    """Reference white is 75 % HLG (BT.2408); the system gamma of 1.2 (BT.2100) makes dark parts darker."""
    light = _RGB @ _709_TO_2020.T * 0.265
    bright = 0.17883277 * np.log(np.maximum(12 * light - 0.28466892, 1e-9)) + 0.55991073
    path = ten_bits(
        tmp_path / "film.mp4", np.where(light <= 1 / 12, np.sqrt(3 * light), bright), transfer=18, primaries=9
    )
    shown = _RGB * (_RGB @ [0.2126, 0.7152, 0.0722])[:, None] ** 0.2
    assert np.abs(patches(path) - srgb(shown)).max() <= 10
