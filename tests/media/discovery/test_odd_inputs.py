"""Entries of an input that are no readable files, or have odd times, depths, sizes and links: none ends a run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from framekiln.contract.errors import InputError, MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.damaged import check_written
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile, open_url, read_bytes
from framekiln.media.packets.decode import decode
from framekiln.media.units import form_units, split_unit, task_bytes
from framekiln.output.content_hash import digest
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, read_units
from tests.support.errors import fails
from tests.support.runs.units import ensure_units


def ids(source: str | Path) -> list[str]:
    return [item.media_id for item in list_media(str(source))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "in" / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    return tmp_path / "in"


@pytest.fixture
def odd(folder: Path) -> Path:
    """A folder with an entry of each kind that is no readable file, between two photos."""
    os.mkfifo(folder / "pipe")
    (folder / "self").symlink_to("self")
    (folder / "to-null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    return folder


ODD = {"pipe": "named pipe", "self": "", "socket": "socket", "to-null": "character device"}


@pytest.mark.parametrize("kind", ["folder", "file://", "glob", "list"])
def test_entries_that_are_no_files_are_lines_in_the_errors_table(odd: Path, kind: str) -> None:
    (odd.parent / "list").write_text("\n".join(str(path) for path in odd.iterdir() if path.name[0] != "."))
    place = {"folder": odd, "file://": f"file://{odd}", "glob": odd / "*", "list": odd.parent / "list"}[kind]
    media = {item.media_id: item for item in list_media(str(place))}
    assert {"a.jpg", "b.jpg", *ODD} <= media.keys()
    for name, word in ODD.items():
        assert (media[name].size, media[name].mtime_ns) == (0, 0), "the time of a pipe changes with each use"
        with pytest.raises(MediaError) as error:
            read_bytes(media[name])
        assert error.value.reason is Reason.UNREADABLE and word in str(error.value)


@pytest.mark.parametrize("kind", ["", "file://", "glob"])
def test_folders_that_link_to_each_other_are_visited_once(tmp_path: Path, kind: str) -> None:
    names = [f"f{number}" for number in range(9)]
    for name in names:
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "x.jpg").write_bytes(b"1")
        for other in names:
            (tmp_path / "in" / name / f"to-{other}").symlink_to(tmp_path / "in" / other)
    (tmp_path / "in" / "f0" / "up").symlink_to(tmp_path)
    (tmp_path / "outside.jpg").write_bytes(b"1")
    source = tmp_path / "in" / "**" / "*.jpg" if kind == "glob" else f"{kind}{tmp_path / 'in'}"
    assert ids(source) == sorted(["f0/up/outside.jpg", *(f"{name}/x.jpg" for name in names)])


@pytest.fixture
def deep(folder: Path) -> Iterator[Path]:
    """A folder of folders in each other, longer than a path may be."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    yield folder
    subprocess.run(["rm", "-r", str(folder)], check=True)  # pytest cannot remove it


@pytest.mark.parametrize("pattern", ["", "**", "**/*.jpg"])
def test_folders_may_be_nested_to_any_depth(deep: Path, pattern: str) -> None:
    media = list_media(str(deep / pattern))
    assert [item.media_id for item in media if not item.media_id.startswith("d/")] == ["a.jpg", "b.jpg"]
    (deepest,) = [item for item in media if item.media_id.startswith("d/")]
    assert (deepest.size, len(deepest.path) > 4000) == (0, True)
    with pytest.raises(MediaError) as error:
        read_bytes(deepest)
    assert error.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize("year", [1910, 1960, 2300])
def test_times_of_any_year_are_stored_and_compared(folder: Path, tmp_path: Path, year: int) -> None:
    seconds = int((year - 1970) * 31_556_952)
    os.utime(folder / "a.jpg", ns=(seconds * 10**9, seconds * 10**9 + 5))
    store = Store(str(tmp_path / "out"))
    first = ensure_units(store, list_media(str(folder)), list_media(str(folder)), slots=1)
    assert [media.path for media in read_units(store)[0].media] == [media.path for media in first[0].media]
    assert divide_into_units(store, *[list_media(str(folder))] * 2, slots=1)[1] == []
    os.utime(folder / "a.jpg", ns=(seconds * 10**9, seconds * 10**9 + 10**6))
    assert divide_into_units(store, *[list_media(str(folder))] * 2, slots=1)[1]


def test_a_photo_is_one_task_whatever_size_a_list_states() -> None:
    for name, count in (("a.JPG", 1), ("b.tiff", 1), ("a.mp4", 1024), ("a", 1024)):
        (unit,) = form_units([MediaFile(media_id=name, path=f"s3://b/{name}", size=10**12, mtime_ns=1)], slots=4)
        assert len(split_unit(unit, task_bytes([unit], DecodeConfig(), slots=4))) == count


