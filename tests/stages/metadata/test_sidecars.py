"""What an XMP sidecar says counts before what the file says, a changed one is noticed, and no sidecar does harm."""

from __future__ import annotations

import io
import time
import zipfile
from datetime import datetime

import pyarrow as pa
import pytest

from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit, form_units
from framekiln.output.content_hash import with_digests
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, read_units
from framekiln_stages.metadata.stage import Metadata
from tests.stages.metadata.test_metadata import EXPECTED, NULL, exif, film, picture
from tests.support.machine.object_server import Objects, served
from tests.support.runs.units import ensure_units

HEAD = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description '
TAIL = "</rdf:Description></rdf:RDF></x:xmpmeta>"
WORDS = "<dc:subject><rdf:Bag>\n<rdf:li>Rock &amp; Roll</rdf:li> <rdf:li>Zürich, Oper</rdf:li></rdf:Bag></dc:subject>"
SAID = {"rating": 5, "label": "Red", "keywords": ["Rock & Roll", "Zürich, Oper"]}
LIGHTROOM = (
    f'{HEAD}xmp:Rating="5" xmp:Label="Red" exif:DateTimeOriginal="2024-02-29T23:59:58.25">{WORDS}{TAIL}'.encode()
)


def rated(stars: int) -> bytes:
    return f'{HEAD}xmp:Rating="{stars}">{TAIL}'.encode()


def read(folder, **files: bytes) -> dict[str, dict]:
    """The columns of each file's first frame; "__" in a name is a dot."""
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return read_folder(folder)


def read_folder(folder) -> dict[str, dict]:
    return read_media(*list_media(str(folder)))


def read_media(*media: MediaFile) -> dict[str, dict]:
    unit = Unit(name="u", media=media)
    rows = pa.concat_tables(packet.rows for packet in decode(unit, ("tags",), 0, DecodeConfig()))
    found = Metadata()(rows.select(["tags"])).to_pylist()
    return dict(zip(rows["media_id"].to_pylist(), found, strict=True))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1943-05-12", {"taken_at": datetime(1943, 5, 12), "taken_precision": "day", "utc_offset": None}),
        ("1943", {"taken_at": datetime(1943, 1, 1), "taken_precision": "year", "utc_offset": None}),
        ("2024-02-29", {}),  # the file knows the time of that day
    ],
)
def test_a_date_in_a_sidecar_replaces_the_time_of_the_file(said, expected, tmp_path):
    xmp = f'{HEAD}photoshop:DateCreated="{said}">{TAIL}'.encode()
    rows = read(tmp_path, a__jpg=picture(exif=exif().tobytes()), a__xmp=xmp)
    assert rows == {"a.jpg": EXPECTED | expected}


def test_a_sidecar_counts_before_the_file_and_keeps_what_it_does_not_say(tmp_path):
    embedded = picture(exif=exif().tobytes(), xmp=rated(1))
    rows = read(tmp_path, a__jpg=embedded, a__xmp=LIGHTROOM, b__JPG=embedded, b__JPG__XMP=LIGHTROOM, c__jpg=embedded)
    assert rows == {"a.jpg": EXPECTED | SAID, "b.JPG": EXPECTED | SAID, "c.jpg": EXPECTED | {"rating": 1}}


def test_the_sidecar_with_the_whole_name_counts_first(tmp_path):
    rows = read(tmp_path, a__jpg=picture(), a__png=picture("PNG"), a__xmp=rated(2), a__jpg__xmp=rated(3))
    assert {name: row["rating"] for name, row in rows.items()} == {"a.jpg": 3, "a.png": 2}


def test_a_place_and_a_time_are_replaced_as_wholes(tmp_path):
    said = (
        f'{HEAD}exif:GPSLatitude="48,12.5N" exif:GPSLongitude="16,22.0E" '
        f'exif:DateTimeOriginal="2001:02:03 04:05:06.000" xmp:CreateDate="2020-01-01T00:00:00">{TAIL}'
    )
    row = read(tmp_path, a__jpg=picture(exif=exif().tobytes()), a__jpg__xmp=said.encode())["a.jpg"]
    place = {"latitude": pytest.approx(48 + 12.5 / 60), "longitude": pytest.approx(16 + 22 / 60), "altitude": None}
    assert row == EXPECTED | place | {"taken_at": datetime(2001, 2, 3, 4, 5, 6), "utc_offset": None}


def test_the_date_of_a_scan_replaces_no_time_of_the_photo(tmp_path):
    said = f'{HEAD}xmp:CreateDate="2020-01-01T00:00:00">{TAIL}'.encode()
    rows = read(tmp_path, a__jpg=picture(exif=exif().tobytes()), a__xmp=said, b__jpg=picture(), b__xmp=said)
    assert rows == {"a.jpg": EXPECTED, "b.jpg": NULL | {"taken_at": datetime(2020, 1, 1)}}


