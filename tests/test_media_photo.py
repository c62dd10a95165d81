from __future__ import annotations

import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as Pil
from PIL import ImageOps

from pipeline.columns import reduction
from tests.material import media
from tests.media_factory import decoded, encoded, numbered

PIXELS = ("frame", "frame_16", "frame_64", "frame_224")


def scene(height: int = 301, width: int = 453) -> np.ndarray:
    """Smooth shapes and edges in colour; sides that nothing divides."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([x * 255 / width, y * 255 / height, 127 + 120 * np.sin(x / 20) * np.cos(y / 15)], 2)
    image[height // 3 : height // 2, width // 4 : width // 3] = (250, 20, 30)
    return image.astype(np.uint8)


def save(folder: Path, data: bytes, name: str = "file") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def one(path: Path, columns: tuple[str, ...] = ("frame",), **config: object) -> dict:
    rows, failures = decoded(path, columns, **config)
    assert (len(rows), failures) == (1, [])
    return rows[0]


def fault(path: Path, **config: object) -> tuple[str, str]:
    rows, failures = decoded(path, **config)
    assert (rows, len(failures)) == ([], 1)
    assert (failures[0].frame_index, failures[0].step) == (None, "decode")
    return failures[0].kind, failures[0].message


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("JPEG", {"quality": 95}, 3),
        ("JPEG", {"quality": 95, "progressive": True}, 3),
        ("AVIF", {"quality": 95}, 3),
    ],
)
def test_formats(tmp_path: Path, kind: str, options: dict, tolerance: float) -> None:
    row = one(save(tmp_path, encoded(Pil.fromarray(scene()), kind, **options), "no_name_ending"))
    assert row["frame"].shape == (301, 453, 3)
    assert (row["height"], row["width"], row["media_type"]) == (301, 453, "photo")
    assert row["time_s"] is None and row["fps"] is None
    assert np.abs(row["frame"].astype(int) - scene()).mean() <= tolerance


def flat(mode: str, value: object) -> Pil.Image:
    return Pil.new(mode, (8, 8), value)


def grey16(value: int) -> Pil.Image:
    return Pil.fromarray(np.full((8, 8), value, np.uint16))


MODES = [
    ("1 bit", encoded(flat("1", 1), "PNG"), (255, 255, 255)),
    ("grey", encoded(flat("L", 100), "PNG"), (100, 100, 100)),
    ("grey JPEG", encoded(flat("L", 100), "JPEG"), (100, 100, 100)),
    ("palette", encoded(flat("RGB", (10, 200, 30)).quantize(2), "PNG"), (10, 200, 30)),
    ("palette GIF", encoded(flat("RGB", (10, 200, 30)).quantize(2), "GIF"), (10, 200, 30)),
    ("half transparent grey", encoded(flat("LA", (0, 128)), "PNG"), (127, 127, 127)),
    ("transparent", encoded(flat("RGBA", (255, 0, 0, 0)), "PNG"), (255, 255, 255)),
    ("half transparent red", encoded(flat("RGBA", (255, 0, 0, 128)), "WEBP", lossless=True), (255, 127, 127)),
    ("opaque", encoded(flat("RGBA", (1, 2, 3, 255)), "TIFF"), (1, 2, 3)),
    ("colour key", encoded(flat("RGB", (9, 9, 9)), "PNG", transparency=(9, 9, 9)), (255, 255, 255)),
    ("16 bit grey PNG", encoded(grey16(0x80FF), "PNG"), (128, 128, 128)),
    ("16 bit grey TIFF", encoded(grey16(0xFFFF), "TIFF"), (255, 255, 255)),
    (
        "16 bit colour",
        cv2.imencode(".png", np.full((8, 8, 3), (0x10FF, 0x20FF, 0x30FF), np.uint16))[1].tobytes(),
        (48, 32, 16),
    ),
    ("CMYK TIFF", encoded(flat("CMYK", (0, 255, 255, 0)), "TIFF"), (255, 0, 0)),
    ("CMYK JPEG", encoded(flat("CMYK", (255, 0, 255, 0)), "JPEG"), (0, 255, 0)),
    ("YCbCr", encoded(flat("RGB", (0, 0, 255)).convert("YCbCr"), "TIFF"), (0, 0, 254)),
]


@pytest.mark.parametrize(("data", "colour"), [case[1:] for case in MODES], ids=[case[0] for case in MODES])
def test_modes_become_rgb(tmp_path: Path, data: bytes, colour: tuple[int, int, int]) -> None:
    frame = one(save(tmp_path, data))["frame"]
    assert frame.shape == (8, 8, 3)
    assert np.abs(frame.astype(int) - np.array(colour)).max() <= 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_grey_without_a_white_is_stretched(tmp_path: Path, dtype: type) -> None:
    ramp = np.linspace(-1000, 3000, 64).reshape(8, 8).astype(dtype)
    if dtype is np.float32:
        ramp[3, 3] = np.nan
    frame = one(save(tmp_path, encoded(Pil.fromarray(ramp), "TIFF")))["frame"]
    assert (frame[0, 0].tolist(), frame[-1, -1].tolist()) == ([0] * 3, [255] * 3)
    assert np.all(np.diff(frame[:, 0, 0].astype(int)) > 0)


def test_a_mode_without_a_rule_is_refused(tmp_path: Path) -> None:
    assert fault(save(tmp_path, encoded(flat("LAB", (50, 1, 1)), "TIFF")))[0] == "unsupported"


def exif(orientation: int) -> bytes:
    tags = Pil.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path: Path, kind: str, orientation: int) -> None:
    shown = scene(64, 96)
    undo = {5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, orientation)
    turned = Pil.fromarray(shown)
    turned.getexif()[0x0112] = undo
    stored = ImageOps.exif_transpose(turned)
    options = (
        {"lossless": True}
        if kind == "WEBP"
        else {}
        if kind in ("PNG", "TIFF")
        else {"quality": 100, "subsampling": "4:4:4"}
    )
    row = one(
        save(tmp_path, encoded(Pil.fromarray(np.asarray(stored)), kind, exif=exif(orientation), **options)),
        ("frame", "frame_16"),
    )
    assert (row["height"], row["width"]) == (64, 96)
    assert row["frame_16"].shape == (16, 24, 3)
    assert np.abs(row["frame"].astype(int) - shown).mean() < (2 if kind in ("JPEG", "AVIF") else 0.01)


def test_orientation_of_real_photos() -> None:
    folder = media("malformed/pillow")
    frames = [one(folder / f"hopper_orientation_{turn}.jpg")["frame"].astype(int) for turn in range(2, 9)]
    assert all(np.abs(frame - frames[0]).mean() < 4 for frame in frames)  # eight JPEGs of one picture
    rows = {name: one(media(f"malformed/exif/{name}.jpg")) for name in ("Landscape_3", "Portrait_6")}
    assert {name: (row["height"], row["width"]) for name, row in rows.items()} == {
        "Landscape_3": (1200, 1800),
        "Portrait_6": (1800, 1200),
    }
    for name, row in rows.items():
        with Pil.open(media(f"malformed/exif/{name}.jpg")) as image:
            assert np.array_equal(row["frame"], np.asarray(ImageOps.exif_transpose(image)))


def test_orientation_from_xmp_and_broken_exif() -> None:
    with Pil.open(media("malformed/pillow/xmp_tags_orientation.png")) as image:
        upright = image.transpose(Pil.Transpose.ROTATE_180)
    opaque = np.asarray(upright)[..., 3] == 255
    frame = one(media("malformed/pillow/xmp_tags_orientation.png"))["frame"]
    assert np.array_equal(frame[opaque], np.asarray(upright)[..., :3][opaque])
    assert one(media("malformed/pillow/exif_typeerror.jpg"))["height"] == 531


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "CMYK"])
@pytest.mark.parametrize("column", PIXELS)
def test_a_column_does_not_depend_on_the_others(tmp_path: Path, kind: str, column: str) -> None:
    image = Pil.fromarray(scene())
    data = encoded(image.convert("CMYK"), "JPEG") if kind == "CMYK" else encoded(image, kind, exif=exif(6))
    path = save(tmp_path, data)
    alone, together = one(path, (column,)), one(path, PIXELS)
    assert np.array_equal(alone[column], together[column])
    factor = reduction(453, 301, None if column == "frame" else int(column[6:]))
    assert sorted(alone[column].shape[:2]) == [-(-301 // factor), -(-453 // factor)]


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_reductions_are_means_of_squares(tmp_path: Path, kind: str, factor: int) -> None:
    """For PNG up to the rounding of each halving; scaled by DCT, JPEG lies within 1.5 levels on average."""
    path = save(tmp_path, encoded(Pil.fromarray(scene()), kind, **({"quality": 95} if kind == "JPEG" else {})))
    name = f"frame_{-(-301 // factor)}"
    row = one(path, ("frame", name))
    padded = np.pad(row["frame"], ((0, -301 % factor), (0, -453 % factor), (0, 0)), mode="edge").astype(float)
    means = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor, 3).mean((1, 3))
    assert row[name].shape == means.shape
    difference = np.abs(row[name] - means)
    assert difference.mean() < (1.5 if kind == "JPEG" else 0.8)
    assert kind == "JPEG" or difference.max() <= 1.5


@pytest.mark.parametrize(
    "name", ["categories/sam_truck.jpg", "faces/biden/biden.jpg", "categories/hubble_deep_field.jpg"]
)
def test_reductions_of_real_photos_are_near_means(name: str) -> None:
    row = one(media(name), ("frame", "frame_224"))
    factor = reduction(row["height"], row["width"], 224)
    height, width = (side // factor * factor for side in row["frame"].shape[:2])
    means = row["frame"][:height, :width].reshape(height // factor, factor, width // factor, factor, 3).mean((1, 3))
    difference = np.abs(row["frame_224"][: height // factor, : width // factor] - means)
    assert difference.mean() < 1.5


def test_fast_mode_shrinks_the_photo_itself(tmp_path: Path) -> None:
    path = save(tmp_path, encoded(Pil.fromarray(scene(1500, 2000)), "JPEG"))
    row = one(path, ("frame", "frame_224", "frame_600"), fast_mode=True)
    assert row["frame"].shape == (375, 500, 3)
    assert (row["height"], row["width"]) == (375, 500)
    assert row["frame_600"].shape == row["frame"].shape  # nothing is larger than `frame`
    assert np.array_equal(row["frame"], one(path, ("frame_360",))["frame_360"])
    assert row["frame_224"].shape == (375, 500, 3)
    assert (one(path)["height"], one(path)["width"]) == (1500, 2000)


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
    kind, message = fault(save(tmp_path, data))
    assert kind == "too_large", message
    assert "100,000,000" in message


def test_pixel_limit_does_not_depend_on_orientation(tmp_path: Path) -> None:
    for turn in (1, 6):
        path = save(tmp_path, encoded(Pil.fromarray(scene(100, 200)), "JPEG", exif=exif(turn)))
        assert fault(path, max_pixels=19_999)[0] == "too_large"
        assert one(path, max_pixels=20_000)


@pytest.mark.parametrize("kind", ["JPEG", "PROGRESSIVE", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_cut_files_are_faults_never_grey(tmp_path: Path, kind: str) -> None:
    image = Pil.fromarray(scene())
    data = encoded(image, "JPEG", progressive=True) if kind == "PROGRESSIVE" else encoded(image, kind)
    whole = one(save(tmp_path, data))["frame"]
    for tenth in range(1, 10):
        rows, failures = decoded(save(tmp_path, data[: len(data) * tenth // 10]))
        assert len(rows) + len(failures) == 1
        assert all(np.array_equal(row["frame"], whole) for row in rows)
        assert (
            kind not in ("JPEG", "PROGRESSIVE", "PNG", "WEBP", "GIF", "BMP", "AVIF") or failures[0].kind == "truncated"
        )


@pytest.mark.parametrize("columns", [(), ("frame",), ("frame_16",)])
def test_a_cut_photo_is_a_fault_whatever_was_asked(tmp_path: Path, columns: tuple[str, ...]) -> None:
    for kind in ("JPEG", "PNG"):
        data = encoded(Pil.fromarray(scene()), kind)
        rows, failures = decoded(save(tmp_path, data[: len(data) // 2]), columns)
        assert (rows, [failure.kind for failure in failures]) == ([], ["truncated"])


def test_jpeg_with_a_hole_is_corrupt(tmp_path: Path) -> None:
    data = bytearray(encoded(Pil.fromarray(scene()), "JPEG", quality=95))
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    assert fault(save(tmp_path, bytes(data)))[0] == "corrupt"


@pytest.mark.parametrize(
    ("data", "said"),
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
def test_what_is_no_photo_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    save(tmp_path, data, "photo.jpg")
    kind, message = fault(tmp_path)
    assert kind == "unsupported"
    assert said in message


def test_empty_file_and_camera_raw(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save(tmp_path / "in", b"")
    assert fault(tmp_path / "in")[0] == "empty"
    raw = encoded(Pil.new("RGB", (16, 12)), "TIFF", tiffinfo={50706: b"\x01\x04\x00\x00"})
    assert "raw" in fault(save(tmp_path / "in", raw))[1]


def test_only_the_first_page_of_a_tiff_counts(tmp_path: Path) -> None:
    pages = [Pil.fromarray(numbered(i)) for i in (3, 4)]
    row = one(save(tmp_path, encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])))
    assert np.array_equal(row["frame"], numbered(3)) and row["media_type"] == "photo"


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF"])
def test_animations(tmp_path: Path, kind: str) -> None:
    frames = [Pil.fromarray(numbered(40 * i, 32, 48)) for i in range(5)]
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "AVIF" else {}
    durations = [100, 200, 300, 100, 100]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=durations, **options)
    rows, failures = decoded(save(tmp_path, data), ("frame", "frame_16"))
    assert failures == []
    assert [row["media_type"] for row in rows] == ["animation"] * 5
    assert [row["frame_index"] for row in rows] == list(range(5))
    assert np.allclose([row["time_s"] for row in rows], [0, 0.1, 0.3, 0.6, 0.7], atol=0.011)
    assert rows[0]["fps"] == pytest.approx(5 / 0.8, rel=0.02)
    for row, frame in zip(rows, frames, strict=True):
        assert np.abs(row["frame"].astype(int) - np.asarray(frame)).mean() < (3 if kind == "AVIF" else 1)
        assert row["frame_16"].shape == (16, 24, 3)


def test_real_animation_agrees_with_another_decoder() -> None:
    import av

    path = media("video/newtonscradle.gif")
    rows, failures = decoded(path)
    with av.open(str(path)) as container:
        theirs = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert failures == [] and len(rows) == len(theirs) == 36
    for row, (time_s, frame) in zip(rows, theirs, strict=True):
        assert row["time_s"] == pytest.approx(time_s, abs=0.011)
        assert np.abs(row["frame"].astype(int) - frame).mean() < 1


def test_cut_animation_keeps_its_first_frames(tmp_path: Path) -> None:
    data = media("video/newtonscradle.gif").read_bytes()
    whole, _ = decoded(save(tmp_path, data))
    rows, failures = decoded(save(tmp_path, data[: len(data) // 2]))
    assert 5 < len(rows) < 36
    assert all(np.array_equal(row["frame"], other["frame"]) for row, other in zip(rows, whole, strict=False))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", len(rows))]


def test_default_image_of_an_apng_is_no_frame(tmp_path: Path) -> None:
    frames = [Pil.fromarray(numbered(40 * i)) for i in range(4)]
    data = encoded(frames[0], "PNG", save_all=True, default_image=True, append_images=frames[1:], duration=50)
    rows, _ = decoded(save(tmp_path, data))
    assert [row["frame"][-1, -1, 0] for row in rows] == [40, 80, 120]


def test_many_photos_come_in_order_of_the_unit(tmp_path: Path) -> None:
    for index in range(20):
        save(tmp_path, encoded(Pil.fromarray(numbered(index)), "PNG"), f"{index:02}")
    rows, _ = decoded(tmp_path)
    assert [row["frame"][-1, -1, 0] for row in rows] == list(range(20))
    again, _ = decoded(tmp_path)
    assert all(np.array_equal(a["frame"], b["frame"]) for a, b in zip(rows, again, strict=True))
