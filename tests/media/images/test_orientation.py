"""Photos are turned upright by EXIF or XMP, and damaged tags are ignored."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil
from PIL import ImageOps
from PIL.PngImagePlugin import PngInfo

from tests.support.media.material import media
from tests.support.media.media_factory import encoded
from tests.support.media.photo_factory import exif, save, scene, single_row


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path: Path, kind: str, orientation: int) -> None:
    shown = scene(64, 96)
    undo = {5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, orientation)
    turned = Pil.fromarray(shown)
    turned.getexif()[0x0112] = undo
    stored = ImageOps.exif_transpose(turned)
    lossy = {"quality": 100, "subsampling": "4:4:4"}
    options = {"WEBP": {"lossless": True}, "PNG": {}, "TIFF": {}}.get(kind, lossy)
    row = single_row(
        save(tmp_path, encoded(Pil.fromarray(np.asarray(stored)), kind, exif=exif(orientation), **options)),
        ("frame", "frame_16"),
    )
    assert (row["height"], row["width"]) == (64, 96)
    assert row["frame_16"].shape == (16, 24, 3)
    assert np.abs(row["frame"].astype(int) - shown).mean() < (2 if kind in ("JPEG", "AVIF") else 0.01)


def test_orientation_of_real_photos() -> None:
    folder = media("malformed/pillow")
    frames = [single_row(folder / f"hopper_orientation_{turn}.jpg")["frame"].astype(int) for turn in range(2, 9)]
    assert all(np.abs(frame - frames[0]).mean() < 4 for frame in frames)  # seven JPEGs of one image
    rows = {name: single_row(media(f"malformed/exif/{name}.jpg")) for name in ("Landscape_3", "Portrait_6")}
    assert {name: (row["height"], row["width"]) for name, row in rows.items()} == {
        "Landscape_3": (1200, 1800),
        "Portrait_6": (1800, 1200),
    }
    for name, row in rows.items():
        with Pil.open(media(f"malformed/exif/{name}.jpg")) as image:
            assert np.array_equal(row["frame"], np.asarray(ImageOps.exif_transpose(image)))


XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""
xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="3"/></rdf:RDF></x:xmpmeta><?xpacket end="r"?>"""


def test_orientation_from_xmp(tmp_path: Path) -> None:
    shown = scene(64, 96)
    opaque = shown[..., 0] < 200
    pixels = np.dstack([shown, np.where(opaque, 255, 60).astype(np.uint8)])
    notes = PngInfo()
    notes.add_itxt("XML:com.adobe.xmp", XMP)
    stored = Pil.fromarray(pixels).transpose(Pil.Transpose.ROTATE_180)
    frame = single_row(save(tmp_path, encoded(stored, "PNG", pnginfo=notes)))["frame"]
    assert np.array_equal(frame[opaque], shown[opaque])


def test_orientation_of_jpeg_2000(tmp_path: Path) -> None:
    """Its EXIF and XMP are in boxes of their own."""
    shown = scene(64, 96)
    data = encoded(Pil.fromarray(shown).transpose(Pil.Transpose.ROTATE_180), "JPEG2000")
    exif_box = b"JpgTiffExif->JP2" + exif(3)[6:]
    xmp_box = bytes.fromhex("be7acfcb97a942e89c71999491e3afac") + XMP.encode()
    for box in (exif_box, xmp_box):
        turned = data + struct.pack(">I", 8 + len(box)) + b"uuid" + box
        assert np.array_equal(single_row(save(tmp_path, turned))["frame"], shown)
    for box in (exif_box[:20], b"another UUID....", b""):
        other = data + struct.pack(">I", 8 + len(box)) + b"uuid" + box
        assert np.array_equal(single_row(save(tmp_path, other))["frame"], shown[::-1, ::-1])


@pytest.mark.parametrize(
    ("kind", "count", "value"),
    [(2, 3, b"up\0\0"), (3, 1, b"\x09\0\0\0"), (5, 1, b"\xff\xff\0\0"), (99, 1, bytes(4)), (3, 1 << 31, bytes(4))],
    ids=["text", "nine", "beyond the end", "no type", "too many"],
)
def test_broken_exif_turns_nothing(tmp_path: Path, kind: int, count: int, value: bytes) -> None:
    tags = b"Exif\0\0II*\0" + struct.pack("<IHHHI", 8, 1, 0x0112, kind, count) + value + bytes(4)
    for data in (tags, tags[:-6], tags[:15]):
        row = single_row(save(tmp_path, encoded(Pil.fromarray(scene(64, 96)), "JPEG", exif=data)))
        assert (row["height"], row["width"]) == (64, 96)
