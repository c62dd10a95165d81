"""Tags are read right when files that were made with known ones give these values, and damaged ones give null."""

from __future__ import annotations

import io
from datetime import datetime

import av
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin
from PIL.TiffImagePlugin import IFDRational

from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from framekiln_stages.metadata.stage import Metadata
from tests.support.media.photos import photo

EXIF, GPS = 0x8769, 0x8825
NORTH_EAST = {"gps__GPSLatitudeRef": "N", "gps__GPSLongitudeRef": "E"}
NULL = dict.fromkeys(Metadata().outputs.names) | {"content_credentials": False}


def read(folder, content: bytes, name: str = "a.jpg") -> dict:
    """The columns of a file's first frame, by way of the decoder."""
    (folder / name).write_bytes(content)
    packets = decode(Unit(name="u", media=tuple(list_media(str(folder)))), ("tags",), 0, DecodeConfig())
    rows = pa.concat_tables(packet.rows for packet in packets)
    return Metadata()(rows.select(["tags"])).to_pylist()[0]


def picture(kind: str = "JPEG", **more) -> bytes:
    file = io.BytesIO()
    Image.fromarray(photo("china.jpg")[:64, :96]).save(file, kind, **more)
    return file.getvalue()


def exif() -> Image.Exif:
    tags = Image.Exif()
    tags[0x010F], tags[0x0110], tags[0x0131] = "NIKON CORPORATION", "NIKON Z 9", "Ver.04.10"
    tags[0x0132] = "2024:03:04 05:06:07"
    own = tags.get_ifd(EXIF)
    own[0x9003], own[0x9011], own[0x9291] = "2024:02:29 23:59:58", "+05:30", "25"
    own[0x829A], own[0x829D], own[0x8827] = IFDRational(1, 250), IFDRational(28, 10), 6400
    own[0x920A], own[0xA405], own[0x9209], own[0xA434] = IFDRational(85, 1), 127, 0x19, "NIKKOR Z 85mm f/1.8 S"
    place = tags.get_ifd(GPS)
    place[1], place[2] = "S", (IFDRational(33), IFDRational(51), IFDRational(3540, 100))
    place[3], place[4] = "E", (IFDRational(151), IFDRational(12), IFDRational(0))
    place[5], place[6] = b"\x01", IFDRational(25, 2)
    return tags


EXPECTED = {
    "taken_at": datetime(2024, 2, 29, 23, 59, 58, 250_000),
    "taken_precision": None,
    "utc_offset": "+05:30",
    "latitude": pytest.approx(-(33 + 51 / 60 + 35.4 / 3600), abs=1e-9),
    "longitude": pytest.approx(151.2, abs=1e-9),
    "altitude": -12.5,
    "camera_make": "NIKON CORPORATION",
    "camera_model": "NIKON Z 9",
    "lens": "NIKKOR Z 85mm f/1.8 S",
    "exposure_s": pytest.approx(0.004),
    "f_number": pytest.approx(2.8),
    "iso": 6400,
    "focal_length": 85.0,
    "focal_length_35mm": 127.0,
    "flash": True,
    "rating": None,
    "label": None,
    "keywords": None,
    "title": None,
    "description": None,
    "creator": None,
    "software": "Ver.04.10",
    "edited_at": datetime(2024, 3, 4, 5, 6, 7),
    "content_credentials": False,
}


@pytest.mark.parametrize(
    ("kind", "name"), [("JPEG", "a.jpg"), ("WEBP", "a.webp"), ("PNG", "a.png"), ("TIFF", "a.tif"), ("AVIF", "a.avif")]
)
def test_exif_is_exact_in_each_format(kind, name, tmp_path):
    assert read(tmp_path, picture(kind, exif=exif().tobytes()), name) == EXPECTED


def test_a_file_without_tags_has_nulls(tmp_path):
    assert read(tmp_path, picture()) == NULL


