"""Outputs of any run inside an input are excluded, on disks and in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from framekiln.job import Job
from framekiln.media.discovery.listing import list_media
from framekiln.output.object_store import Store
from framekiln.output.recognise import check_may_become_output
from tests.support.errors import fails
from tests.support.runs.engine_factory import order, small
from tests.support.runs.serial_engine import without_ray

__all__ = ["small"]
RUN = ("run.json", "columns/crc-1/a.parquet", "units/u.parquet", "images/crc-1/a.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos with outputs among them: of an ended run, of a killed one, and a folder that resembles one."""
    names = ["a.jpg", "sub/b.jpg", *(f"sub/out/{name}" for name in RUN), "killed/run.lease-0a1b2c.json", "killed/x.png"]
    for name in (*names, "else/run.json", "else/units/c.jpg", "mine/d.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"content")
    return tmp_path / "in"


def listed(source: str | Path, output: str | Path | None = None) -> tuple[list[str], list[str]]:
    messages: list[str] = []
    media = list_media(str(source), None if output is None else str(output), on_message=messages.append)
    return [item.media_id for item in media], messages


def excluded(count: int, names: str) -> list[str]:
    return [f"Excluded from the input: {count} {'output' if count == 1 else 'outputs'} of Framekiln ({names})."]


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_outputs_of_any_run_are_excluded_with_one_message(folder: Path, prefix: str) -> None:
    names, messages = listed(f"{prefix}{folder}")
    assert names == ["a.jpg", "else/run.json", "else/units/c.jpg", "mine/d.jpg", "sub/b.jpg"]
    assert messages == excluded(2, "killed, sub/out")


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_own_output_is_excluded_from_the_first_run_on(folder: Path, prefix: str) -> None:
    names, messages = listed(f"{prefix}{folder}", f"{prefix}{folder}/mine")
    assert "mine/d.jpg" not in names and "a.jpg" in names
    assert messages == excluded(3, "killed, mine, sub/out")
    assert listed(f"{prefix}{folder / 'mine'}", folder / "mine" / "new") == (["d.jpg"], [])


def test_the_own_output_is_recognised_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "mine")
    assert "mine/d.jpg" not in listed(folder, tmp_path / "link")[0]


def test_a_pattern_excludes_outputs_below_its_fixed_part(folder: Path) -> None:
    for pattern in ("**", "**/*", "*", "*/*", "*/*/*", "*/*/*/*/*"):
        names = set() if pattern.startswith("*/*/*/") else set(listed(folder / pattern, folder / "mine")[0])
        assert not [name for name in names if name.startswith(("sub/out", "killed", "mine"))], pattern
    assert listed(folder / "sub/out/images/*")[0] == ["crc-1/a.png"]
    assert listed(folder / "sub/out/images")[0] == ["crc-1/a.png"]


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize(
    ("source", "output"), [("", ""), ("sub/..", ""), ("sub/out/images", "sub/out"), ("sub/out", None)]
)
def test_an_input_that_runs_write_to_is_rejected(folder: Path, prefix: str, source: str, output: str | None) -> None:
    place = f"{prefix}{folder / source}" if ".." not in source else str(folder / source)
    with fails("FK-INPUT-IS-OUTPUT", place):
        list_media(place, None if output is None else f"{prefix}{folder / output}")


def test_in_a_bucket_outputs_are_recognised_by_the_listing_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    monkeypatch.setattr("framekiln.media.files._open_file_system", lambda *_: bucket)
    names, messages = listed("s3://in", "s3://in/mine/")
    assert names == ["a.jpg", "else/run.json", "else/units/c.jpg", "sub/b.jpg"]
    assert messages == excluded(3, "killed, mine, sub/out")
    assert "mine/d.jpg" in listed("s3://in", "s3://in/mi")[0] and "mine/d.jpg" in listed("s3://in", folder / "mine")[0]
    for source, output in (("s3://in/", "s3://in"), ("s3://in/sub/out/images", "s3://in/sub/out")):
        with fails("FK-INPUT-IS-OUTPUT"):
            list_media(source, output)
    assert listed("s3://in/sub/out/images", "s3://in/new")[0] == ["crc-1/a.png"]


def test_a_pattern_with_the_output_as_its_fixed_part_is_rejected(folder: Path) -> None:
    with fails("FK-INPUT-IS-OUTPUT"):
        list_media(str(folder / "*"), str(folder))


@pytest.mark.slow
@pytest.mark.usefixtures("machines")
@pytest.mark.heavy
def test_a_repeated_run_into_a_folder_of_its_input_has_nothing_to_do(small: Path) -> None:
    steps, messages = {"crc": ("Checksum", {})}, []
    first = Job(order(small, small / "out", steps), on_wait=messages.append).run()
    assert first.work.left and all(message.startswith("Engine: ") for message in messages)
    messages.clear()
    second = Job(order(small, small / "out", steps), on_wait=messages.append).run()
    assert not second.work.left and len(second.work.media) == 7 and not second.errors
    assert messages == excluded(1, "out")
    other = Job(order(small, small.parent / "other", steps)).run()
    assert len(other.work.media) == 7, "recognised by its content in another run"
    assert len(list_media(str(small.parent), str(small / "third"))) == 7


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize("name", ["frames/mine.jpg", "frames/mine.parquet", "everything/notes.txt"])
def test_files_of_the_user_are_never_deleted_from_a_tables_folder(small: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "project" / name
    own.parent.mkdir(parents=True)
    own.write_bytes(b"a year's work")
    steps = {"crc": ("Checksum", {}), "all": ("Everything", {})}
    with fails("FK-FOREIGN-FILE", own.name):
        Job(order(small, tmp_path / "project", steps)).run()
    assert own.read_bytes() == b"a year's work"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("report.html", "FK-FOREIGN-FILE"),
        ("preview.html", "FK-FOREIGN-FILE"),
        ("run.json", "FK-FOREIGN-FILE"),
        ("holiday.JPG", "FK-OUTPUT-HOLDS-MEDIA"),
        ("film.mp4", "FK-OUTPUT-HOLDS-MEDIA"),
        ("run.log", None),
    ],
)
def test_a_folder_of_other_things_becomes_no_output(small: Path, tmp_path: Path, name: str, code: str | None) -> None:
    own = tmp_path / "project" / name
    own.parent.mkdir()
    own.write_text('{"mine": 1}')
    job = Job(order(small, tmp_path / "project", {"crc": ("Checksum", {})}))
    with fails(code, name) if code else without_ray():
        job.run()
    assert own.read_text() == '{"mine": 1}'
    assert len([*own.parent.iterdir()]) == 1 or not code


def test_an_output_without_its_columns_stays_one(tmp_path: Path) -> None:
    for name in ("frames", "facts", "profile"):
        (tmp_path / name).mkdir()
    for name in ("run.json", "report.html"):
        (tmp_path / name).write_text("{}")
    check_may_become_output(Store(str(tmp_path)))


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.usefixtures("machines")
def test_a_hidden_file_of_a_file_manager_is_accepted(small: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "frames").mkdir(parents=True)
    (tmp_path / "project" / "frames" / ".DS_Store").write_bytes(b"icons")
    assert Job(order(small, tmp_path / "project", {"crc": ("Checksum", {})})).run().frames
