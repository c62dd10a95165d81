"""Columns that decoding provides, and the Arrow types of pixels and sound.

Pixels are a struct of RGB bytes, height and width, so that a column needs no further description. `frame` has full
size. `frame_224` is the smallest power-of-two reduction with a short side of at least 224 pixels. Reading pixels
copies nothing.

Shapes in this module: n rows, h height, w width, 3 channels in the order R, G, B; all pixels are uint8.
"""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # h w 3

PIXELS = pa.struct([("rgb", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])
SOUND = pa.large_list(pa.int16())
TAGS = pa.map_(pa.string(), pa.string())
"""Tags that a file carries, such as `exif:DateTimeOriginal`; see `framekiln.media.tags`."""
DIGEST = pa.binary(16)
"""BLAKE2b of a file's content; null for a video, which is not read as a whole."""
SOUND_RATE = 16_000  # Hz, mono: the rate that speech models and lip-sync features expect

_PIXEL_NAME = re.compile(r"frame(?:_(\d+))?")
_ALONE = 1 << 18  # bytes of an image: copying a smaller one takes less time than a chunk of a column, 0.02 ms
LARGEST_REDUCTION = 8  # libjpeg scales by 1/2, 1/4, 1/8 while decoding; other sources follow the same steps


def field(name: str, dtype: pa.DataType, description: str, unit: str = "", *, nullable: bool = True) -> pa.Field:
    """Return an Arrow field with a description and a unit, which are stored in the Parquet files."""
    meta = {"description": description} | ({"unit": unit} if unit else {})
    return pa.field(name, dtype, nullable=nullable, metadata=meta)


ANNOTATION = b"annotation"
"""Key in a field's metadata for what `annotates` declares."""


def annotates(item: pa.Field, **facts: Any) -> pa.Field:
    """Return a field that tells exports how to read its values, where the type does not show it.

    A list of structs with a `box` or a `segmentation` is exported without this.

    A list of structs has `kind` (boxes, masks, poses, faces or tracks) and `category`. It has `keypoints` (names in
    order) and `skeleton` (pairs of keypoint numbers). `of` names another column with one item for each of these. An
    integer column of a table has `of` (the column with the item of that number), and `track` or `identity` (the column
    with that id).
    """
    return item.with_metadata({**(item.metadata or {}), ANNOTATION: json.dumps(facts)})


def annotation_facts(item: pa.Field) -> dict[str, Any]:
    """Return what `annotates` declared; empty for nothing."""
    facts: dict[str, Any] = json.loads((item.metadata or {}).get(ANNOTATION, b"{}"))
    return facts


MEDIA_ID = field(
    "media_id",
    pa.string(),
    "path of the file relative to the input root; unprintable characters and % as %XX",
    nullable=False,
)
URI = field(
    "uri", pa.string(), "where the file was read from, to be opened: file:///... or a store's URL", nullable=False
)
PATH = field("path", pa.string(), "path of a local file; null in a store or archive, or if it is not UTF-8")
PLACES = pa.schema([URI, PATH])
"""Columns of `frames/` that say where a row's file is, after its `media_id`."""
FRAME_INDEX = field(
    "frame_index", pa.int32(), "number of the frame in its file, in display order, from 0", nullable=False
)

SOURCE = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        field("media_type", pa.string(), "photo, animation or video", nullable=False),
        field(
            "clip_index",
            pa.int32(),
            "number of the clip in its file, rising from 0; a long film leaves numbers out",
            nullable=False,
        ),
        field("time_s", pa.float64(), "presentation time from the start of the file; null for a photo", "s"),
        field("fps", pa.float32(), "average frame rate of the file; null for a photo", "1/s"),
        field("height", pa.int32(), "height of the frame as shown, orientation applied", "px", nullable=False),
        field("width", pa.int32(), "width of the frame as shown, orientation applied", "px", nullable=False),
        field("color_space", pa.string(), "colour space before conversion to sRGB, e.g. ICC Display P3; else null"),
        field("damaged", pa.string(), "'truncated' if the decoder filled in missing pixels; else null"),
    ]
)
"""Columns that every row has."""

