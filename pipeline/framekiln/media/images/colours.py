"""Colours of photos to sRGB: by an ICC profile, by code points of ITU-T H.273 (CICP), or by a PNG's gAMA and cHRM.

One rule for all formats. Code points of PNG, AVIF and HEIC count first if they name PQ or HLG, which no profile
describes. In a PNG they always do, by its standard. Otherwise a profile counts first. PQ and HLG are mapped as in
videos. Transfers outside `_POWERS` are shown as sRGB, as in videos. A damaged profile, or one for other channels,
leaves colours unchanged.
"""

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import cv2
import numpy as np
from PIL import Image as Pil
from PIL import ImageCms

from framekiln.contract.columns import Image
from framekiln.media.damaged import boxes
from framekiln.media.file_types import Kind
from framekiln.media.hdr import hdr_name, map_image
from framekiln.media.media_ids import escape

_SAME = 4
"""Levels of 255 by which an sRGB profile may differ from lcms's own. Three published ones, in 18 photos, differ by 1,
Gray Gamma 2.2 by 9, the nearest of other colours by 45."""
_LARGEST, _KEPT = 4 << 20, 8  # bytes of a profile, twice those for inks; profiles with a transform in memory
_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}  # modes of Pillow, by the channels of a profile
_GREYS = ("1", "L", "LA", "La", "I", "F")  # beginnings of modes
_MAX_NAME = 60  # characters of a profile's description

# Code points: ITU-T H.273, tables 2 and 3. Matrices take linear light to BT.709: ITU-R BT.2087, SMPTE EG 432-1; of 5,
# 11 and 22 by `_find_matrix`.
_TO_BT709 = {
    5: ("BT.470BG", ((1.0440, -0.0440, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0118, 0.9882))),
    9: ("BT.2020", ((1.6605, -0.5876, -0.0728), (-0.1246, 1.1329, -0.0083), (-0.0182, -0.1006, 1.1187))),
    11: ("DCI-P3", ((1.1575, -0.1550, -0.0026), (-0.0415, 1.0456, -0.0041), (-0.0181, -0.0786, 1.0966))),
    12: ("Display P3", ((1.2249, -0.2247, 0.0), (-0.0420, 1.0419, 0.0), (-0.0197, -0.0786, 1.0979))),
    22: ("EBU 3213", ((1.0252, -0.0265, 0.0013), (0.0194, 0.9480, 0.0326), (-0.0018, -0.0014, 1.0032))),
}
_POWERS = {4: 2.2, 5: 2.8, 8: 1.0}
_HDR = (16, 18)
_LONGEST_CHUNK, _GAMMAS = 64, (0.2, 2.0)  # bytes; from the darkest display to light brighter than linear
_NEAR_POWER, _NEAR_MATRIX = 0.1, 0.02  # of 2.2 and of BT.709: writers round, and write 0.45 or 0.4545 for sRGB
_BT709_XYZ, _D65 = ((0.64 / 0.33, 1, 0.03 / 0.33), (0.5, 1, 0.1 / 0.6), (2.5, 1, 0.79 / 0.06)), (0.95046, 1.0, 1.08906)
_BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
_ROWS = 64  # rows converted at once: linear light takes 12 bytes a pixel


@dataclass(frozen=True)
class Conversion:
    """A photo's conversion to sRGB; `name` is the source, and functions are None if nothing is to be done."""

    name: str
    of_rgb: Callable[[Image], Image] | None = None
    of_ink: Callable[[Pil.Image], Image] | None = None  # for an image in CMYK or L*a*b*


def find_conversion(data: bytes, kind: Kind, image: Pil.Image) -> Conversion | None:
    """Return the conversion of an opened photo to sRGB; None if it is sRGB, or the file does not tell."""
    if image.mode == "LAB":
        return Conversion("CIE L*a*b*", of_ink=lambda image: np.asarray(_open_lab().apply(image)))
    profile, chunks = image.info.get("icc_profile"), _read_chunks(data) if kind.name == "PNG" else {}
    primaries, transfer = _find_code_points(data, kind, chunks)
    if primaries and (kind.name == "PNG" or transfer in _HDR or not profile):
        return _find_by_code_points(primaries, transfer)
    if profile:
        return _find_by_profile(bytes(profile), image.mode)
    return None if b"sRGB" in chunks else _find_by_chunks(chunks)


