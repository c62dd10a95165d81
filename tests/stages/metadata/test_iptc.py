"""IPTC is read right when files that were made with known tags give these values, and damaged ones no others."""

from __future__ import annotations

from datetime import datetime
from hashlib import md5

import numpy as np
import pytest
from PIL import TiffImagePlugin

from tests.stages.metadata.test_metadata import NULL, picture, read

TITLE, KEYWORD, DATE, TIME, AUTHOR, CAPTION = 5, 25, 55, 60, 80, 120


def datasets(*pairs: tuple[int, str | bytes], long: bool = False) -> bytes:
    """Datasets of record 2, after the one of record 1 that names UTF-8; `long`: with the size's size."""
    block = b"\x1c\x01\x5a\0\x03\x1b%G"
    for number, text in pairs:
        value = text.encode() if isinstance(text, str) else text
        size = b"\x80\x04" + len(value).to_bytes(4, "big") if long else len(value).to_bytes(2, "big")
        block += b"\x1c\x02" + bytes([number]) + size + value
    return block


def resource(number: int, data: bytes) -> bytes:
    head = b"8BIM" + number.to_bytes(2, "big") + b"\0\0" + len(data).to_bytes(4, "big")
    return head + data + b"\0" * (len(data) % 2)


def with_iptc(block: bytes, digest: bytes = b"", **more) -> bytes:
    """A JPEG with datasets in Photoshop's segment, as agencies write them."""
    content = b"Photoshop 3.0\0" + resource(0x0404, block) + (resource(0x0425, digest) if digest else b"")
    return b"\xff\xd8\xff\xed" + (len(content) + 2).to_bytes(2, "big") + content + picture(**more)[2:]


PAIRS = [
    (TITLE, "Harbour"),
    (KEYWORD, "boat"),
    (DATE, "19620701"),
    (TIME, "102030+0100"),
    (AUTHOR, "Ada Moss"),
    (AUTHOR, "B. Reed"),
    (CAPTION, "Boats\nat noon"),
    (KEYWORD, "Zürich, Oper"),
]
SAID = NULL | {
    "title": "Harbour",
    "creator": "Ada Moss",
    "description": "Boats at noon",
    "keywords": ["boat", "Zürich, Oper"],
    "taken_at": datetime(1962, 7, 1, 10, 20, 30),
    "utc_offset": "+01:00",
}


@pytest.mark.parametrize("long", [False, True])
def test_what_agencies_say_is_exact(tmp_path, long):
    block = datasets(*PAIRS, long=long)
    assert read(tmp_path, with_iptc(block)) == SAID
    assert read(tmp_path, with_iptc(block, md5(block).digest())) == SAID
    assert read(tmp_path, with_iptc(b"")) == read(tmp_path, with_iptc(datasets())) == NULL


def test_a_date_needs_no_time(tmp_path):
    day = NULL | {"taken_at": datetime(1962, 7, 1), "taken_precision": "day"}
    assert read(tmp_path, with_iptc(datasets((DATE, "19620701")))) == day
    year = NULL | {"taken_at": datetime(1962, 1, 1), "taken_precision": "year"}
    assert read(tmp_path, with_iptc(datasets((DATE, "19620000")))) == year


def test_a_tiff_has_it_in_a_tag(tmp_path):
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[33723], tags[33723] = 7, datasets(*PAIRS)
    assert read(tmp_path, picture("TIFF", tiffinfo=tags), "a.tif") == SAID


@pytest.mark.parametrize("text", ["Zürich", "“Zürich” – 5 €"])
def test_text_of_windows_is_read(tmp_path, text):
    assert read(tmp_path, with_iptc(datasets((TITLE, text.encode("cp1252")))))["title"] == text


XMP = b"""<rdf:RDF><dc:title><rdf:Alt><rdf:li xml:lang="de">Hafen</rdf:li><rdf:li xml:lang='x-default'>Port</rdf:li>
  </rdf:Alt></dc:title><dc:description><rdf:Alt><rdf:li xml:lang="de">Boote</rdf:li></rdf:Alt></dc:description>
  <dc:subject><rdf:Bag><rdf:li>ship</rdf:li></rdf:Bag></dc:subject></rdf:RDF>"""


def test_xmp_wins_unless_a_program_changed_iptc_alone(tmp_path):
    names, block = ("title", "description", "creator", "keywords"), datasets(*PAIRS[:-2], PAIRS[-1])
    by_xmp = ["Port", "Boote", "Ada Moss", ["ship"]]
    by_iptc = ["Harbour", "Boote", "Ada Moss", ["boat", "Zürich, Oper"]]  # it has no caption
    for digest, expected in ((b"", by_xmp), (md5(block).digest(), by_xmp), (b"\1" * 16, by_iptc)):
        row = read(tmp_path, with_iptc(block, digest, xmp=XMP))
        assert [row[name] for name in names] == expected


def test_a_cut_leaves_what_is_before_it(tmp_path):
    block = datasets(*PAIRS)
    ends = {name: block.index(SAID[name].encode()) + len(SAID[name]) for name in ("title", "creator")}
    for end in range(len(block)):
        row = read(tmp_path, with_iptc(block[:end]))
        assert all(row[name] == (SAID[name] if end >= whole else None) for name, whole in ends.items())


@pytest.mark.parametrize("seed", range(8))
def test_any_bytes_lose_tags_alone(tmp_path, seed):
    """The photo is read as without tags, whatever they say."""
    rng = np.random.default_rng(seed)
    block = bytearray(datasets(*PAIRS, long=bool(seed % 2)))
    for place in rng.integers(0, len(block), 20):
        block[place] = rng.integers(0, 256)
    row = read(tmp_path, with_iptc(bytes(block), rng.bytes(16)))
    assert row.keys() == NULL.keys() and row["camera_make"] is None
