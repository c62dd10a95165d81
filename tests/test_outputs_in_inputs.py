"""Outputs of runs that lie in an input are no input, whose ever they are and wherever both lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from pipeline.errors import InputError, OutputError
from pipeline.job import Job
from pipeline.media.listing import list_media
from tests.engine_factory import order, small

__all__ = ["small"]
RUN = ("run.json", "columns/crc-1/a.parquet", "units/u.parquet", "images/crc-1/a.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos with outputs among them: one that ended, one that was killed, and what only looks like one."""
    names = ["a.jpg", "sub/b.jpg", *(f"sub/out/{name}" for name in RUN), "killed/run.lease-0a1b2c.json", "killed/x.png"]
    for name in (*names, "else/run.json", "else/units/c.jpg", "mine/d.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"content")
    return tmp_path / "in"


def listed(source: str | Path, output: str | Path | None = None) -> tuple[list[str], list[str]]:
    said: list[str] = []
    found = list_media(str(source), None if output is None else str(output), say=said.append)
    return [item.media_id for item in found], said


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_outputs_of_any_run_are_left_out_and_one_line_says_so(folder: Path, prefix: str) -> None:
    found, said = listed(f"{prefix}{folder}")
    assert found == ["a.jpg", "else/run.json", "else/units/c.jpg", "mine/d.jpg", "sub/b.jpg"]
    assert said == ["Left out of the input: 2 folders that are outputs of Framemill (killed, sub/out)."]


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_what_lies_in_the_own_output_is_left_out_before_it_is_marked(folder: Path, prefix: str) -> None:
    found, said = listed(f"{prefix}{folder}", f"{prefix}{folder}/mine")
    assert "mine/d.jpg" not in found and "a.jpg" in found
    assert said == ["Left out of the input: 3 folders that are outputs of Framemill (killed, mine, sub/out)."]
    assert listed(f"{prefix}{folder / 'mine'}", folder / "mine" / "new") == (["d.jpg"], [])


def test_the_own_output_is_known_by_a_link_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "mine")
    assert "mine/d.jpg" not in listed(folder, tmp_path / "link")[0]


def test_a_pattern_reaches_into_no_output_below_its_fixed_part(folder: Path) -> None:
    for pattern in ("**", "**/*", "*", "*/*", "*/*/*", "*/*/*/*/*"):
        found = set() if pattern.startswith("*/*/*/") else set(listed(folder / pattern, folder / "mine")[0])
        assert not [name for name in found if name.startswith(("sub/out", "killed", "mine"))], pattern
    assert listed(folder / "sub/out/images/*")[0] == ["crc-1/a.png"]
    assert listed(folder / "sub/out/images")[0] == ["crc-1/a.png"]


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize(
    ("source", "output", "said"),
    [
        ("", "", "are one folder"),
        ("sub/..", "", "are one folder"),
        ("sub/out/images", "sub/out", "lies where runs into the output"),
        ("sub/out", None, "is itself the output of a run"),
    ],
)
def test_an_input_that_runs_write_to_is_refused(
    folder: Path, prefix: str, source: str, output: str | None, said: str
) -> None:
    place = f"{prefix}{folder / source}" if ".." not in source else str(folder / source)
    with pytest.raises(InputError, match=said):
        list_media(place, None if output is None else f"{prefix}{folder / output}")


def test_in_a_bucket_outputs_are_told_by_the_listing_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    monkeypatch.setattr("pipeline.media.store._file_system", lambda _: bucket)
    found, said = listed("s3://in", "s3://in/mine/")
    assert found == ["a.jpg", "else/run.json", "else/units/c.jpg", "sub/b.jpg"]
    assert said == ["Left out of the input: 3 folders that are outputs of Framemill (killed, mine, sub/out)."]
    assert "mine/d.jpg" in listed("s3://in", "s3://in/mi")[0] and "mine/d.jpg" in listed("s3://in", folder / "mine")[0]
    for source, output in (("s3://in/", "s3://in"), ("s3://in/sub/out/images", "s3://in/sub/out")):
        with pytest.raises(InputError, match="choose another --output"):
            list_media(source, output)
    assert listed("s3://in/sub/out/images", "s3://in/new")[0] == ["crc-1/a.png"]


def test_a_pattern_whose_fixed_part_is_the_output_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="are one folder"):
        list_media(str(folder / "*"), str(folder))


@pytest.mark.slow
@pytest.mark.usefixtures("machines")
def test_the_same_run_into_a_folder_of_its_input_finds_nothing_left_to_do(small: Path) -> None:
    steps, said = {"crc": ("Checksum", {})}, []
    first = Job(order(small, small / "out", steps), on_wait=said.append).run()
    assert first.work.left and not said
    second = Job(order(small, small / "out", steps), on_wait=said.append).run()
    assert not second.work.left and len(second.work.media) == 7 and not second.errors
    assert said == ["Left out of the input: 1 folder that is an output of Framemill (out)."]
    other = Job(order(small, small.parent / "other", steps)).run()
    assert len(other.work.media) == 7, "by what lies in it, for a run that does not know it"
    moved = Job(order(small.parent, small / "third", steps))
    assert len(moved._listed()) == 7


@pytest.mark.slow
@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize("name", ["frames/mine.jpg", "frames/mine.parquet", "everything/notes.txt"])
def test_files_that_no_run_wrote_are_never_swept_from_a_tables_folder(small: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "project" / name
    own.parent.mkdir(parents=True)
    own.write_bytes(b"a year's work")
    steps = {"crc": ("Checksum", {}), "all": ("Everything", {})}
    with pytest.raises(OutputError, match=f"holds '{own.name}', which no run wrote"):
        Job(order(small, tmp_path / "project", steps)).run()
    assert own.read_bytes() == b"a year's work"


@pytest.mark.slow
@pytest.mark.usefixtures("machines")
def test_a_file_manager_s_hidden_file_stops_nobody(small: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "frames").mkdir(parents=True)
    (tmp_path / "project" / "frames" / ".DS_Store").write_bytes(b"icons")
    assert Job(order(small, tmp_path / "project", {"crc": ("Checksum", {})})).run().frames
