"""Photos that other files enclose: a whole JPEG or PNG in a BMP."""

from __future__ import annotations

import struct

from pipeline.contract.errors import MediaError, Reason
from pipeline.media.file_types import Kind, detect_kind

_ENCLOSED = {4: "JPEG", 5: "PNG"}  # BI_JPEG and BI_PNG of a BITMAPINFOHEADER
_HEADERS = 54  # bytes before the photo, at least


def enclosed_photo(data: bytes, kind: Kind) -> tuple[bytes, Kind]:
    """Return the photo inside a file, and its kind; the file itself if it encloses none.

    Raises:
        MediaError: CORRUPT if there are other bytes in the place of the photo.
    """
    if kind.name != "BMP" or len(data) < _HEADERS:
        return data, kind
    start, _, _, _, _, _, compression, size = struct.unpack_from("<IIiiHHII", data, 10)
    if compression not in _ENCLOSED:
        return data, kind
    inside = data[start : start + size] if size else data[start:]
    try:
        found = detect_kind(inside)
    except MediaError as error:
        raise MediaError(Reason.CORRUPT, f"BMP: no {_ENCLOSED[compression]} where the header places it") from error
    if found.name != _ENCLOSED[compression]:
        raise MediaError(Reason.CORRUPT, f"BMP: the header states a {_ENCLOSED[compression]}, the file has another")
    return inside, found