KEYS = (MEDIA_ID.name, FRAME_INDEX.name)
FrameKey = tuple[str, int]  # the values of KEYS in a row
ON_REQUEST = {"sound": SOUND, "tags": TAGS, "digest": DIGEST}
"""Columns besides pixels that are decoded only if a stage reads them."""


def is_pixel_column(name: str) -> bool:
    """Return whether a name is a pixel column's: `frame` or `frame_<short side>`."""
    return _PIXEL_NAME.fullmatch(name) is not None


def pixel_column(size: int) -> str:
    """Return the name of the pixel column with a short side of at least `size` pixels; 0 for full size."""
    return f"frame_{size}" if size else "frame"


def short_side(name: str) -> int | None:
    """Return the least short side of a pixel column in pixels; None for full size.

    Raises ValueError: the name is not a pixel column's.
    """
    match = _PIXEL_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a pixel column")
    return int(match.group(1)) if match.group(1) else None


def reduction(height: int, width: int, at_least: int | None) -> int:
    """Return the largest of 1, 2, 4, 8 that leaves a short side of at least `at_least` pixels; 1 for None.

    A reduced side is ceil(side / reduction), as libjpeg computes it.
    """
    factor = 1
    while at_least and factor < LARGEST_REDUCTION and -(-min(height, width) // (factor * 2)) >= at_least:
        factor *= 2
    return factor


def pack(images: Sequence[Image]) -> pa.StructArray:
    """Return RGB images (h w 3 each) as a pixel column, by one copy of the bytes.

    Arrow's allocator keeps freed memory for the next column, where numpy's gives large arrays back to the kernel.
    """
    ends = np.cumsum([image.nbytes for image in images], dtype=np.int64)
    data = np.frombuffer(pa.allocate_buffer(int(ends[-1]) if len(ends) else 0), dtype=np.uint8)
    for image, stop in zip(images, ends, strict=True):
        data[stop - image.nbytes : stop] = image.reshape(-1)
    return _make_pixels(images, ends, data)


def wrap(images: Sequence[Image]) -> pa.ChunkedArray:
    """Return RGB images (h w 3 each) as a pixel column over their own memory, which must not change any more.

    Each is a chunk of its own; neighbours below 256 kB are copied together.
    """
    chunks: list[pa.StructArray] = []
    for alone, group in groupby(images, lambda image: image.nbytes >= _ALONE):
        if alone:
            ready = (np.ascontiguousarray(image) for image in group)
            chunks += [_make_pixels([image], np.array([image.nbytes]), image.reshape(-1)) for image in ready]
        else:
            chunks.append(pack(list(group)))
    return pa.chunked_array(chunks, PIXELS)


def _make_pixels(images: Sequence[Image], ends: NDArray[np.int64], data: Image) -> pa.StructArray:
    buffers = [None, pa.py_buffer(np.concatenate([[0], ends])), pa.py_buffer(data)]
    rgb = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(images), buffers)
    sides = [pa.array([image.shape[axis] for image in images], pa.int32()) for axis in (0, 1)]
    return pa.StructArray.from_arrays([rgb, *sides], fields=list(PIXELS))


def views(column: pa.ChunkedArray | pa.StructArray) -> list[Image]:
    """Return read-only views (h w 3 each) of a pixel column."""
    images: list[Image] = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        rgb, heights, widths = (chunk.field(i) for i in range(3))
        if not len(rgb):
            continue
        offsets = np.frombuffer(rgb.buffers()[1], dtype=np.int64)[rgb.offset : rgb.offset + len(rgb) + 1]
        data = np.frombuffer(rgb.buffers()[2] or b"", dtype=np.uint8)
        data.flags.writeable = False
        sides = zip(heights.to_pylist(), widths.to_pylist(), strict=True)
        images += [data[offsets[i] : offsets[i + 1]].reshape(h, w, 3) for i, (h, w) in enumerate(sides)]
    return images


def describe(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the name, type, unit and description of each field."""
    return [
        {"name": item.name, "type": str(item.type)}
        | {key: (item.metadata or {}).get(key.encode(), b"").decode() for key in ("unit", "description")}
        for item in schema
    ]
