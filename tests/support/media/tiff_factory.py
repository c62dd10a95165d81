"""TIFF files of any numbers, orders and places, with any tags."""

from __future__ import annotations

import struct
import zlib

import numpy as np

Tag = tuple[int, tuple[int, ...]]


def tiff(
    pixels: np.ndarray,
    tags: tuple[Tag, ...] = (),
    *,
    photometric: int | None = None,
    order: str = "<",
    deflate: bool = False,
    predictor: int = 1,
    apart: bool = False,
    tile: tuple[int, int] | None = None,
    is_big: bool = False,
) -> bytes:
    """Return a TIFF of pixels, h w or h w c; `tags` replace those that follow from the other arguments."""
    height, width, samples = (*pixels.shape, 1)[:3]
    planes = np.moveaxis(pixels.reshape(height, width, samples), 2, 0)[..., None] if apart else pixels[None]
    down, across = tile or (20, width)
    blocks = [
        plane[top : top + down, left : left + across]
        for plane in planes.reshape(len(planes), height, width, -1)
        for top in range(0, height, down)
        for left in range(0, width, across)
    ]
    if tile:
        blocks = [np.pad(item, ((0, down - len(item)), (0, across - item.shape[1]), (0, 0))) for item in blocks]
    strips = [_store(item, order, predictor) for item in blocks]
    strips = [zlib.compress(strip) for strip in strips] if deflate else strips
    start = 16
    offsets = tuple(start + sum(map(len, strips[:number])) for number in range(len(strips)))
    sizes = tuple(map(len, strips))
    colour = photometric if photometric is not None else 2 if samples >= 3 else 1
    places = (
        {322: (across,), 323: (down,), 324: offsets, 325: sizes} if tile else {273: offsets, 278: (down,), 279: sizes}
    )
    entries = {
        256: (width,), 257: (height,), 258: (8 * pixels.dtype.itemsize,) * samples, 259: (8 if deflate else 1,),
        262: (colour,), 277: (samples,), 284: (2 if apart else 1,), 317: (predictor,),
        339: ({"u": 1, "i": 2, "f": 3, "c": 6}[pixels.dtype.kind],) * samples, **places, **dict(tags),
    }  # fmt: skip
    return _write(b"".join(strips), entries, order, is_big=is_big)


def _store(block: np.ndarray, order: str, predictor: int) -> bytes:
    """Return the bytes of a strip or tile, rows columns channels; as differences by a predictor of 2 or 3."""
    size = block.dtype.itemsize
    if predictor == 2:
        numbers = np.ascontiguousarray(block).view(f"u{size}")
        numbers = np.diff(numbers, axis=1, prepend=np.zeros_like(numbers[:, :1]))
        return numbers.astype(f"{order}u{size}").tobytes()
    if predictor == 3:  # bytes of one significance together, the most significant first
        rows, columns, channels = block.shape
        single = np.ascontiguousarray(block.astype(block.dtype.newbyteorder(">"))).view(np.uint8)
        single = single.reshape(rows, columns * channels, size).transpose(0, 2, 1).reshape(rows, -1, channels)
        return np.diff(single, axis=1, prepend=np.zeros_like(single[:, :1])).tobytes()
    return block.astype(block.dtype.newbyteorder(order)).tobytes()


def _write(body: bytes, entries: dict[int, tuple[int, ...]], order: str, *, is_big: bool) -> bytes:
    kind, wide, head = ("Q", 8, "Q") if is_big else ("I", 4, "H")
    at = 16 + len(body)
    after = at + struct.calcsize(head) + (4 + 2 * wide) * len(entries) + wide
    extra, lines = b"", b""
    for tag, values in sorted(entries.items()):
        packed = struct.pack(f"{order}{len(values)}{kind}", *values)
        place = packed if len(values) == 1 else struct.pack(f"{order}{kind}", after + len(extra))
        extra += packed if len(values) > 1 else b""
        lines += struct.pack(f"{order}HH{kind}", tag, 16 if is_big else 4, len(values)) + place
    magic = b"MM" if order == ">" else b"II"
    first = struct.pack(f"{order}HHHQ", 43, 8, 0, at) if is_big else struct.pack(f"{order}HI8x", 42, at)
    return magic + first + body + struct.pack(f"{order}{head}", len(entries)) + lines + bytes(wide) + extra


def join_pages(files: list[bytes]) -> bytes:
    """Return one TIFF with the first page of each of some files of one order, none of them big."""
    order, data, link = ">" if files[0][:2] == b"MM" else "<", b"", 4
    for file in files:
        base, moved = len(data), bytearray(file)
        (first,) = struct.unpack_from(f"{order}I", file, 4)
        (count,) = struct.unpack_from(f"{order}H", file, first)
        for entry in range(first + 2, first + 2 + 12 * count, 12):
            tag, _, number, value = struct.unpack_from(f"{order}HHII", file, entry)
            if number > 1:
                struct.pack_into(f"{order}I", moved, entry + 8, value + base)
            places = [value + 4 * i for i in range(number)] if number > 1 else [entry + 8]
            for place in places if tag in (273, 324) else ():
                struct.pack_into(f"{order}I", moved, place, struct.unpack_from(f"{order}I", file, place)[0] + base)
        data = bytearray(data + moved)
        struct.pack_into(f"{order}I", data, link, base + first)
        link = base + first + 2 + 12 * count
    return bytes(data)