def _read_chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the short chunks before a PNG's pixels."""
    at, result = 8, dict[bytes, bytes]()
    while (length := int.from_bytes(data[at : at + 4], "big")) and data[at + 4 : at + 8] != b"IDAT":
        if length <= _LONGEST_CHUNK:
            result[data[at + 4 : at + 8]] = data[at + 8 : at + 8 + length]
        at += 12 + length
    return result


def _find_by_chunks(chunks: dict[bytes, bytes]) -> Conversion | None:
    """Return the conversion by gAMA and cHRM (PNG, third edition, 11.3.2), as in browsers; None for sRGB values."""
    gamma, places = chunks.get(b"gAMA", b""), chunks.get(b"cHRM", b"")
    stated = int.from_bytes(gamma, "big") / 100_000
    if len(gamma) != 4 or not _GAMMAS[0] <= stated <= _GAMMAS[1]:
        return None
    matrix = _find_matrix(places) if len(places) == 32 else np.eye(3)
    power = None if abs(1 / stated - 2.2) <= _NEAR_POWER else 1 / stated
    if matrix is None or (power is None and np.abs(matrix - np.eye(3)).max() <= _NEAR_MATRIX):
        return None
    name = f"PNG gAMA {stated:.3g}{' with cHRM' * bool(places)}"
    return Conversion(name, partial(_convert_light, matrix=matrix.astype(np.float32), power=power))


def _find_matrix(places: bytes) -> np.ndarray | None:
    """Return the matrix from a PNG's primaries, in linear light, to BT.709's; None if they lie on one line."""
    x, y = np.array(struct.unpack(">8I", places)).reshape(4, 2).T / 100_000
    if (y <= 0).any():
        return None
    (white, *primaries), to_xyz = np.stack([x / y, np.ones(4), (1 - x - y) / y], axis=1), []
    for points, light in ((primaries, white), (_BT709_XYZ, _D65)):
        columns = np.array(points).T
        if abs(np.linalg.det(columns)) < 1e-6:
            return None
        to_xyz.append(columns * np.linalg.solve(columns, light))
    cones = np.diag((_BRADFORD @ _D65) / (_BRADFORD @ white))
    return np.linalg.inv(to_xyz[1]) @ np.linalg.inv(_BRADFORD) @ cones @ _BRADFORD @ to_xyz[0]


def _find_code_points(data: bytes, kind: Kind, chunks: dict[bytes, bytes]) -> tuple[int, int]:
    """Return the numbers of primaries and transfer; zeros if a file has none."""
    if len(points := chunks.get(b"cICP", b"")) == 4:
        return points[0], points[1]
    if kind.name in ("AVIF", "HEIF"):
        with suppress(KeyError, IndexError, struct.error):
            found = [body for body in _find_properties(data, b"colr") if body.startswith(b"nclx")]
            return struct.unpack_from(">HH", found[0], 4)
    return 0, 0


def crop_avif(data: bytes, image: Pil.Image) -> Pil.Image:
    """Return the part of a stored AVIF that its clean aperture shows (ISO/IEC 14496-12, 12.1.4): Pillow gives all."""
    with suppress(KeyError, IndexError, struct.error, ZeroDivisionError):
        values = struct.unpack_from(">IIIIiIiI", _find_properties(data, b"clap")[0])
        width, height, right, down = (values[at] / values[at + 1] for at in range(0, 8, 2))
        left, top = round((image.width - width) / 2 + right), round((image.height - height) / 2 + down)
        box = left, top, left + round(width), top + round(height)
        if 0 <= left < box[2] <= image.width and 0 <= top < box[3] <= image.height:
            return image.crop(box)
    return image


def _find_properties(data: bytes, kind: bytes) -> list[bytes]:
    """Return the properties of a kind of the photo itself; gain maps and other images of the file have their own.

    ISO/IEC 23008-12, 9.3, and 14496-12, 8.11. Raises KeyError, IndexError, struct.error: there are none.
    """
    meta = dict(_open_boxes(data))[b"meta"][4:]
    parts = dict(_open_boxes(meta))
    properties = dict(_open_boxes(parts[b"iprp"]))
    listed, links = list(_open_boxes(properties[b"ipco"])), properties[b"ipma"]
    (photo,) = struct.unpack_from(">I" if parts[b"pitm"][0] else ">H", parts[b"pitm"], 4)
    width, is_wide, at = (4 if links[0] else 2), links[3] & 1, 8
    for _ in range(int.from_bytes(links[4:8], "big")):
        item, count = int.from_bytes(links[at : at + width], "big"), links[at + width]
        numbers = struct.unpack_from(f">{count}{'H' if is_wide else 'B'}", links, at + width + 1)
        if item == photo:
            found = [listed[(number & (0x7FFF if is_wide else 0x7F)) - 1] for number in numbers]
            return [body for name, body in found if name == kind]
        at += width + 1 + count * (1 + is_wide)
    return []


