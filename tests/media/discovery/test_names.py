"""Identities of files are printable, distinct and valid paths for any file name."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from urllib.parse import unquote_to_bytes
from urllib.request import urlopen

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile, printable_path, read_bytes, shown_path, uri_of
from framekiln.media.media_ids import as_folder, media_id


def test_hostile_names_are_printable_and_lossless(tmp_path: Path) -> None:
    names = [
        b"a b.jpg",
        b"new\nline.jpg",
        b"100%.jpg",
        "rtl\u202ename.jpg".encode(),
        b"latin\xe9.jpg",
        "ünï.jpg".encode(),
        b"tab\t",
    ]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    media = list_media(str(tmp_path))
    assert sorted(unquote_to_bytes(item.media_id) for item in media) == sorted(names)
    assert all(read_bytes(item) == unquote_to_bytes(item.media_id) for item in media)
    assert all(item.media_id.isprintable() for item in media)
    assert pa.array([item.media_id for item in media]).type == pa.string()
    assert "a b.jpg" in {item.media_id for item in media} and "ünï.jpg" in {item.media_id for item in media}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda text: text.lstrip("/")))
@example("../x")
@example("a/../../../b")
@example("./a//b/")
@example("..")
def test_media_id_never_leaves_its_folder(relative: str) -> None:
    name = media_id(relative)
    assert not {unicodedata.category(sign) for sign in name} & {"Cc", "Zl", "Zp"}
    marks = {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI"}
    assert marks.isdisjoint(unicodedata.bidirectional(sign) for sign in name)
    assert not name.startswith("/") and not {"", ".", ".."} & set(name.split("/"))
    assert os.path.normpath(f"/out/{name}").startswith("/out/")
    if not {"", ".", ".."} & set(relative.split("/")):
        assert unquote_to_bytes(name) == relative.encode()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), min_size=1, max_size=30).map("/".join))
@example("a" * 5000)
@example("\x01" * 120 + "/x.jpg")
@example("/".join(["ü" * 120] * 20))
def test_every_media_id_has_a_valid_folder(relative: str) -> None:
    name = media_id(relative)
    folder = as_folder(name)
    assert len(folder.encode()) <= 700 and all(0 < len(part.encode()) <= 255 for part in folder.split("/"))
    assert {"", ".", ".."}.isdisjoint(folder.split("/"))
    assert folder == name or (len(name.encode()) > 200 and folder != as_folder(name + "x"))


def test_every_unprintable_character_is_escaped() -> None:
    left = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp") and media_id(chr(code)) == chr(code)
    ]
    assert left == [] and media_id("50% off.jpg") == "50%25 off.jpg"
    assert media_id("\U000e0067.jpg") == "%F3%A0%81%A7.jpg"


@pytest.mark.parametrize("name", ["a b.jpg", "50% #1?.jpg", "ünï\u202e.jpg", "latin\udce9.jpg", "a\nb"])
def test_uris_can_be_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    uri = uri_of(str(tmp_path / name))
    assert uri.isascii() and uri.startswith("file:///") and " " not in uri
    assert "\udce9" in name or urlopen(uri).read() == b"content", "urllib knows UTF-8 only"
    assert read_bytes(MediaFile(media_id="x", path=uri, size=7, mtime_ns=0)) == b"content"


def test_uris_have_no_credentials_and_any_entry_has_one() -> None:
    assert uri_of("s3://key:secret@bucket/a b.jpg?region=eu") == "s3://bucket/a b.jpg?region=eu"
    assert shown_path("s3://key:secret@bucket/a b@c.jpg?region=eu") == "s3://bucket/a b@c.jpg?region=eu"
    assert uri_of("s3://[a/b") and uri_of("nonsense://")


def test_a_path_is_of_a_local_file_with_a_name_in_utf_8() -> None:
    assert printable_path("/data/50% off.jpg") == printable_path("file:///data/50%25%20off.jpg") == "/data/50% off.jpg"
    for path in ("s3://bucket/a.jpg", "/data/caf\udce9.jpg", "s3://[a/b", "nonsense://"):
        assert printable_path(path) is None
