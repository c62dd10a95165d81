"""Several inputs: each file once, under an id that no other file can have, and the first input as if it were alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from framekiln.cli.options import RunArguments, read_request
from framekiln.media.discovery.listing import list_inputs, list_media
from framekiln.runtime.run.request import RunRequest
from tests.support.errors import fails


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a/x.jpg", "a/b/x.jpg", "b/x.jpg", "b/y.jpg", "else/b/x.jpg", "a/b%3A/x.jpg", "a/b:/x.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    return tmp_path


def listed(folder: Path, *names: str) -> dict[str, str]:
    sources = [name if "://" in name else str(folder / name) for name in names]
    return {item.media_id: str(Path(item.path).relative_to(folder)) for item in list_inputs(sources)}


def test_one_input_keeps_its_ids(folder: Path) -> None:
    assert list_inputs([str(folder / "a")]) == list_media(str(folder / "a"))


def test_ids_of_the_first_input_stay_and_all_others_are_unambiguous(folder: Path) -> None:
    alone = listed(folder, "a")
    found = listed(folder, "a", "b", "else/b", "else")
    assert alone.items() <= found.items() and len(found) == 7 and len(set(found.values())) == 7
    assert {name: path for name, path in found.items() if name not in alone} == {
        "b%3A/x.jpg": "b/x.jpg",
        "b%3A/y.jpg": "b/y.jpg",
        "b%3A2/x.jpg": "else/b/x.jpg",
    }
    assert unquote_to_bytes("b%3A/x.jpg") == b"b:/x.jpg"


def test_another_input_changes_no_ids_of_others(folder: Path) -> None:
    assert listed(folder, "a", "b").items() <= listed(folder, "a", "else", "b").items()


@pytest.mark.parametrize("again", ["a", "link", "link/b", "a/b/*", "a/b/x.jpg", "list", "file://"])
def test_a_file_in_several_inputs_is_read_once(folder: Path, again: str) -> None:
    (folder / "link").symlink_to(folder / "a")
    (folder / "list").write_text("a/x.jpg\na/b/x.jpg\n")
    messages: list[str] = []
    second = f"file://{folder}/a/" if again == "file://" else str(folder / again)
    assert list_inputs([str(folder / "a"), second], on_message=messages.append) == list_media(str(folder / "a"))
    assert len(messages) == 1 and messages[0].startswith("Read once: ")


def test_names_of_patterns_lists_and_files(folder: Path) -> None:
    (folder / "my list.txt").write_text("b/y.jpg\n")
    found = listed(folder, "a/x.jpg", "else/*", "my list.txt", "b/x.jpg")
    assert sorted(found) == ["else%3A/b/x.jpg", "my list.txt%3A/y.jpg", "x.jpg", "x.jpg%3A/x.jpg"]


def test_each_input_must_exist(folder: Path) -> None:
    with fails("FK-INPUT-MISSING"):
        listed(folder, "a", "gone")


def test_the_option_repeated_and_lists_in_files(tmp_path: Path) -> None:
    request = read_request(RunArguments(input=["a", "b"], output="out"))
    assert request.inputs == ("a", "b")
    (tmp_path / "p.yaml").write_text("input: [c, s3://d/e]\nsteps: {}\n")
    request = read_request(RunArguments(pipeline=str(tmp_path / "p.yaml"), output="out"))
    assert request.inputs == ("c", "s3://d/e")
    record = {**request.to_record(), "folder": "/home"}
    assert RunRequest.from_record(record, "out").inputs == ("/home/c", "s3://d/e")
    assert "more_inputs" not in read_request(RunArguments(input=["a"])).to_record()