def _open_boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((name, data[start + 8 : stop]) for name, start, stop in boxes(io.BytesIO(data), len(data)))


def _find_by_code_points(primaries: int, transfer: int) -> Conversion | None:
    if transfer in _HDR:
        hdr = hdr_name(primaries, transfer)
        return Conversion(hdr, partial(map_image, primaries=primaries, transfer=transfer)) if hdr else None
    if primaries not in _TO_BT709 and transfer not in _POWERS:
        return None
    name, matrix = _TO_BT709.get(primaries, ("BT.709", np.eye(3)))
    power = _POWERS.get(transfer)
    name = f"CICP {name}" + (f" with the power {power}" if power else "")
    return Conversion(name, partial(_convert_light, matrix=np.array(matrix, np.float32), power=power))


def _convert_light(image: Image, matrix: np.ndarray, power: float | None) -> Image:
    """Return an image (h w 3) with other primaries or another power as sRGB (IEC 61966-2-1), clipped."""
    levels = np.arange(256) / 255.0
    of_srgb = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    to_light = levels**power if power else of_srgb
    light = np.arange(4096) / 4095.0
    steps = np.rint(255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055))
    table, to_level, result = to_light.astype(np.float32), steps.astype(np.uint8), np.empty_like(image)
    for top in range(0, len(image), _ROWS):
        strip = cv2.transform(table[image[top : top + _ROWS]], matrix)
        result[top : top + _ROWS] = to_level[np.rint(4095 * strip.clip(0, 1)).astype(np.uint16)]
    return result


def _find_by_profile(profile: bytes, mode: str) -> Conversion | None:
    name, channels, transform = _open_profile(profile)
    is_grey = mode.startswith(_GREYS)
    fits = channels == "CMYK" if mode == "CMYK" else channels == "RGB" or (channels == "GRAY" and is_grey)
    if transform is None:
        return None if fits and name else Conversion("ICC, not readable")
    if not fits:
        return Conversion(f"ICC {name}, of other channels")
    of_rgb = partial(_convert, transform, _MODES[channels])
    return Conversion(f"ICC {name}", of_rgb, lambda image: np.asarray(transform.apply(image)))


@lru_cache(1)
def _open_lab() -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")


def _convert(transform: ImageCms.ImageCmsTransform, mode: str, image: Image) -> Image:
    photo = Pil.fromarray(image if mode == "RGB" else np.ascontiguousarray(image[:, :, 0]))
    return np.asarray(transform.apply(photo))


@lru_cache(_KEPT)
def _open_profile(profile: bytes) -> tuple[str, str, ImageCms.ImageCmsTransform | None]:
    """Return a profile's description, channels and transform; None for sRGB, no name if it is damaged."""
    try:
        if len(profile) > _LARGEST:
            return "", "", None
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        channels = opened.profile.xcolor_space.strip()
        name = escape(ImageCms.getProfileDescription(opened).strip())[:_MAX_NAME] or "without a name"
        transform = ImageCms.buildTransform(
            opened,
            ImageCms.createProfile("sRGB"),
            _MODES[channels],
            "RGB",
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
        return name, channels, None if _changes_little(transform, channels) else transform
    except Exception:  # lcms's errors, for any damage; the photo is not damaged
        return "", "", None


def _changes_little(transform: ImageCms.ImageCmsTransform, channels: str) -> bool:
    """Return whether a transform leaves a grid of colours, or all greys, nearly unchanged."""
    if channels == "CMYK":
        return False
    levels = np.arange(0, 256, 15 if channels == "RGB" else 1).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(len(levels), -1, 3)
    probe = grid if channels == "RGB" else np.repeat(levels[None, :, None], 3, axis=2)
    change = np.abs(_convert(transform, _MODES[channels], probe).astype(int) - probe)
    return int(change.max()) <= _SAME
