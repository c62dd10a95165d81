"""Small whole files of every kind that is decoded: what the fuzz target damages."""

from __future__ import annotations

import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image as Pil

from framekiln.contract.errors import MediaError
from framekiln.media.file_types import HEAD_BYTES, detect_kind
from tests.support.media.archive_factory import tar, zipped
from tests.support.media.colour_profiles import ADOBE_RGB, rgb_profile
from tests.support.media.material import ROOT
from tests.support.media.media_factory import encoded, film, numbered, with_chunk
from tests.support.media.rare_photos import tiff
from tests.support.media.tiff_factory import join_pages
from tests.support.media.tiff_factory import tiff as wide

_MOST = 40_000  # bytes of a file taken from the test media: small ones are decoded a hundred times a second
_SAME = {"fflags": "bitexact"}  # no date and no random identity: the same bytes in every process
_FILMS: dict[str, dict] = {  # by the name of the file
    "h264.mp4": {"codec": "libx264", "pix_fmt": "yuv420p", "sound": True, "sound_codec": "aac"},
    "fragmented.mp4": {
        "codec": "libx264",
        "pix_fmt": "yuv420p",
        "container": {"movflags": "frag_keyframe+empty_moov", **_SAME},
    },
    "mpeg4.avi": {"codec": "mpeg4", "pix_fmt": "yuv420p", "sound": True},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "ffv1.mkv": {"sound": True},
    "h264.mkv": {"codec": "libx264", "pix_fmt": "yuv420p", "options": {"bf": "2"}},
    "vp9.webm": {"codec": "libvpx-vp9", "pix_fmt": "yuv420p", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "h264.ts": {"codec": "libx264", "pix_fmt": "yuv420p"},
    "heard.ts": {"codec": "mpeg2video", "pix_fmt": "yuv420p", "sound": True, "sound_codec": "mp2"},
    "raw.h264": {"codec": "libx264", "pix_fmt": "yuv420p"},
    "vp8.ivf": {"codec": "libvpx", "pix_fmt": "yuv420p"},
    "raw.y4m": {"codec": "wrapped_avframe", "pix_fmt": "yuv420p"},
    "rv20.rm": {"codec": "rv20", "pix_fmt": "yuv420p"},
    "raw.m4v": {"codec": "mpeg4", "pix_fmt": "yuv420p"},
    "mpeg2.mxf": {"codec": "mpeg2video", "pix_fmt": "yuv420p"},
    "flv1.flv": {"codec": "flv", "pix_fmt": "yuv420p"},
    "mpeg1.mpg": {"codec": "mpeg1video", "pix_fmt": "yuv420p"},
    "larger.mpg": {"codec": "mpeg1video", "pix_fmt": "yuv420p", "side": 2},
    "surround.mkv": {"sound": True, "channels": 8},
    "surround.mp4": {"codec": "libx264", "pix_fmt": "yuv420p", "sound": True, "sound_codec": "aac", "channels": 6},
    "raw.mov": {"codec": "rawvideo", "pix_fmt": "rgb24", "sound": True},  # samples of one size, told once
    "prores.mov": {
        "codec": "prores_ks",
        "pix_fmt": "yuv422p10le",
        "matrix": (0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30),
    },
}


def seeds() -> dict[str, bytes]:
    """Files by name; those of the test media too, where they lie beside the checkout."""
    photos, films = _photos(), _films()
    members = [(name, (photos | films)[name]) for name in ("photo.jpg", "palette.png", "h264.ts", "ffv1.mkv")]
    files = {**photos, **films, "tone.wav": _wav(), "shard.tar": tar([*members, ("photo.json", b"{}")])}
    files |= {"stored.zip": zipped(members), "deflated.zip": zipped(members, zipfile.ZIP_DEFLATED)}
    files["joined.ts"] = films["h264.ts"] * 2
    files |= {f"joined.{form}": films[name] * 2 for form, name in (("ivf", "vp8.ivf"), ("y4m", "raw.y4m"))}
    files["joined_codecs.ts"] = films["h264.ts"] + films["heard.ts"]
    files["joined_kinds.mkv"] = films["h264.mkv"] + films["h264.ts"]
    files["joined_kinds.mpg"] = films["mpeg1.mpg"] + films["h264.mp4"]
    files["empty.tar"] = tar([])
    files["joined_sizes.mpg"] = films["mpeg1.mpg"] + films["larger.mpg"]
    for path in sorted((ROOT / "media" / "malformed").rglob("*")):
        if path.is_file() and path.stat().st_size <= _MOST:
            data = path.read_bytes()
            with suppress(MediaError):
                detect_kind(data[:HEAD_BYTES])
                files[f"media/{path.parent.name}/{path.name}"] = data
    return files


def _photos() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 255, (24, 40, 3), np.uint8)
    plain = Pil.fromarray(noise)
    ink = rng.integers(0, 65535, (24, 40, 5), np.uint16)
    exif = Pil.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    pages = [Pil.fromarray(np.roll(noise, i, axis=1)) for i in range(4)]
    played = {"save_all": True, "append_images": pages[1:], "duration": [40, 80, 0, 120]}
    return {
        "photo.jpg": encoded(plain, "JPEG", exif=exif, icc_profile=bytes(300), comment=b"said"),
        "progressive.jpg": encoded(plain, "JPEG", progressive=True, restart_marker_blocks=2),
        "cmyk.jpg": encoded(plain.convert("CMYK"), "JPEG"),
        "photo.png": encoded(plain, "PNG", exif=exif, icc_profile=bytes(300)),
        "profile.jpg": encoded(plain, "JPEG", icc_profile=rgb_profile(ADOBE_RGB, 2.2)),
        "profile.png": encoded(plain, "PNG", icc_profile=rgb_profile(ADOBE_RGB, 2.2)),
        "palette.png": encoded(plain.convert("P"), "PNG", transparency=3),
        "deep.png": encoded(Pil.fromarray(noise[:, :, 0].astype(np.uint16) << 8), "PNG"),
        "moving.png": encoded(pages[0], "PNG", **played),
        "moving.gif": encoded(pages[0], "GIF", **played, disposal=2, transparency=1),
        "photo.webp": encoded(plain, "WEBP", exif=exif),
        "lossless.webp": encoded(plain.convert("RGBA"), "WEBP", lossless=True),
        "moving.webp": encoded(pages[0], "WEBP", **played),
        "photo.avif": encoded(plain, "AVIF"),
        "moving.avif": encoded(pages[0], "AVIF", **played),
        "photo.bmp": encoded(plain, "BMP"),
        "lzw.tif": encoded(plain, "TIFF", compression="tiff_lzw"),
        "jpeg.tif": encoded(plain, "TIFF", compression="jpeg"),
        "ink.tif": tiff(ink, "<", deflate=False, differences=False, rows=10),
        "deflated_ink.tif": tiff(ink, ">", deflate=True, differences=True, rows=24),
        "wide.tif": wide(noise.astype("u2") << 8, order=">", deflate=True, predictor=2, apart=True),
        "tiles.tif": wide(noise.astype("f4"), deflate=True, predictor=3, tile=(16, 16), is_big=True),
        "pages.tif": join_pages([wide(noise[:4], ((254, (1,)),)), wide(noise[..., 0].astype("i4"))]),
        "gamma.png": with_chunk(encoded(plain, "PNG"), b"gAMA", (55_556).to_bytes(4, "big")),
        "float.tif": encoded(Pil.fromarray(noise[:, :, 0].astype(np.float32)), "TIFF"),
    }


def _films() -> dict[str, bytes]:
    tone = (8000 * np.sin(np.arange(24_000) / 20)).astype(np.int16)
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, facts in _FILMS.items():
            how = {"container": _SAME, **facts}
            side, channels = how.pop("side", 1), how.pop("channels", 1)
            frames = [numbered(8 * i, 32 * side, 48 * side) for i in range(12)]
            how["sound"] = (
                np.stack([np.roll(tone[: 24_000 // channels], i) for i in range(channels)])
                if how.get("sound")
                else None
            )
            made[name] = film(Path(folder) / name, frames, gop=5, **how).read_bytes()
    return made


def _wav() -> bytes:
    body = (
        b"WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x40\x00\x00\x00"
    )
    return b"RIFF" + (len(body) + 64).to_bytes(4, "little") + body + bytes(64)
