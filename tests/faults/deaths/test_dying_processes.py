"""Rows that kill every process are set aside, and no others; a kill from outside loses nothing."""

from __future__ import annotations

import socket

import pytest

from framekiln.contract.errors import SetupError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.engine.local import engine as local_engine
from framekiln.engine.ray import death_watch
from framekiln.job import Job
from tests.support.media.collections_factory import collection
from tests.support.runs.engine_factory import request, rows, table

pytestmark = pytest.mark.slow


@pytest.fixture
def media(tmp_path):
    return collection(tmp_path / "in", 5, 30)


def order(folder, out, steps, profile=None, **choices):
    entries = {
        name: {"use": f"tests.faults.stages:{kind}", "with": settings} for name, (kind, settings) in steps.items()
    }
    return request(folder, out, {"steps": entries}, profile, **choices)


def expected(column, culprits=()):
    """The column of clip.png and of five photos."""
    numbers = [*range(30), *[0] * 5]
    return [None if n in culprits else 10 * n for n in numbers], column


WORDS = {
    "kill": "SIGKILL",
    "segfault": "SIGSEGV",
    "abort": "SIGABRT",
    "exit": "exit code 3",
    "hang": "timeout_s",
    "gpu": "it lost the GPU",
}
CASES = [  # how, where, the culprits
    ("kill", "cpu", (3, 17)),  # in a decoding task
    ("segfault", "cuda", (3, 17)),  # in a process that keeps a model
    ("abort", "cuda", (29,)),
    ("exit", "cpu", (8, 9)),  # neighbours in one call
    ("hang", "cuda", (11,)),
    ("gpu", "cuda", (21,)),
]


def place(how, device):
    """A placement; a stage that hangs has a timeout that other calls meet on a busy machine too."""
    return {"device": device, "gpus": 0.0} | ({"timeout_s": 5.0} if how == "hang" else {})


def check(out, column, how, culprits):
    """Each culprit is null and has a line in errors; no other is."""
    assert table(out, FRAMES)[column].to_pylist() == expected(column, culprits)[0]
    lines = [line for line in table(out, ERRORS).to_pylist() if line["step"] == column]
    keys = [(e["media_id"], e["frame_index"], e["kind"]) for e in lines]
    assert keys == [("clip.png", i, "Hung" if how == "hang" else "Died") for i in culprits]
    assert all(WORDS[how] in e["message"] for e in lines)
    assert all(e["input"].endswith("in/clip.png") for e in lines) and len({e["fingerprint"] for e in lines}) == 1


@pytest.mark.parametrize(
    ("engine", "ways"),
    [
        ("local", ("kill",)),
        pytest.param("local", ("gpu",), marks=pytest.mark.heavy),
        pytest.param("ray", ("kill", "gpu"), marks=pytest.mark.heavy),
    ],
    indirect=["engine"],
    ids=["local-kill", "local-gpu", "ray-kill+gpu"],
)
def test_what_kills_is_set_aside_and_nothing_else(engine, media, tmp_path, machines, ways):
    cases = {how: (device, culprits[:1]) for how, device, culprits in CASES if how in ways}
    steps = {how: ("Poison", {"frames": culprits, "how": how, "column": how}) for how, (_, culprits) in cases.items()}
    steps |= {"fine": ("Poison", {"column": "fine"}), "sizes": ("PoisonFile", {"files": ("photo3.png",)})}
    places = {how: place(how, device) | {"cpus": 0.25} for how, (device, _) in cases.items()}
    wanted = order(media, tmp_path / "out", steps, {"steps": places})
    Job(wanted).run()
    for how, (_, culprits) in cases.items():
        check(tmp_path / "out", how, how, culprits)
    assert table(tmp_path / "out", FRAMES)["fine"].to_pylist() == expected("fine")[0]
    sizes = {row["media_id"]: row["rows"] for row in rows(tmp_path / "out", "sizes").to_pylist()}
    assert sizes == {"clip.png": 30, **{f"photo{i}.png": 1 for i in (0, 1, 2, 4)}}
    (line,) = (line for line in table(tmp_path / "out", ERRORS).to_pylist() if line["step"] == "sizes")
    assert (line["media_id"], line["kind"]) == ("photo3.png", "Died")
    assert not Job(wanted).run().work.left


@pytest.mark.chaos
@pytest.mark.parametrize(("how", "device", "culprits"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_each_way_to_die(engine, media, tmp_path, machines, how, device, culprits):
    steps = {how: ("Poison", {"frames": culprits, "how": how, "column": how}), "fine": ("Poison", {"column": "fine"})}
    Job(order(media, tmp_path / "out", steps, {"steps": {how: place(how, device)}})).run()
    check(tmp_path / "out", how, how, culprits)
    assert table(tmp_path / "out", FRAMES)["fine"].to_pylist() == expected("fine")[0]


@pytest.mark.chaos
def test_a_clip_that_kills_is_one_piece(engine, media, tmp_path, machines):
    Job(order(media, tmp_path / "out", {"bad": ("PoisonClip", {"frames": (7,)})})).run()
    frames = table(tmp_path / "out", FRAMES)
    assert frames["tenfold"].to_pylist() == [*[None] * 30, *[0] * 5]
    assert table(tmp_path / "out", ERRORS).num_rows == 30


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.chaos)])
def test_two_deaths_from_outside_cost_no_row(engine, media, tmp_path, machines, device):
    (tmp_path / "log").mkdir()
    steps = {"hit": ("Poison", {"frames": (12,), "how": "kill", "times": 2, "log": str(tmp_path / "log")})}
    done = Job(order(media, tmp_path / "out", steps, {"steps": {"hit": {"device": device, "gpus": 0.0}}})).run()
    assert len(list((tmp_path / "log").iterdir())) == 2
    assert done.profile.lost == {socket.gethostname(): 2}
    assert table(tmp_path / "out", FRAMES)["tenfold"].to_pylist() == expected("tenfold")[0]
    assert not list((tmp_path / "out" / ERRORS).glob("*"))


@pytest.mark.heavy
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.chaos), "cuda"])
def test_a_set_up_that_keeps_dying_stops_the_run_with_its_last_words(engine, media, tmp_path, machines, device):
    profile = {"steps": {"odd": {"device": device, "gpus": 0.0}}}
    wanted = order(media, tmp_path / "out", {"odd": ("StillBorn", {})}, profile)
    with pytest.raises(SetupError) as error:
        Job(wanted).run()
    assert error.value.code == "FK-SETUP-KEEPS-DYING"
    for value in ("3 processes", "odd", "the model file is from the future"):
        assert value in str(error.value)


@pytest.mark.heavy
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.chaos)])
def test_processes_that_die_before_their_set_up_stop_the_run(media, tmp_path, machines, device, capfd, monkeypatch):
    for watch in (death_watch, local_engine):
        monkeypatch.setattr(watch, "_LEAST_S", 1.0)  # 20 s, of Ray a minute
        monkeypatch.setattr(watch, "_MOST_DEATHS", 4)  # 10: Ray takes seconds for each
    profile = {"steps": {"odd": {"device": device, "gpus": 0.0}}}
    with pytest.raises(SetupError) as error:
        Job(order(media, tmp_path / "out", {"odd": ("Unborn", {})}, profile)).run()
    assert error.value.code == "FK-PROCESSES-KILLED"
    printed = capfd.readouterr()
    assert "raylet" not in printed.out + printed.err, "Ray's own line on each death"
