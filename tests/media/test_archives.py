"""Members of TAR and ZIP archives are read as the same files in a folder are, whatever the archive is like."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from PIL import Image as Pil
from pyarrow import fs

from framekiln.media import files
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import open_media, printable_path, uri_of
from tests.support.media.archive_factory import tar, zipped
from tests.support.media.media_factory import decoded, encoded, film, numbered

DEFLATED = zipfile.ZIP_DEFLATED
WAYS = {
    "a.tar": tar,
    "b.TAR": lambda members: tar(members, tarfile.GNU_FORMAT),
    "c.tar": lambda members: tar(members, tarfile.USTAR_FORMAT),
    "d.zip": zipped,
    "e.zip": lambda members: zipped(members, DEFLATED),
}


def photo(number: int) -> bytes:
    return encoded(Pil.fromarray(numbered(number)), "PNG")


def photos(count: int) -> list[tuple[str, bytes]]:
    return [(f"{number:03}.png", photo(number)) for number in range(count)]


def shown(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the grey of each row by its media_id, and the kind of each failure."""
    rows, failures = decoded(folder)
    return (
        {row["media_id"]: int(row["frame"][-1, -1, 0]) for row in rows},
        {failure.media_id: failure.kind for failure in failures},
    )


@pytest.mark.parametrize("name", WAYS)
def test_members_are_files(tmp_path: Path, name: str) -> None:
    folder, archives = tmp_path / "folder" / name, tmp_path / "archives"
    folder.mkdir(parents=True)
    archives.mkdir()
    clip = film(tmp_path / "clip.mkv", [numbered(number, 64, 96) for number in range(20)])
    sound = film(tmp_path / "sound.mkv", [numbered(5, 64, 96)] * 10, sound=np.arange(19_200, dtype=np.int16))
    members = [*photos(4), ("one.txt", b"a caption"), ("shown.mkv", clip.read_bytes()), ("s.mkv", sound.read_bytes())]
    for member, data in members:
        (folder / member).write_bytes(data)
    (archives / name).write_bytes(WAYS[name](members))
    columns = ("frame", "sound")
    expected, found = decoded(tmp_path / "folder", columns), decoded(archives, columns)
    assert [row["media_id"] for row in expected[0]] == [row["media_id"] for row in found[0]]
    assert len(found[0]) == 34 and expected[1] == found[1]
    for one, other in zip(*(rows for rows, _ in (expected, found)), strict=True):
        assert np.array_equal(one.pop("frame"), other.pop("frame"))
        assert str(one) == str(other)


def test_names_stay_inside_their_archive(tmp_path: Path) -> None:
    names = [
        "../x.png",
        "/etc/x.png",
        "./plain.png",
        "a//b.png",
        "new\nline.png",
        "50% off.png",
        "caf\u00e9.png",
        "C:\\d.png",
    ]
    hidden = [".git/x.png", "__MACOSX/._x.png", "a/.b.png", "a/@eaDir/b.png/SYNOPHOTO_THUMB_M.png"]
    members = [(name, photo(number)) for number, name in enumerate([*names, *hidden])]
    for name, way in (("a.tar", tar), ("a.zip", zipped)):
        (tmp_path / name).write_bytes(way([*members, ("plain.png", photo(99))]))
        rows, failures = shown(tmp_path / name)
        plain = [item.removeprefix("./") for item in names]
        assert failures == {} and len(rows) == len(names), rows
        assert {unquote_to_bytes(item.partition("/")[2]).decode().replace("//etc", "/etc") for item in rows} <= {
            item.replace("a//b", "a///b") for item in plain
        } | {*plain}
        assert all(item.isprintable() and ".." not in item.split("/") for item in rows)
        assert rows[f"{name}/plain.png"] == 99, "of two with one name the last, as unpacking does"