BAD_URLS = (
    "nonsense://x/y.jpg",
    "s3://[a/b.jpg",
    "file://%",
    "s3://",
    "gs:///",
    "s3://a b/%zz?x=[",
    "abfs://a@b/x.jpg",
)


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_in_a_list_is_a_line_in_the_errors_table(folder: Path, url: str) -> None:
    (folder / "list").write_text(f"a.jpg\n{url}\n")
    media = list_media(str(folder / "list"))
    assert sorted(item.size for item in media) == [0, 8]
    with pytest.raises(MediaError) as error:
        read_bytes(media[[item.size for item in media].index(0)])
    assert error.value.reason is Reason.UNREADABLE
    assert [digest(item) for item in media if not item.size] == [""]


def test_a_broken_link_is_not_its_own_correction(folder: Path) -> None:
    (folder / "gone.jpg").symlink_to("nowhere")
    with pytest.raises(InputError) as error:
        list_media(str(folder / "gone.jpg"))
    assert error.value.code == "FK-INPUT-MISSING" and str(error.value).count("gone.jpg") == 1


@pytest.mark.parametrize(("given", "seconds"), [("", 60), ("?retry_limit_seconds=7", 7)])
def test_google_storage_is_not_retried_for_a_quarter_of_an_hour(given: str, seconds: int) -> None:
    system, path = open_url(f"gs://anonymous@bucket/folder{given}")
    expected, _ = fs.FileSystem.from_uri(f"gs://anonymous@bucket/folder?retry_limit_seconds={seconds}")
    assert system.equals(expected) and path == "bucket/folder"


@pytest.mark.parametrize("url", [*BAD_URLS[:2], BAD_URLS[-1]])
def test_a_bad_url_as_input_is_one_sentence(url: str) -> None:
    with fails("FK-INPUT-UNREADABLE"):
        list_media(url)


def test_a_file_of_any_stated_size_is_a_bounded_number_of_tasks(tmp_path: Path) -> None:
    with (tmp_path / "big.mp4").open("wb") as file:
        file.truncate(15 * 10**12)
    (media,) = list_media(str(tmp_path / "big.mp4"))
    (unit,) = form_units([media], slots=1)
    shares = split_unit(unit, task_bytes([unit], DecodeConfig(), slots=10**6))
    assert len(shares) == 1024
    packets = [packet for share in shares for packet in decode(unit, ["frame"], 0, DecodeConfig(), share)]
    assert [failure.kind for packet in packets for failure in packet.failures] == ["unsupported"]


HEADS = {
    "jpeg": b"\xff\xd8\xff\xe0",
    "gif": b"GIF89a\x08\0\x08\0\0\0\0",
    "mov": b"\0\0\0\x18ftypisom\0\0\0\0isommp42",
    "matroska": bytes.fromhex("1a45dfa38b4282847765626d42878104" + "1853806701ffffffffffffff"),
    "mpeg": b"\0\0\x01\xba\x44\0\x04\0\x04\x01",
    "mpegts": (b"\x47\x40\0\x10" + b"\xff" * 184) * 30,
    "flv": b"FLV\x01\x05\0\0\0\x09\0\0\0\0",
    "ogg": b"OggS\0\x02",
    "avi": b"RIFF\xff\xff\xff\xffAVI LIST",
}


@pytest.mark.parametrize("head", HEADS)
def test_a_sparse_file_of_any_kind_is_one_line_and_is_not_searched(tmp_path: Path, head: str) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.write(HEADS[head])
        file.truncate(15 * 10**12)
    (media,) = list_media(str(tmp_path / "x"))
    (unit,) = form_units([media], slots=1)
    shares = split_unit(unit, DecodeConfig.most_task_bytes)
    packets = [packet for share in shares[::1023] for packet in decode(unit, ["frame"], 0, DecodeConfig(), share)]
    assert [failure.kind for packet in packets for failure in packet.failures] == ["truncated"]
    assert digest(media) == ""


def test_a_photo_in_letters_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P3\n1 1\n255\n1 2 3\n")
    assert ids(tmp_path / "a.ppm") == ["a.ppm"]


def test_small_holes_are_content(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.write(HEADS["jpeg"])
        file.truncate(10**9)
    with (tmp_path / "x").open("rb") as stream:
        assert stream.read(3) == HEADS["jpeg"][:3]
        check_written(stream)
        assert stream.read(2) == HEADS["jpeg"][3:] + b"\0", "the position is kept"