def test_films_and_members_of_archives_have_sidecars(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/a.jpg", picture())
        archive.writestr("deep/a.xmp", rated(4))
    rows = read(tmp_path, a__mov=film({}), a__mov__xmp=rated(2))
    assert {name: row["rating"] for name, row in rows.items()} == {"a.mov": 2, "all.zip/deep/a.jpg": 4}


def test_in_a_bucket_a_photo_without_a_sidecar_costs_no_request_more(monkeypatch):
    monkeypatch.setenv("FRAMEKILN_NETWORK", "{}")
    files = {"in/a.jpg": picture(), "in/b.jpg": picture(), "in/b.XMP": rated(3)}
    with served(Objects(files=files)) as bucket:
        listing = list_media(bucket.url.format("in"))
        photos = {media.media_id: media for media in listing if media.media_id.endswith(".jpg")}
        asked = {name: bucket.count(lambda media=media: read_media(media)) for name, media in photos.items()}
        assert {key for _, key in asked["a.jpg"]} == {"in/a.jpg"}
        assert {key for _, key in asked["b.jpg"]} == {"in/b.jpg", "in/b.XMP"}
        assert read_media(*listing) == {"a.jpg": NULL, "b.jpg": NULL | {"rating": 3}}


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>' + f"{HEAD}xmp:Label='&b;'>{TAIL}"
HOSTILE = {
    "entities": BOMB.encode(),
    "spaces": b"<xmp:Label>" + b" " * (3 << 20),
    "lists": b"<dc:subject><rdf:Bag><rdf:li>" * (1 << 17),
    "starts": b"xmp:Rating = " * (1 << 18),
    "digits": f'{HEAD}xmp:Rating="&#{"9" * 9000};">{TAIL}'.encode(),
    "binary": bytes(range(256)) * 64,
    "empty": b"",
    "huge": rated(5) + b" " * (5 << 20),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_sidecar_does_no_harm(kind, tmp_path):
    began = time.process_time()
    rows = read(tmp_path, a__jpg=picture(exif=exif().tobytes()), a__xmp=HOSTILE[kind])
    assert rows == {"a.jpg": EXPECTED | ({"label": "&b;"} if kind == "entities" else {})}, "nothing is expanded"
    assert time.process_time() - began < 30, "a time that grows with the square is hours"


def test_a_sidecar_that_is_read_is_no_file_that_was_passed_over(tmp_path):
    for name, content in {"a.jpg": picture(), "a.xmp": rated(1), "a.jpg.XMP": rated(2), "b.xmp": rated(3)}.items():
        (tmp_path / name).write_bytes(content)
    assert [media.media_id for media in list_media(str(tmp_path))] == ["a.jpg", "a.xmp", "b.xmp"]


def test_a_folder_or_a_broken_link_as_sidecar_does_no_harm(tmp_path):
    (tmp_path / "a.xmp").symlink_to("nowhere")
    (tmp_path / "b.xmp").mkdir()
    assert read(tmp_path, a__jpg=picture(), b__jpg=picture()) == {"a.jpg": NULL, "b.jpg": NULL}
    assert [media.media_id for media in list_media(str(tmp_path))] == ["a.jpg", "a.xmp", "b.jpg"]  # a row in `errors/`


def test_a_changed_an_added_and_a_removed_sidecar_are_noticed(tmp_path):
    folder, store = tmp_path / "in", Store(str(tmp_path / "out"))
    folder.mkdir()
    (folder / "a.jpg").write_bytes(picture())
    seen = set()
    for change in (
        lambda: None,
        lambda: (folder / "a.xmp").write_bytes(rated(1)),
        lambda: (folder / "a.xmp").write_bytes(rated(1) + b"\n"),
        lambda: (folder / "a.xmp").rename(tmp_path / "a.xmp"),
    ):
        change()
        listing = list_media(str(folder))
        photos = listing[:1]
        (unit,) = ensure_units(store, photos, photos, slots=1)
        assert any(each.media == tuple(photos) for each in read_units(store)), "also for a retry"
        (known,), fresh = divide_into_units(store, photos, photos, slots=1)
        assert (known.name, fresh) == (unit.name, [])
        seen.add(unit.name)
    assert len(seen) == 3, "without a sidecar the photo is the same as at first"


def test_by_content_a_touched_sidecar_is_the_same(tmp_path):
    folder, store = tmp_path / "in", Store(str(tmp_path / "out"))
    folder.mkdir()
    (folder / "a.jpg").write_bytes(picture())
    names = []
    for content in (rated(1), rated(1), rated(2)):
        (folder / "a.xmp").unlink(missing_ok=True)
        (folder / "a.xmp").write_bytes(content)
        listing = with_digests(store, list_media(str(folder)), keep=True)
        names.append(form_units(listing[:1], slots=1)[0].name)
    assert names[0] == names[1] != names[2]


def test_hostile_text_inside_a_photo_takes_no_time_either(tmp_path):
    from PIL import PngImagePlugin

    notes = PngImagePlugin.PngInfo()
    notes.add_itxt("XML:com.adobe.xmp", "<xmp:Label>" + " " * (1 << 19))
    content = picture("PNG", pnginfo=notes)
    assert len(content) < io.DEFAULT_BUFFER_SIZE * 128
    assert read(tmp_path, a__png=content) == {"a.png": NULL}