@pytest.mark.parametrize("name", ["a.tar", "d.zip"])
def test_what_is_before_the_damage_is_read(tmp_path: Path, name: str) -> None:
    whole = WAYS[name](photos(8))
    place = whole.index(b"004.png")
    data = bytearray(whole)
    if name == "a.tar":
        data[place + 20] ^= 1  # the header does not match its checksum
        (tmp_path / name).write_bytes(bytes(data))
        rows, failures = shown(tmp_path / name)
        assert rows == {f"{name}/{number:03}.png": number for number in range(4)}
        assert failures == {name: "corrupt"}
    for end in range(20, len(whole.rstrip(b"\0")), 97):
        (tmp_path / name).write_bytes(whole[:end])
        rows, failures = shown(tmp_path / name)
        complete = sum(f"{number:03}.png".encode() in whole[:end] for number in range(8))
        assert len(rows) >= min(complete, 8) - 1 and all(rows[key] == int(key[-7:-4]) for key in list(rows)[:-1]), end
        assert name in failures, end
        assert set(failures.values()) <= {"truncated", "unsupported"}, failures


def test_a_damaged_member_is_a_line_of_its_own(tmp_path: Path) -> None:
    data = bytearray(zipped(photos(3), DEFLATED))
    first, second = (data.index(f"{number:03}.png".encode()) for number in (0, 1))
    data[first + 20] ^= 0xFF
    data[second - 30 : second - 26] = b"gone"
    (tmp_path / "a.zip").write_bytes(bytes(data))
    rows, failures = shown(tmp_path)
    assert rows == {"a.zip/002.png": 2}
    assert failures == {"a.zip/000.png": "corrupt", "a.zip/001.png": "corrupt"}


