"""Small files with extreme contents, as in a hostile collection, written byte by byte."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image as Pil

from tests.support.media.media_factory import encoded, film, numbered


def gif(frames: int, side: int) -> bytes:
    """Return frames of one pixel on a square canvas."""
    head = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes((0, 0, 0, 255, 255, 255))
    frame = (
        b"\x21\xf9\x04\x00\x04\x00\x00\x00" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    )
    return head + frame * frames + b"\x3b"


def apng(frames: int, side: int) -> bytes:
    """Return the same as PNG; by its specification the first frame fills the canvas."""
    row = zlib.compressobj(9)
    whole = row.compress(bytes(side + 1) * side) + row.flush()
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))]
    parts += [chunk(b"acTL", struct.pack(">II", frames, 0)), _fctl(0, side), chunk(b"IDAT", whole)]
    for number in range(1, frames):
        parts += [_fctl(2 * number - 1, 1), chunk(b"fdAT", struct.pack(">I", 2 * number) + zlib.compress(b"\0\x80"))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def webp(frames: int, side: int) -> bytes:
    """Return the same as WebP."""
    image = encoded(Pil.new("RGB", (1, 1)), "WEBP", lossless=True)[12:]
    frame = bytes(6) + bytes(6) + (40).to_bytes(3, "little") + b"\x00" + image
    size = (side - 1).to_bytes(3, "little")
    body = (
        b"WEBP" + _riff(b"VP8X", b"\x02\0\0\0" + size * 2) + _riff(b"ANIM", bytes(6)) + _riff(b"ANMF", frame) * frames
    )
    return _riff(b"RIFF", body)


def photo_with(kind: str, size: int) -> bytes:
    """Return a photo with large metadata, compressed or not: EXIF, XMP, ICC profile or PNG text."""
    plain = Pil.fromarray(numbered(7))
    if kind == "webp exif":
        return encoded(plain, "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0" + bytes(size))
    if kind == "webp icc":
        return encoded(plain, "WEBP", icc_profile=bytes(size))
    if kind == "jpeg icc":
        return encoded(plain, "JPEG", icc_profile=bytes(min(size, 16_000_000)))
    data, packed = encoded(plain, "PNG"), zlib.compress(bytes(size), 9)
    name, note = {
        "png icc": (b"iCCP", b"x\0\0" + packed),
        "png text": (b"zTXt", b"x\0\0" + packed),
        "png xmp": (b"iTXt", b"XML:com.adobe.xmp\0\x01\0\0\0" + packed),
        "png exif": (b"eXIf", b"MM\0*\0\0\0\x08\0\0" + bytes(size)),
    }[kind]
    return data[:33] + chunk(name, note) + data[33:]


def raw(path: Path, samples: int, *, packed: bool = False) -> bytes:
    """Return a film of three equal-sized frames with tables that state more; `packed` compresses them as `cmov`."""
    whole = bytearray(film(path, [numbered(i) for i in range(3)], codec="rawvideo", pix_fmt="rgb24").read_bytes())
    for name, offset in ((b"stsz", 12), (b"stts", 12), (b"stsc", 16)):
        at = whole.index(name) + offset
        whole[at : at + 4] = struct.pack(">I", samples)
    begin = whole.index(b"moov") - 4
    moov = bytes(whole[begin:])
    if packed:
        body = _box(b"cmvd", struct.pack(">I", len(moov)) + zlib.compress(moov))
        whole[begin:] = _box(b"moov", _box(b"cmov", _box(b"dcom", b"zlib"), body))
    return bytes(whole)


def tracks(path: Path, count: int) -> bytes:
    """Return a film that lists its track many times."""
    whole = film(path, [numbered(i) for i in range(3)], codec="rawvideo", pix_fmt="rgb24").read_bytes()
    begin, track = whole.index(b"moov") - 4, whole.index(b"trak") - 4
    entry = whole[track : track + int.from_bytes(whole[track : track + 4], "big")]
    return whole[:begin] + _box(b"moov", whole[begin + 8 :].replace(entry, entry * count))


def fragmented(path: Path, samples: int, flags: int = 0) -> bytes:
    """Return a fragmented MP4 with a fragment that states many samples.

    Args:
        path: of a film that is made on the way.
        samples: stated number.
        flags: of the run; 0 for samples of one size, 0x200 for a size of each, which is not there.
    """
    frames = [numbered(i) for i in range(2)]
    container = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    whole = film(path, frames, codec="mpeg4", pix_fmt="yuv420p", container=container).read_bytes()
    head = whole[: whole.index(b"moof") - 4]
    tfhd = _box(b"tfhd", struct.pack(">IIIII", 0x020000 | 0x38, 1, 1, 1, 0))
    trun = _box(b"trun", struct.pack(">II", flags, samples))
    return head + _box(b"moof", _full(b"mfhd", 1), _box(b"traf", tfhd, trun)) + _box(b"mdat", bytes(64))


def with_size(data: bytes, name: bytes, size: int, parents: Sequence[bytes] = ()) -> bytes:
    """Return a file whose box states another size; 1 stands for its own, in 8 bytes after the name."""
    at = data.index(name) - 4
    if size != 1:
        return data[:at] + struct.pack(">I", size) + data[at + 4 :]
    own = int.from_bytes(data[at : at + 4], "big")
    longer = bytearray(data[:at] + struct.pack(">I4sQ", 1, name, own + 8) + data[at + 8 :])
    for parent in parents:
        begin = longer.index(parent) - 4
        longer[begin : begin + 4] = struct.pack(">I", int.from_bytes(longer[begin : begin + 4], "big") + 8)
    return bytes(longer)


def _full(name: bytes, *numbers: int, flags: int = 0) -> bytes:
    return _box(name, struct.pack(f">{len(numbers) + 1}I", flags, *numbers))


def _box(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", len(body) + 8) + name + body


def chunk(name: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _riff(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)


def _fctl(number: int, side: int) -> bytes:
    return chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, side, side, 0, 0, 1, 25, 0, 0))
