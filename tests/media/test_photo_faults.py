"""A photo that is too large, truncated, damaged or of another type is one error, never a grey image."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil

from tests.support.media_factory import decoded, encoded
from tests.support.photo_factory import exif, save, scene, single_failure, single_row


def png_header(height: int, width: int) -> bytes:
    body = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + body + zlib.crc32(body).to_bytes(4, "big") + b"\0\0\x10\0IDAT"


def webp_header(height: int, width: int) -> bytes:
    body = (
        b"VP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )
    return b"RIFF" + (len(body) + 4).to_bytes(4, "little") + b"WEBP" + body


@pytest.mark.parametrize(
    "data",
    [
        png_header(60_000, 60_000),
        webp_header(16_000, 16_000),
        b"BM" + bytes(8) + b"\x36\0\0\0\x28\0\0\0" + (60_000).to_bytes(4, "little") * 2 + b"\x01\0\x18\0" + bytes(24),
        b"GIF89a" + b"\xff\xff\xff\xff" + b"\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x02\0;",
        encoded(Pil.new("L", (16_000, 8_000)), "JPEG"),
    ],
    ids=["png", "webp", "bmp", "gif", "jpeg"],
)
def test_too_large_by_the_header(tmp_path: Path, data: bytes) -> None:
    kind, message = single_failure(save(tmp_path, data))
    assert kind == "too_large", message
    assert "100,000,000" in message


def test_pixel_limit_does_not_depend_on_orientation(tmp_path: Path) -> None:
    for turn in (1, 6):
        path = save(tmp_path, encoded(Pil.fromarray(scene(100, 200)), "JPEG", exif=exif(turn)))
        assert single_failure(path, max_pixels=19_999)[0] == "too_large"
        assert single_row(path, max_pixels=20_000)


@pytest.mark.parametrize("kind", ["JPEG", "PROGRESSIVE", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_truncated_files_are_errors_never_grey(tmp_path: Path, kind: str) -> None:
    image = Pil.fromarray(scene())
    data = encoded(image, "JPEG", progressive=True) if kind == "PROGRESSIVE" else encoded(image, kind)
    whole = single_row(save(tmp_path, data))["frame"]
    for tenth in range(1, 10):
        rows, failures = decoded(save(tmp_path, data[: len(data) * tenth // 10]))
        assert len(rows) + len(failures) == 1
        assert all(np.array_equal(row["frame"], whole) for row in rows)
        assert (
            kind not in ("JPEG", "PROGRESSIVE", "PNG", "WEBP", "GIF", "BMP", "AVIF") or failures[0].kind == "truncated"
        )


@pytest.mark.parametrize("columns", [(), ("frame",), ("frame_16",)])
def test_a_truncated_photo_is_an_error_for_any_columns(tmp_path: Path, columns: tuple[str, ...]) -> None:
    for kind in ("JPEG", "PNG"):
        data = encoded(Pil.fromarray(scene()), kind)
        rows, failures = decoded(save(tmp_path, data[: len(data) // 2]), columns)
        assert (rows, [failure.kind for failure in failures]) == ([], ["truncated"])


def test_jpeg_with_a_hole_is_corrupt(tmp_path: Path) -> None:
    data = bytearray(encoded(Pil.fromarray(scene()), "JPEG", quality=95))
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    assert single_failure(save(tmp_path, bytes(data)))[0] == "corrupt"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b'{"a": 1}', "JSON"),
        (b"Thumbs up\n", "plain text"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x03\x04rest", "ZIP"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "HEIC"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "sound (WAV)"),
        (bytes(range(256)), "unknown"),
    ],
)
def test_other_types_are_named(tmp_path: Path, data: bytes, name: str) -> None:
    save(tmp_path, data, "photo.jpg")
    kind, message = single_failure(tmp_path)
    assert kind == "unsupported"
    assert name in message


def test_empty_file_and_camera_raw(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save(tmp_path / "in", b"")
    assert single_failure(tmp_path / "in")[0] == "empty"
    raw = encoded(Pil.new("RGB", (16, 12)), "TIFF", tiffinfo={50706: b"\x01\x04\x00\x00"})
    assert "raw" in single_failure(save(tmp_path / "in", raw))[1]
