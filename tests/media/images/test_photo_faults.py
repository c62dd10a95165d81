"""A photo that is too large, truncated, damaged or of another type is one error, never a grey image."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil

from tests.support.media.media_factory import decoded, encoded
from tests.support.media.photo_factory import exif, save, scene, single_failure, single_row


def png_header(height: int, width: int) -> bytes:
    body = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + body + zlib.crc32(body).to_bytes(4, "big") + b"\0\0\x10\0IDAT"


def webp_header(height: int, width: int) -> bytes:
    body = (
        b"VP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )
    return b"RIFF" + (len(body) + 4).to_bytes(4, "little") + b"WEBP" + body


def j2k_header(height: int, width: int) -> bytes:
    data = bytearray(encoded(Pil.new("RGB", (64, 64)), "JPEG2000", no_jp2=True))
    for at, side in ((8, width), (12, height), (24, width), (28, height)):  # of the image, of a tile
        data[at : at + 4] = side.to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        png_header(60_000, 60_000),
        webp_header(16_000, 16_000),
        b"BM" + bytes(8) + b"\x36\0\0\0\x28\0\0\0" + (60_000).to_bytes(4, "little") * 2 + b"\x01\0\x18\0" + bytes(24),
        b"GIF89a" + b"\xff\xff\xff\xff" + b"\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x02\0;",
        encoded(Pil.new("L", (16_000, 8_000)), "JPEG"),
        b"P6\n60000 60000\n255\n" + bytes(100),
        bytes(2) + b"\2" + bytes(9) + b"\x60\xea\x60\xea\x18\0" + bytes(100),
        j2k_header(60_000, 60_000),
    ],
    ids=["png", "webp", "bmp", "gif", "jpeg", "ppm", "tga", "j2k"],
)
def test_too_large_by_the_header(tmp_path: Path, data: bytes) -> None:
    kind, message = single_failure(save(tmp_path, data))
    assert kind == "too_large", message
    assert "100,000,000" in message


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_a_size_beyond_the_limits_of_the_library_itself_is_too_large(tmp_path: Path, kind: str) -> None:
    data = bytearray(encoded(Pil.fromarray(scene(64, 64)), kind))
    assert single_row(save(tmp_path, bytes(data)))
    at = data.index(b"ispe") + 8
    data[at : at + 8] = (17_000).to_bytes(4, "big") * 2  # 289 megapixels
    assert single_failure(save(tmp_path, bytes(data)))[0] == "too_large"
    assert single_failure(save(tmp_path, bytes(data)), max_pixels=1_000_000_000)[0] in ("corrupt", "too_large")


def test_pixel_limit_does_not_depend_on_orientation(tmp_path: Path) -> None:
    for turn in (1, 6):
        path = save(tmp_path, encoded(Pil.fromarray(scene(100, 200)), "JPEG", exif=exif(turn)))
        assert single_failure(path, max_pixels=19_999)[0] == "too_large"
        assert single_row(path, max_pixels=20_000)


PARTS = ("JPEG", "PROGRESSIVE", "PNG", "GIF", "BMP", "TIFF", "TGA", "PPM")  # decoders show a part of these


@pytest.mark.parametrize("kind", [*PARTS, "WEBP", "AVIF", "HEIF", "JPEG2000"])
def test_a_truncated_photo_is_a_line_and_a_row_of_what_it_shows(tmp_path: Path, kind: str) -> None:
    image = Pil.fromarray(scene())
    data = encoded(image, "JPEG", progressive=True) if kind == "PROGRESSIVE" else encoded(image, kind)
    whole = single_row(save(tmp_path, data))["frame"]
    parts = 0
    for tenth in range(1, 10):
        rows, failures = decoded(save(tmp_path, data[: len(data) * tenth // 10]))
        same = bool(rows) and np.array_equal(rows[0]["frame"], whole)  # what is missing was no part of the image
        assert [failure.kind for failure in failures] == ([] if same and not failures else ["truncated"]), tenth
        assert [failure.frame_index for failure in failures if rows] == [0] * (len(rows) if failures else 0)
        assert [row["damaged"] for row in rows] == ["truncated" if failures else None] * len(rows)
        if rows and failures and kind in ("JPEG", "PNG", "GIF", "TIFF", "PPM") and tenth >= 6:
            shown = np.abs(rows[0]["frame"].astype(int) - whole).max(axis=2) <= 8
            assert shown.mean() > 0.3, tenth
        parts += len(rows)
    assert (parts >= 5) == (kind in PARTS)


@pytest.mark.parametrize("columns", [(), ("frame",), ("frame_16",)])
def test_a_truncated_photo_is_the_same_for_any_columns(tmp_path: Path, columns: tuple[str, ...]) -> None:
    for kind in ("JPEG", "PNG"):
        data = encoded(Pil.fromarray(scene()), kind)
        rows, failures = decoded(save(tmp_path, data[: len(data) // 2]), columns)
        assert (len(rows), [(failure.kind, failure.frame_index) for failure in failures]) == (1, [("truncated", 0)])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
def test_nothing_visible_is_no_row(tmp_path: Path, kind: str) -> None:
    data = encoded(Pil.fromarray(scene()), kind)
    mark, after = {"JPEG": (b"\xff\xda", 12), "PNG": (b"IDAT", 6), "GIF": (b",\0\0\0\0", 12)}[kind]
    start = data.rindex(mark) + after
    rows, failures = decoded(save(tmp_path, data[:start]))
    assert (rows, [(failure.kind, failure.frame_index) for failure in failures]) == ([], [("truncated", None)])


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
        (b"8BPS\x00\x01", "Photoshop"),
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


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("1.json", b'{"caption": "a"}', "passed_over"),
        ("1.txt", b"a caption\n", "passed_over"),
        ("1.txt", b"BMW M3 in the snow", "passed_over"),
        ("1.txt", b"GIF89a funny cat", "passed_over"),
        ("1.txt", b"PK\x20is no archive", "passed_over"),
        ("1.txt", "a caption".encode("utf-16"), "passed_over"),
        ("1", b"BMW M3 in the snow", "unsupported"),
        ("1.txt", "\u7d05\u3044\u8eca\u3068\u732b".encode("shift-jis"), "passed_over"),
        ("1.txt", "\u043a\u0440\u0430\u0441\u043d\u0430\u044f".encode("cp1251"), "passed_over"),
        ("1.caption", b"GIF89a funny cat", "passed_over"),
        ("1.caption", b"P6 10 10 is a grid", "passed_over"),
        ("1.caption", b"a lot free to park in", "passed_over"),
        ("1.caption", b"very wide street", "passed_over"),
        ("1.tag", b"OggS is a magic word", "passed_over"),
        ("1.txt", b"II*\0is no photo", "passed_over"),
        ("1.tag", b"MM\0*is no photo", "passed_over"),
        ("1.tag", b"FLV\1is no film", "passed_over"),
        ("photo.png", b"\x89PNG\r\n\x1a\nno photo", "truncated"),
        ("photo.jpg", b"\xff\xd8\xffno photo", "truncated"),
        ("photo.tif", b"II*\0is no photo", "unsupported"),
        ("1", b"GIF89a funny cat", "unsupported"),
        ("1", b"The free parking", "unsupported"),
        ("1", b"OggS is a magic word", "unsupported"),
        ("index.d.ts", b"declare const x: number;\n", "passed_over"),
        ("app.mts", b"export default 1;\n", "passed_over"),
        ("de.ts", b"<?xml version='1.0'?>\n<!DOCTYPE TS>", "passed_over"),
        ("odd.ts", (b"G" + b"x" * 187) * 12, "passed_over"),
        ("1.txt", b"", "passed_over"),
        ("0.parquet", b"PAR1....", "passed_over"),
        ("photo.XMP", b"<?xml version='1.0'?>", "passed_over"),
        ("photo.jpg", b"Not found\n", "unsupported"),
        ("photo.jpg", b"", "empty"),
        ("1.txt", b"\0\1\2\3binary", "unsupported"),
        ("1.json", b"PK\x03\x04rest", "unsupported"),
        ("Thumbs.db", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "passed_over"),
        ("form.pdf", b"%PDF-1.7", "passed_over"),
        ("form.PDF", b"", "passed_over"),
        ("texts.docx", b"PK\x03\x04rest", "passed_over"),
        ("texts.zip", b"PK\x03\x04rest", "truncated"),
        *(
            (f"photos.{ending}", magic + bytes(99), "unsupported")
            for endings, magic in (
                (("tar.gz", "tgz"), b"\x1f\x8b\x08"),
                (("tar.bz2", "tbz2"), b"BZh91AY&SY"),
                (("tar.xz", "txz"), b"\xfd7zXZ\x00"),
                (("tar.zst",), b"\x28\xb5\x2f\xfd"),
                (("tar.lz4",), b"\x04\x22\x4d\x18"),
            )
            for ending in endings
        ),
        ("table.csv.gz", b"\x1f\x8b\x08", "passed_over"),
        ("photo.jpg", b"version https://git-lfs.github.com/spec/v1\n", "unsupported"),
        ("README", b"Photos of birds.", "passed_over"),
        ("song.mp3", b"ID3\x04", "passed_over"),
        ("index.html", b"<!DOCTYPE html>", "passed_over"),
        ("model.bin", bytes([0, 0, 2, *[0] * 9, 9, 0, 9, 0, 24, 0]) + bytes(99), "passed_over"),  # as Targa begins
        ("model.bin", bytes(range(256)), "passed_over"),
        ("photo.webp", b"PK\x03\x04rest", "unsupported"),
        ("photo.psd", b"8BPS\x00\x01", "unsupported"),
        ("0a3f9c", b"%PDF-1.7", "unsupported"),  # a name of a download, which may have been meant as a photo
        ("photo.jpg?w=200", b"%PDF-1.7", "unsupported"),
        ("IMG.0001", bytes(range(256)), "unsupported"),
    ],
)
def test_what_is_no_media_by_name_and_content_is_passed_over(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert single_failure(tmp_path)[0] == kind


def test_films_of_sound_alone_are_passed_over_unless_they_are_named_as_films(tmp_path: Path) -> None:
    import av

    for name in ("a.ogg", "a.oga", "a.mka", "a.mkv"):
        with av.open(str(tmp_path / name), "w") as out:
            track = out.add_stream("flac", rate=48_000, layout="mono")
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 4_096), np.int16), format="s16", layout="mono")
            tone.rate, tone.pts = 48_000, 0
            out.mux([*track.encode(tone), *track.encode()])
    _, failures = decoded(tmp_path)
    kinds = {failure.media_id: failure.kind for failure in failures}
    assert kinds == {"a.ogg": "passed_over", "a.oga": "passed_over", "a.mka": "passed_over", "a.mkv": "empty"}
