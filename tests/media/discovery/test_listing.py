"""Inputs (a folder, pattern, file, list or URL) become a list of files or one error message."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile, read_bytes
from tests.support.errors import fails


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jpg", "a.jpg", "sub/c.mp4", "sub/deep/d", ".hidden.jpg", ".git/e.jpg", "sub/.f.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    return tmp_path / "in"


def ids(source: str | Path) -> list[str]:
    return [item.media_id for item in list_media(str(source))]


def test_folder_is_listed_in_order_without_hidden_files(folder: Path) -> None:
    assert ids(folder) == ["a.jpg", "b.jpg", "sub/c.mp4", "sub/deep/d"]
    first = list_media(str(folder))[0]
    assert (first.path, first.size) == (str(folder / "a.jpg"), 8)
    assert first.mtime_ns == (folder / "a.jpg").stat().st_mtime_ns


def test_paths_are_absolute_in_any_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert all(Path(item.path).is_absolute() for item in list_media("sub"))


def test_glob_keeps_the_part_of_the_path_that_varies(folder: Path) -> None:
    assert ids(folder / "*.jpg") == ["a.jpg", "b.jpg"]
    assert ids(folder / "s*") == ["sub/c.mp4", "sub/deep/d"]
    assert ids(folder / "**" / "*") == ["a.jpg", "b.jpg", "sub/c.mp4", "sub/deep/d"]


def test_an_existing_name_with_glob_characters_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "[2024] a").mkdir()
    (tmp_path / "[2024] a" / "x?.jpg").write_bytes(b"1")
    assert ids(tmp_path / "[2024] a") == ["x?.jpg"]


def test_single_file(folder: Path) -> None:
    assert ids(folder / "sub" / "deep" / "d") == ["d"]


def test_text_list(folder: Path, tmp_path: Path) -> None:
    lines = ["in/a.jpg", str(folder / "sub/c.mp4"), "", "in/./a.jpg", "in/gone.jpg\r"]
    (tmp_path / "list").write_text("\ufeff" + "\n".join(lines))
    media = list_media(str(tmp_path / "list"))
    assert [(item.media_id, item.size) for item in media] == [("a.jpg", 8), ("gone.jpg", 0), ("sub/c.mp4", 12)]
    with pytest.raises(MediaError) as error:
        read_bytes(media[1])
    assert error.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize("prefix", ["", "file://"])
@given(listed=st.integers(0, 12), limit=st.integers(0, 12))
def test_a_file_is_read_completely_if_its_size_changed_after_the_listing(prefix: str, listed: int, limit: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a").write_bytes(b"0123456789")
        media = MediaFile(media_id="a", path=f"{prefix}{place}/a", size=listed, mtime_ns=0)
        assert read_bytes(media) == b"0123456789"
        if limit >= 10:
            assert read_bytes(media, limit) == b"0123456789"
            return
        with pytest.raises(MediaError) as error:
            read_bytes(media, limit)
        assert error.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("values", [[1], [["a.jpg"]], [{"path": "a.jpg"}]], ids=str)
def test_a_parquet_list_of_other_things_than_text(tmp_path: Path, values: list[object]) -> None:
    pq.write_table(pa.table({"path": values}), tmp_path / "list.parquet")
    with fails("FK-LIST-NO-PATH-COLUMN"):
        list_media(str(tmp_path / "list.parquet"))


def test_parquet_list(folder: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["in/b.jpg", "in/sub/c.mp4", "in/b.jpg", None]}), tmp_path / "list.data")
    assert ids(tmp_path / "list.data") == ["b.jpg", "sub/c.mp4"]
    pq.write_table(pa.table({"paths": ["in/b.jpg"]}), tmp_path / "wrong")
    with fails("FK-LIST-NO-PATH-COLUMN", "'paths'"):
        list_media(str(tmp_path / "wrong"))


def test_list_of_files_outside_its_folder_keeps_ids_inside(folder: Path) -> None:
    (folder / "sub" / "list").write_text("../a.jpg\nc.mp4\n")
    assert ids(folder / "sub" / "list") == ["a.jpg", "sub/c.mp4"]


def test_a_list_with_several_schemes_keeps_whole_paths(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{folder}/a.jpg\nfile://{folder}/b.jpg\n")
    assert ids(tmp_path / "list") == ["a.jpg", "b.jpg"]
    from framekiln.media.media_ids import relative_to_common

    assert relative_to_common(["/data/a.jpg", "s3://bucket/b%20c.jpg"]) == ["file/data/a.jpg", "s3/bucket/b%20c.jpg"]


def test_url_of_folder_file_and_list(folder: Path, tmp_path: Path) -> None:
    (folder / "sub" / "a b%41.jpg").write_bytes(b"content")
    media = list_media(f"file://{folder}")
    assert [item.media_id for item in media] == ["a.jpg", "b.jpg", "sub/a b%2541.jpg", "sub/c.mp4", "sub/deep/d"]
    assert read_bytes(media[2]) == b"content"
    assert media[2].size == 7 and media[2].mtime_ns > 0
    assert ids(f"file://{folder}/a.jpg") == ["a.jpg"]
    (tmp_path / "list").write_text("in/a.jpg\nin/sub/c.mp4\n")
    from_list = list_media(f"file://{tmp_path}/list")
    assert [item.media_id for item in from_list] == ["a.jpg", "sub/c.mp4"]
    assert read_bytes(from_list[0]) == (folder / "a.jpg").read_bytes()


@pytest.mark.parametrize(
    ("make", "source", "code", "value"),
    [
        ("", "in/pohtos", "FK-INPUT-MISSING", "'photos'"),
        ("", "in/none/deeper", "FK-INPUT-MISSING", "in/none'"),
        ("", "in/*.png", "FK-INPUT-NO-MATCH", "*.png"),
        ("in/empty/", "in/empty", "FK-INPUT-NO-FILES", "in/empty"),
        ("in/zero", "in/zero", "FK-INPUT-EMPTY", "in/zero"),
        ("in/blank", "in/blank", "FK-LIST-EMPTY", "in/blank"),
        ("in/page", "in/page", "FK-LIST-WITHOUT-FILES", "in/page"),
        ("", "file:///in/none", "FK-INPUT-MISSING", "file:///in/none"),
        ("", "nonsense://a/b", "FK-INPUT-UNREADABLE", "nonsense://a/b"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, make: str, source: str, code: str, value: str) -> None:
    (tmp_path / "in" / "photos").mkdir(parents=True)
    if make.endswith("/"):
        (tmp_path / make).mkdir()
    elif make:
        (tmp_path / make).write_text({"in/zero": "", "in/blank": "\n \n"}.get(make, "<html>\nhello\n"))
    with fails(code, value):
        list_media(source if "://" in source else str(tmp_path / source))


@pytest.mark.heavy
def test_the_memory_of_a_list_is_limited(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    (tmp_path / "long.txt").write_bytes(b"a.jpg\n" + b"x" * 70_000 + b"\na.jpg\n")
    pq.write_table(pa.table({"path": ["a.jpg", "x" * 70_000]}), tmp_path / "long.parquet")
    for name in ("long.txt", "long.parquet"):
        with fails("FK-LIST-ENTRY-TOO-LONG"):
            list_media(str(tmp_path / name))
    pq.write_table(pa.table({"path": pa.array(["a.jpg"] * 10_000_001).dictionary_encode()}), tmp_path / "many.parquet")
    assert (tmp_path / "many.parquet").stat().st_size < 100_000
    with fails("FK-LIST-TOO-LONG", "10,000,000"):
        list_media(str(tmp_path / "many.parquet"))


def test_entries_that_are_invalid_paths_are_lines_in_the_errors_table(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    pq.write_table(pa.table({"path": ["a.jpg", "b\0.jpg", "x" * 5000]}), tmp_path / "list.parquet")
    media = {item.media_id[:6]: item for item in list_media(str(tmp_path / "list.parquet"))}
    assert list(media) == ["a.jpg", "b%00.j", "xxxxxx"]
    for name in ("b%00.j", "xxxxxx"):
        with pytest.raises(MediaError) as error:
            read_bytes(media[name])
        assert error.value.reason is Reason.UNREADABLE


@pytest.mark.heavy
def test_a_list_of_many_blocks_is_read_completely(tmp_path: Path) -> None:
    names = [f"{'deep/' * 10}{number:08d}.jpg" for number in range(40_000)]
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["list.txt", *names]).encode())
    assert len(list_media(str(tmp_path / "list.txt"))) == 40_001


def test_links_are_followed_except_in_circles(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "x.jpg").write_bytes(b"1")
    (folder / "link").symlink_to(tmp_path / "else")
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "twice").symlink_to(tmp_path / "else")
    (folder / "dead").symlink_to(folder / "nowhere")
    assert ids(folder) == ["a.jpg", "b.jpg", "dead", "link/x.jpg", "sub/c.mp4", "sub/deep/d"]


@pytest.mark.parametrize("name", ["@eaDir", "#recycle", "@Recycle", "$RECYCLE.BIN"])
def test_what_systems_keep_is_hidden_unless_it_is_the_input(folder: Path, name: str) -> None:
    before, own = ids(folder), folder / "sub" / name
    (own / "c.jpg").mkdir(parents=True)
    (own / "c.jpg" / "thumb.jpg").write_bytes(b"1")
    assert ids(folder) == before and not any(name in each for each in ids(folder / "*" / "**"))
    assert ids(own) == ["c.jpg/thumb.jpg"] == ids(folder / "sub" / name / "*")
    assert ids(folder / "*" / name) == [f"sub/{name}/c.jpg/thumb.jpg"]


def test_a_link_to_a_listed_file_is_no_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    """It would be a copy of its file; a link to any other file is read."""
    (tmp_path / "else").mkdir()
    for place in (tmp_path / "else" / "x.jpg", folder / ".store" / "y.jpg"):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"1")
    (folder / "far").symlink_to(tmp_path / "else")
    links = {"l1.jpg": "a.jpg", "sub/l2.jpg": "../l1.jpg", "l3.jpg": "far/x.jpg", "l4.jpg": ".store/y.jpg", "l5": "l5"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.link(folder / "b.jpg", folder / "hard.jpg")
    told: list[str] = []
    found = [item.media_id for item in list_media(str(folder), on_message=told.append)]
    assert found == ["a.jpg", "b.jpg", "far/x.jpg", "hard.jpg", "l4.jpg", "l5", "sub/c.mp4", "sub/deep/d"]
    assert len(told) == 1 and "3 links" in told[0]
    assert ids(folder / "l*.jpg") == ["l1.jpg", "l3.jpg", "l4.jpg"]  # their files are not in this input


def test_photos_may_share_a_sidecar_by_a_link(folder: Path) -> None:
    (folder / "a.xmp").write_text("<x:xmpmeta/>")
    (folder / "b.xmp").symlink_to("a.xmp")
    found = {item.media_id: item.sidecar and item.sidecar.media_id for item in list_media(str(folder))}
    assert (found["a.jpg"], found["b.jpg"]) == ("a.xmp", "b.xmp")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch to a user without permission")
def test_no_permission(folder: Path) -> None:
    (folder / "sub").chmod(0o700)
    code = (
        "import os, sys\nfrom framekiln.contract.errors import InputError\n"
        "from framekiln.media.discovery.listing import list_media\n"
        "os.setuid(65534)\n"
        "print([(m.media_id, m.size) for m in list_media(sys.argv[1])])\n"
        "print('glob', [(m.media_id, m.size) for m in list_media(sys.argv[1] + '/*/*')])\n"
        "try: list_media(sys.argv[1] + '/sub')\nexcept InputError as exc: print(exc.code)\n"
    )
    for part in (folder, *folder.parents[:-1]):
        part.chmod(part.stat().st_mode | 0o055)
    (folder / "sub").chmod(0o700)
    (folder / "into").symlink_to(folder / "sub" / "deep")
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert "('sub', 0)" in done.stdout and "('into', 0)" in done.stdout, done.stderr
    assert "glob [('sub', 0)]" in done.stdout, done.stderr
    assert "FK-INPUT-UNREADABLE" in done.stdout
