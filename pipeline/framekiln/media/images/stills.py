"""Pictures for other programs: a photo's own bytes if every reader shows them alike, else a new encoding.

Readers treat a turned photo differently: browsers and OpenCV turn it upright, Pillow and torchvision do not. So boxes
would be wrong in some of them. A photo that is turned, truncated or of a rare type is encoded again.
"""

from dataclasses import dataclass

import cv2

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.access import access_errors
from framekiln.media.damaged import is_truncated
from framekiln.media.file_types import HEAD_BYTES, kind_of
from framekiln.media.files import MediaFile, open_media, read_stream
from framekiln.media.images import jpeg, pillow

JPEG_QUALITY = 95  # img2dataset's own: 0.5 to 1 byte a pixel, without visible blocks
_ENDINGS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp"}
"""Types that Pillow, OpenCV, torchvision and browsers read, and their endings."""
_HEADER = 1 << 20  # bytes: EXIF takes at most 64 KB, and a colour profile seldom more than 1 MB
_LONGEST = 65_500  # px of a side, libjpeg's limit


@dataclass(frozen=True, kw_only=True)
class Still:
    """An encoded picture, upright."""

    data: bytes
    ending: str  # ending of a file name: .jpg
    height: int  # px
    width: int
    is_own: bool = False  # true for a photo's own file


def read_still(media: MediaFile, max_pixels: int, *, content: bool = True) -> Still | None:
    """Return a photo's own bytes; None if it must be encoded again, as frames of animations and videos.

    `content`: false reads only the header, and returns no bytes.
    Raises MediaError: the file cannot be read.
    """
    with open_media(media) as stream, access_errors():
        kind = kind_of(media.media_id, stream.read(HEAD_BYTES))
        if kind.name not in _ENDINGS or is_truncated(stream, kind):
            return None
        stream.seek(0)
        data = read_stream(stream, 10 * max_pixels) if content else stream.read(_HEADER)  # bytes, as for decoding
    size = jpeg.plain_size(data) if kind.name == "JPEG" else None
    if size is None:
        with pillow.decode_errors(data, kind, max_pixels):
            image = pillow.open_image(data, kind)
            if pillow.orientation(image) != 1 or getattr(image, "is_animated", False):
                return None
            size = image.height, image.width
    kept = data if content else b""
    return Still(data=kept, ending=_ENDINGS[kind.name], height=size[0], width=size[1], is_own=True)


def encode(image: Image) -> Still:
    """Return an image (h w 3, RGB) as JPEG; as PNG if it is too long for that."""
    height, width = image.shape[:2]
    ending, options = (
        (".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]) if max(height, width) <= _LONGEST else (".png", [])
    )
    encoded, data = cv2.imencode(ending, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    if not encoded:
        raise MediaError(Reason.TOO_LARGE, f"a picture of {width} x {height} px cannot be encoded")
    return Still(data=data.tobytes(), ending=ending, height=height, width=width)


def shrink(image: Image, height: int, width: int) -> Image:
    """Return an image (h w 3) at a size (px) that is not larger."""
    if image.shape[:2] == (height, width):
        return image
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
