"""Images of labels: masks as PNG, one number a pixel."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.file_types import HEAD_BYTES, detect_kind
from framekiln.media.files import MediaFile, read_bytes
from framekiln.media.images import pillow


def read_labels(path: Path) -> NDArray[np.uint8]:
    """Return the palette indices or grey levels of an image, h w; the palette's colours are not applied.

    Raises MediaError: the file cannot be read or decoded, is too large, or has several channels.
    """
    media = MediaFile(media_id=path.name, path=str(path.absolute()), size=path.stat().st_size, mtime_ns=0)
    data = read_bytes(media, 10 * DecodeConfig.max_pixels)
    kind = detect_kind(data[:HEAD_BYTES])
    with pillow.decode_errors(data, kind, DecodeConfig.max_pixels):
        image = pillow.open_image(data, kind)
        if image.mode not in ("1", "L", "P"):
            message = f"{path.name} has pixels of mode {image.mode}, and labels have one number a pixel"
            raise MediaError(Reason.UNSUPPORTED, message)
        return np.asarray(image).astype(np.uint8)