def test_xmp_says_what_exif_does_not(tmp_path):
    xmp = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description xmp:Rating="4"
      xmp:CreatorTool="darktable 4.6"
      photoshop:DateCreated="2023-07-01T10:20:30.5+02:00" exif:GPSLatitude="48,12.5N" exif:GPSLongitude="16,22.0E">
      <tiff:Model>X100V</tiff:Model></rdf:Description></rdf:RDF></x:xmpmeta>"""
    row = read(tmp_path, picture(xmp=xmp))
    assert row == NULL | {
        "rating": 4,
        "software": "darktable 4.6",
        "taken_at": datetime(2023, 7, 1, 10, 20, 30, 500_000),
        "utc_offset": "+02:00",
        "latitude": pytest.approx(48 + 12.5 / 60),
        "longitude": pytest.approx(16 + 22 / 60),
        "camera_model": "X100V",
    }


def test_text_of_png_and_content_credentials(tmp_path):
    text = PngImagePlugin.PngInfo()
    text.add_text("Software", "Stable Diffusion")
    assert read(tmp_path, picture("PNG", pnginfo=text), "a.png") == NULL | {"software": "Stable Diffusion"}
    box = b"JP\0\1\0\0\0\1" + b"\0\0\0\x2djumb\0\0\0\x25jumdc2pa\0\x11\0\x10\x80\0\0\xaa\0\x38\x9b\x71\x03c2pa\0"
    content = picture()
    signed = content[:2] + b"\xff\xeb" + (len(box) + 2).to_bytes(2, "big") + box + content[2:]
    assert read(tmp_path, signed, "a.png") == NULL | {"content_credentials": True}


def film(tags: dict[str, str], kind: str = "mov") -> bytes:
    file = io.BytesIO()
    with av.open(
        file, "w", format=kind, options={"movflags": "use_metadata_tags"} if kind == "mov" else {}
    ) as container:
        container.metadata.update(tags)
        video = container.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        for _ in range(3):
            container.mux(
                video.encode(
                    av.VideoFrame.from_ndarray(np.ascontiguousarray(photo("china.jpg")[:64, :96]), format="rgb24")
                )
            )
        container.mux(video.encode(None))
    return file.getvalue()


def test_a_phone_says_where_a_film_was_taken(tmp_path):
    tags = {
        "com.apple.quicktime.make": "Apple",
        "com.apple.quicktime.model": "iPhone 15 Pro",
        "com.apple.quicktime.software": "17.4",
        "com.apple.quicktime.creationdate": "2024-03-09T18:01:02-0800",
        "com.apple.quicktime.location.ISO6709": "+37.7858-122.4064+009.500/",
    }
    row = read(tmp_path, film(tags), "a.mov")
    assert row == NULL | {
        "camera_make": "Apple",
        "camera_model": "iPhone 15 Pro",
        "software": "17.4",
        "taken_at": datetime(2024, 3, 9, 18, 1, 2),
        "utc_offset": "-08:00",
        "latitude": 37.7858,
        "longitude": -122.4064,
        "altitude": 9.5,
    }


def test_the_clock_of_a_container_is_utc(tmp_path):
    row = read(tmp_path, film({"creation_time": "2024-03-10T02:01:02.000000Z"}, "mp4"), "a.mp4")
    assert (row["taken_at"], row["utc_offset"]) == (datetime(2024, 3, 10, 2, 1, 2), "+00:00")


@pytest.mark.parametrize("kind", ["mov", "mp4", "matroska", "avi"])
def test_titles_of_films(kind, tmp_path):
    said = {"title": "Harbour, 1962", "comment": "Reel 3", "artist": "Ada Moss"}
    row = read(tmp_path, film(said, kind), "a.mp4")
    assert [row[name] for name in ("title", "description", "creator")] == [*said.values()]


def test_titles_of_photos(tmp_path):
    tags = exif()
    tags[0x010E], tags[0x013B] = "Boats", "A. Moss"
    xmp = b"""<rdf:RDF><dc:title><rdf:Alt><rdf:li xml:lang='x-default'>Harbour</rdf:li></rdf:Alt></dc:title>
      <dc:creator><rdf:Seq><rdf:li>Ada Moss</rdf:li><rdf:li>B</rdf:li></rdf:Seq></dc:creator></rdf:RDF>"""
    row = read(tmp_path, picture(exif=tags.tobytes(), xmp=xmp))
    assert row == EXPECTED | {"title": "Harbour", "description": "Boats", "creator": "Ada Moss"}


@pytest.mark.parametrize("text", ["Zürich, 雪", "Zürich"])
def test_texts_of_exif_in_utf8_and_latin1(text, tmp_path):
    tags = Image.Exif()
    tags[0x010E] = text.encode("utf-8" if "雪" in text else "latin-1")
    assert read(tmp_path, picture(exif=tags.tobytes())) == NULL | {"description": text}


def test_a_camera_that_writes_the_time_twice_edits_nothing():
    taken = {"exif__DateTimeOriginal": "2024:06:01 12:00:00"}
    for changed, edited in (
        ("2024:06:01 12:00:20", None),
        ("2024:06:02 12:00:00", datetime(2024, 6, 2, 12)),
        ("", None),
    ):
        assert columns(**taken, exif__DateTime=changed)["edited_at"] == edited
    assert columns(exif__DateTime="2024:06:02 12:00:00")["edited_at"] is None  # a scanner's


def columns(**tags: str) -> dict:
    pairs = [(name.replace("__", ":"), value) for name, value in tags.items()]
    return Metadata()(pa.table({"tags": pa.array([pairs], pa.map_(pa.string(), pa.string()))})).to_pylist()[0]


@pytest.mark.parametrize(
    "tags",
    [
        {"exif__DateTimeOriginal": "0000:00:00 00:00:00"},
        {"exif__DateTimeOriginal": "2024:13:45 99:00:00"},
        {"exif__DateTimeOriginal": "    :  :     :  :  "},
        {"film__creation_time": "1970-01-01T00:00:00.000000Z"},
        {"film__creation_time": "1904-01-01T00:00:00Z"},
        {"exif__ExposureTime": "0", "exif__FNumber": "0/0", "exif__ISOSpeedRatings": "-3"},
        {
            "gps__GPSLatitude": "95 0 0",
            "gps__GPSLatitudeRef": "N",
            "gps__GPSLongitude": "10 0 0",
            "gps__GPSLongitudeRef": "E",
        },
        {
            "gps__GPSLatitude": "0 0 0",
            "gps__GPSLatitudeRef": "N",
            "gps__GPSLongitude": "0 0 0",
            "gps__GPSLongitudeRef": "E",
        },
        {"gps__GPSLatitude": "33 51", "gps__GPSLatitudeRef": "S"},
        {"xmp__Rating": "99"},
        {"exif__DateTimeOriginal": "2024:13"},
        {"exif__DateTimeOriginal": "2024:06:01 12"},
        {"exif__DateTimeOriginal": "20240601"},
        {"film__location": "+0012.5-00024.3/"},  # 12.5 minutes by ISO 6709, not degrees
    ],
    ids=str,
)
def test_impossible_values_are_null(tags):
    assert columns(**tags) == NULL


@pytest.mark.parametrize(
    ("text", "zone", "time", "offset"),
    [
        ("2024:06:01 12:00:00+02:00", "", datetime(2024, 6, 1, 12), "+02:00"),
        ("2024-06-01T12:00:00.25Z", "", datetime(2024, 6, 1, 12, 0, 0, 250_000), "+00:00"),
        ("2024:06:01 12:00:00+02:00", "-03:30", datetime(2024, 6, 1, 12), "-03:30"),
        ("2024/06/01 12:00", "+25:00", datetime(2024, 6, 1, 12), None),
    ],
)
def test_a_time_of_exif_with_its_zone(text, zone, time, offset):
    tags = {"exif__DateTimeOriginal": text, "exif__OffsetTimeOriginal": zone}
    assert columns(**tags) == NULL | {"taken_at": time, "utc_offset": offset}


NAMES = [
    *("exif:DateTimeOriginal", "exif:OffsetTimeOriginal", "exif:ExposureTime", "exif:Flash", "xmp:Rating"),
    *("gps:GPSLatitude", "gps:GPSLatitudeRef", "film:location", "film:creation_time"),
]


@given(st.dictionaries(st.sampled_from(NAMES), st.text(st.sampled_from("0123456789:-+/. TZNS,abc\0é"), max_size=24)))
def test_no_text_is_an_error(tags):
    row = Metadata()(pa.table({"tags": pa.array([list(tags.items())], pa.map_(pa.string(), pa.string()))}))
    assert row.num_rows == 1


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_of_tags_lose_tags_alone(seed, tmp_path):
    """The photo is read as without tags, whatever they say."""
    rng = np.random.default_rng(seed)
    tags = exif().tobytes()
    content = bytearray(picture(exif=tags))
    start = content.index(tags) + 6
    for place in start + rng.integers(0, len(tags) - 6, 30):
        content[place] = rng.integers(0, 256)
    row = read(tmp_path, bytes(content))
    assert set(row) == set(NULL)


def test_the_report_says_from_when_to_when():
    times = [datetime(2021, 5, 3, 9), None, datetime(2023, 6, 4, 8)]
    rows = pa.table({"taken_at": pa.array(times, pa.timestamp("us"))})
    assert Metadata().summarize(rows, 2.0) == ["taken from 3 May 2021 to 4 June 2023 (2 frames do not say)"]
    assert Metadata().summarize(rows.slice(0, 1), 1.0) == ["taken on 3 May 2021"]
    assert Metadata().summarize(rows.slice(1, 1), 1.0) == ["no file says when it was taken"]


@pytest.mark.parametrize("kind", ["mov", "mp4"])
def test_content_credentials_of_a_film_are_a_box_of_their_own(tmp_path, kind):
    content = film({}, kind)
    store = bytes.fromhex("d8fec3d61b0e483c92975828877ec481") + b"\0\0\0\0manifest\0" + bytes(8)
    box = (len(store) + 8).to_bytes(4, "big") + b"uuid" + store
    assert read(tmp_path, content, f"a.{kind}")["content_credentials"] is False
    assert read(tmp_path, content + box, f"a.{kind}")["content_credentials"] is True
