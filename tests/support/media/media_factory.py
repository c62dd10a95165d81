"""Media for tests: photos of every kind, and films with the number in every frame."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pil

from framekiln.contract.columns import views
from framekiln.contract.packet import Packet
from framekiln.contract.row_errors import Failure
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from tests.support.media.own_thread import in_own_thread


def encoded(image: Pil.Image, kind: str, **options: Any) -> bytes:
    """Return a photo as file content."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def with_chunk(data: bytes, name: bytes, content: bytes) -> bytes:
    """Return a PNG with a further chunk after its header."""
    body = name + content
    chunk = len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return data[:33] + chunk + data[33:]


def numbered(index: int, height: int = 16, width: int = 24) -> np.ndarray:
    """Return an image for a number: one of 256 greys, with a red corner that shows the orientation."""
    image = np.full((height, width, 3), index % 256, np.uint8)
    image[: height // 4, : width // 4] = (255, 0, 0)
    return image


_LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1", 16: "hexadecagonal"}


@in_own_thread
def film(
    path: Path,
    frames: Sequence[np.ndarray],
    *,
    fps: int = 25,
    codec: str = "ffv1",
    pix_fmt: str = "bgr0",
    gop: int = 12,
    matrix: tuple[int, ...] | None = None,
    sound: np.ndarray | None = None,
    sound_codec: str = "pcm_s16le",
    sound_starts_s: float = 0.0,
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    colorspace: int = 0,
    times: Sequence[int] | None = None,
) -> Path:
    """Write a film of RGB frames. `sound`: 48 kHz int16 of n, or channels n; `times`: in units of 1 / fps."""
    import av

    with av.open(str(path), "w", options=container or {}) as out:
        track = out.add_stream(codec, rate=fps, options=options or {})
        track.height, track.width, track.pix_fmt = *frames[0].shape[:2], pix_fmt
        track.gop_size = gop
        if colorspace:
            track.codec_context.colorspace = colorspace
        if matrix:
            track.set_display_matrix(matrix)
        sound_track = None
        if sound is not None:
            sound_track = out.add_stream(sound_codec, rate=48_000, layout=_LAYOUTS[len(np.atleast_2d(sound))])
        for index, frame in enumerate(frames):
            av_frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            av_frame = av_frame.reformat(format=pix_fmt, dst_colorspace=colorspace) if colorspace else av_frame
            av_frame.pts, av_frame.time_base = times[index] if times else index, Fraction(1, fps)
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
        if sound_track is not None and sound is not None:
            _add_sound(out, sound_track, sound, round(sound_starts_s * 48_000))
    return path


def _add_sound(out: Any, track: Any, sound: np.ndarray, starts: int) -> None:
    import av

    channels = np.atleast_2d(sound)
    for start in range(0, channels.shape[1], 1024):
        samples = np.ascontiguousarray(channels[:, start : start + 1024].T).reshape(1, -1)
        piece = av.AudioFrame.from_ndarray(samples, format="s16", layout=_LAYOUTS[len(channels)])
        piece.sample_rate, piece.time_base = 48_000, Fraction(1, 48_000)
        piece.pts = starts + start
        out.mux(track.encode(piece))
    out.mux(track.encode(None))


def decoded(
    source: Path, columns: Sequence[str] = ("frame",), *, halo: int = 0, **config: Any
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Return all rows without halo rows, with pixels as arrays, and all failures."""
    packets = packets_of(source, columns, halo=halo, **config)
    rows = [row for packet in packets for row in rows_of(packet) if not row["halo"]]
    return rows, [failure for packet in packets for failure in packet.failures]


def packets_of(source: Path, columns: Sequence[str] = ("frame",), *, halo: int = 0, **config: Any) -> list[Packet]:
    """Return the packets of one unit with all files of a source."""
    unit = Unit(name="unit", media=tuple(list_media(str(source))))
    return list(decode(unit, columns, halo, DecodeConfig(**config)))


def rows_of(packet: Packet) -> list[dict[str, Any]]:
    """Return rows with pixels as arrays (h w 3) and sound as an array or None."""
    columns: dict[str, list[Any]] = {}
    for name in packet.rows.column_names:
        column = packet.rows[name]
        if name.startswith("frame") and name != "frame_index":
            columns[name] = views(column)
        elif name == "sound":
            columns[name] = [None if value.as_py() is None else value.values.to_numpy() for value in column]
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def click(at_s: float, seconds: float = 2.0) -> np.ndarray:
    """Return silence with a tone of 10 ms, at 48 kHz."""
    sound = np.zeros(round(seconds * 48_000), np.int16)
    start = round(at_s * 48_000)
    sound[start : start + 480] = (20_000 * np.sin(np.arange(480) * 0.3)).astype(np.int16)
    return sound