def test_links_and_what_is_not_read_are_told(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        hard = (("hard.png", tarfile.LNKTYPE, "a.png"), ("./other.png", tarfile.LNKTYPE, "./a.png"))
        for name, kind, target in (("a.png", tarfile.REGTYPE, ""), *hard):
            item = tarfile.TarInfo(name)
            item.type, item.linkname = kind, target
            item.size = 0 if target else len(photo(7))
            archive.addfile(item, None if target else io.BytesIO(photo(7)))
        for kind in (b"V", b"D", b"M"):  # a label, a list of a folder's files, the rest of another volume
            item = tarfile.TarInfo("of-gnu")
            item.type = kind
            archive.addfile(item)
        for name, kind in (("soft.png", tarfile.SYMTYPE), ("null", tarfile.CHRTYPE), ("pipe", tarfile.FIFOTYPE)):
            item = tarfile.TarInfo(name)
            item.type, item.linkname = kind, "/etc/passwd"
            archive.addfile(item)
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    rows, failures = shown(tmp_path)
    assert rows == {"a.tar/a.png": 7, "a.tar/hard.png": 7, "a.tar/other.png": 7}
    assert failures == dict.fromkeys(("a.tar/soft.png", "a.tar/null", "a.tar/pipe"), "unreadable")
    data = bytearray(zipped(photos(2)))
    data[data.index(b"PK\x01\x02") + 8] |= 1  # encrypted
    other = bytearray(zipped(photos(1)))
    other[other.index(b"PK\x01\x02") + 10] = 12  # bzip2
    for name, content in (("a.tar", b""), ("b.zip", bytes(data)), ("c.zip", bytes(other))):
        (tmp_path / name).write_bytes(content) if content else (tmp_path / name).unlink()
    rows, failures = shown(tmp_path)
    assert rows == {"b.zip/001.png": 1}
    assert failures == {"b.zip/000.png": "unsupported", "c.zip/000.png": "unsupported"}


def test_archives_in_archives_and_those_without_media_are_passed_over(tmp_path: Path) -> None:
    inner = zipped([("x.png", photo(1))])
    for name, data in {
        "outer.tar": tar([("a.png", photo(3)), ("inner.zip", inner), ("inner.tar", tar(photos(1)))]),
        "source.zip": zipped([("main.py", b"pass"), ("README", b"text"), ("LICENSE", b"text")]),
        "empty.zip": zipped([]),
        "empty.tar": tar([]),
        "zeros.tar": bytes(2 << 20),
        "hashes.tar": tar([("0af3", photo(4)), ("0af4", photo(5))]),
        "photo.tar": photo(6),
        "broken.tar": b"\x01\x02 no archive" * 100,
        "photo.jpg": tar(photos(1)),
        "shard": tar(photos(1)),
        "shard.bin": tar(photos(1)),
    }.items():
        (tmp_path / name).write_bytes(data)
    rows, failures = shown(tmp_path)
    assert rows == {"outer.tar/a.png": 3, "hashes.tar/0af3": 4, "hashes.tar/0af4": 5, "photo.tar": 6}
    assert failures == {
        "outer.tar/inner.zip": "passed_over",
        "outer.tar/inner.tar": "passed_over",
        "source.zip": "passed_over",
        "empty.zip": "passed_over",
        "empty.tar": "passed_over",
        "zeros.tar": "corrupt",
        "broken.tar": "unsupported",
        "photo.jpg": "unsupported",
        "shard": "unsupported",
        "shard.bin": "passed_over",
    }


def test_joined_archives_are_one(tmp_path: Path) -> None:
    parts = [tar([(f"{number}.png", photo(number))]) for number in range(3)]
    (tmp_path / "a.tar").write_bytes(b"".join(parts) + b"other bytes" * 99)
    assert shown(tmp_path) == ({f"a.tar/{number}.png": number for number in range(3)}, {})


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    large = zipped([("a.bmp", bytes(1 << 20))], DEFLATED)
    stated = bytearray(large)
    at = stated.index(b"PK\x01\x02")
    stated[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)  # 4 GB
    less = bytearray(large)
    less[at + 24 : at + 28] = struct.pack("<I", 1000)  # the rest is not unpacked
    twice = zipfile.ZipFile(io.BytesIO(zipped([("a.png", photo(1))]))).infolist()
    shared = bytearray(zipped([("a.png", photo(1))]))
    entry, end = shared.index(b"PK\x01\x02"), shared.index(b"PK\x05\x06")
    shared[end:end] = shared[entry:end] * 99  # a hundred names of one member
    tail = shared.index(b"PK\x05\x06")
    shared[tail + 8 : tail + 16] = struct.pack("<HHI", 100, 100, tail - entry)
    index = bytearray(zipped(photos(1)))
    index[-10:-6] = struct.pack("<I", 1 << 30)
    comment = b"PK\5\6 is the mark of the index" + bytes(16)
    marked = zipped(photos(1))[:-2] + struct.pack("<H", len(comment)) + comment
    name = tar([("a.png", photo(1))])
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    for file, data in {
        "stated.zip": bytes(stated),
        "less.zip": bytes(less),
        "shared.zip": bytes(shared),
        "index.zip": bytes(index),
        "marked.zip": marked,
        "name.tar": header.tobuf(tarfile.GNU_FORMAT) + name,
    }.items():
        (tmp_path / file).write_bytes(data)
    rows, failures = shown(tmp_path)
    (own,) = photos(1)
    assert rows == dict.fromkeys((f"index.zip/{own[0]}", f"marked.zip/{own[0]}"), 0) and len(twice) == 1
    assert failures == {
        "stated.zip/a.bmp": "corrupt",
        "less.zip/a.bmp": "corrupt",
        "shared.zip": "too_large",
        "index.zip": "truncated",
        "marked.zip": "truncated",
        "name.tar": "corrupt",
    }


def test_a_large_member_is_unpacked_beside_memory(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped([("a.bmp", b"BM" + bytes(65 << 20))], DEFLATED))
    (media,) = list_media(str(tmp_path))
    with open_media(media) as stream:
        assert stream.seek(0, os.SEEK_END) == media.size == 2 + (65 << 20)
        stream.seek(0)
        assert stream.read(3) == b"BM\0" and stream.fileno() > 0


def test_places_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket" / "in").mkdir(parents=True)
    (tmp_path / "bucket" / "in" / "a b.tar").write_bytes(tar([("x/y.png", photo(5))]))
    (local,) = list_media(str(tmp_path / "bucket"))
    assert local.media_id == "in/a b.tar/x/y.png" and printable_path(local.path) is None
    assert uri_of(local.path) == f"tar://x/y.png::file://{tmp_path}/bucket/in/a%20b.tar"
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(uri_of(local.path).replace("%20", " ")) as stream:
        assert stream.read() == photo(5)
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(files, "_open_file_system", lambda *_: store)
    (remote,) = list_media("s3://bucket/in")
    assert remote.media_id == "a b.tar/x/y.png" and uri_of(remote.path) == "tar://x/y.png::s3://bucket/in/a b.tar"
    with open_media(remote) as stream:
        assert stream.read() == photo(5)
