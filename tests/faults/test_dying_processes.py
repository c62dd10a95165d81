"""Rows that kill every process that meets them are set aside, alone; a kill from outside loses nothing."""

from __future__ import annotations

import pytest

from pipeline.engine import session
from pipeline.errors import SetupError
from pipeline.job import Job, Order
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices
from pipeline.second import ERRORS, FRAMES
from tests.collections_factory import clip, photo
from tests.test_engine import rows, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes():
    with session(None) as machines:
        yield machines


@pytest.fixture
def media(tmp_path):
    for i in range(5):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "clip.png", 100, 30)
    return tmp_path / "in"


def order(folder, out, steps, profile=None, **choices):
    entries = {name: {"use": f"tests.faults.stages:{kind}", "with": said} for name, (kind, said) in steps.items()}
    return Order(
        input=str(folder),
        output=str(out),
        pipeline=PipelineFile.model_validate({"steps": entries}),
        profile=ProfileFile.model_validate(profile or {}),
        profile_name="none",
        choices=Choices(**choices),
    )


def expected(column, culprits=()):
    """The column of clip.png and of five photos."""
    numbers = [*range(30), *[0] * 5]
    return [None if n in culprits else 10 * n for n in numbers], column


CASES = [
    ("kill", "cpu", (3, 17)),  # in a decoding task
    ("segfault", "cuda", (3, 17)),  # in a process that keeps a model
    ("abort", "cuda", (29,)),
    ("exit", "cpu", (8, 9)),  # neighbours in one call
    ("hang", "cuda", (11,)),
]


@pytest.mark.parametrize(("how", "device", "culprits"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_rows_that_kill_are_set_aside_and_no_others(media, tmp_path, nodes, how, device, culprits):
    steps = {"bad": ("Poison", {"frames": culprits, "how": how}), "good": ("Poison", {"column": "fine"})}
    wanted = order(media, tmp_path / "out", steps, {"steps": {"bad": {"device": device, "gpus": 0.0}}})
    Job(wanted).run()
    frames = table(tmp_path / "out", FRAMES)
    assert frames["tenfold"].to_pylist() == expected("tenfold", culprits)[0]
    assert frames["fine"].to_pylist() == expected("fine")[0]
    found = table(tmp_path / "out", ERRORS).to_pylist()
    assert [(e["media_id"], e["frame_index"], e["step"], e["kind"]) for e in found] == [
        ("clip.png", i, "bad", "Died") for i in culprits
    ]
    assert {e["input"] for e in found} == {str(media / "clip.png")} and len({e["fingerprint"] for e in found}) == 1
    words = {"kill": "SIGKILL", "segfault": "SIGSEGV", "abort": "SIGABRT", "exit": "exit code 3", "hang": "it hung"}
    assert all(words[how] in e["message"] for e in found)
    assert not Job(wanted).run().work.left


def test_a_clip_that_kills_is_one_piece(media, tmp_path, nodes):
    Job(order(media, tmp_path / "out", {"bad": ("PoisonClip", {"frames": (7,)})})).run()
    frames = table(tmp_path / "out", FRAMES)
    assert frames["tenfold"].to_pylist() == [*[None] * 30, *[0] * 5]
    assert table(tmp_path / "out", ERRORS).num_rows == 30


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_two_deaths_from_outside_cost_no_row(media, tmp_path, nodes, device):
    (tmp_path / "log").mkdir()
    steps = {"hit": ("Poison", {"frames": (12,), "how": "kill", "times": 2, "log": str(tmp_path / "log")})}
    Job(order(media, tmp_path / "out", steps, {"steps": {"hit": {"device": device, "gpus": 0.0}}})).run()
    assert len(list((tmp_path / "log").iterdir())) == 2
    assert table(tmp_path / "out", FRAMES)["tenfold"].to_pylist() == expected("tenfold")[0]
    assert not list((tmp_path / "out" / ERRORS).glob("*"))


def test_a_file_that_kills_in_the_second_pass_is_set_aside(media, tmp_path, nodes):
    Job(order(media, tmp_path / "out", {"sizes": ("PoisonFile", {"files": ("photo3.png",)})})).run()
    sizes = {row["media_id"]: row["rows"] for row in rows(tmp_path / "out", "sizes").to_pylist()}
    assert sizes == {"clip.png": 30, **{f"photo{i}.png": 1 for i in (0, 1, 2, 4)}}
    (line,) = table(tmp_path / "out", ERRORS).to_pylist()
    assert (line["media_id"], line["step"], line["kind"]) == ("photo3.png", "sizes", "Died")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_set_up_that_keeps_dying_stops_the_run_with_its_last_words(media, tmp_path, nodes, device):
    profile = {"steps": {"odd": {"device": device, "gpus": 0.0}}}
    wanted = order(media, tmp_path / "out", {"odd": ("StillBorn", {})}, profile)
    with pytest.raises(SetupError, match=r"(?s)3 processes died .* in the set-up of odd.*the model file is from"):
        Job(wanted).run()
