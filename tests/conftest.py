"""Fixtures that tests of several packages share: a small real collection, one Ray, a machine without weights.

Fixtures of one package's tests lie in that folder's conftest.py. tests/README.md says which test runs when.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from functools import cache

import hypothesis
import pytest
import typer

if "PYTEST_XDIST_WORKER" in os.environ:  # tests share the cores: threads of torch and numpy would wait for each other
    os.environ["OMP_NUM_THREADS"] = "1"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # else hundreds of processes would each compile all modules
    sys.dont_write_bytecode = False
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a call without a session fails: it would start a Ray that stays for ever

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a script's background: runs would inherit it, deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

import cv2

from framekiln.device.cores import usable_cores
from framekiln.media.samples import pan, photos, tone, write_clip

gc.disable()  # while tests are collected: a sixth of that time, and modules and tests are no garbage
pytest.register_assert_rewrite("tests.support")  # their asserts explain themselves too

# An example that is slow on a busy machine is no failure. Each run tries the same examples, so that no test fails by
# chance; `--hypothesis-profile random` tries others.
_UNTIMED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "print_blob": True}
hypothesis.settings.register_profile("random", **_UNTIMED)
hypothesis.settings.register_profile("untimed", derandomize=True, **_UNTIMED)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items):
    """Mark tests on the shared Ray as slow: they run one after the other, with the machine to themselves."""
    for item in items:
        if {"machines", "shared_ray"} & set(item.fixturenames):
            item.add_marker("slow")
    # A task that writes to an output that is gone keeps its core until Ray ends, so these tests come last.
    items.sort(key=lambda item: item.path.name == "test_disk.py")


def pytest_collection_finish():
    """Search for garbage from now on."""
    gc.enable()


@pytest.fixture(autouse=True)
def ordinary_priority():
    """See `tests.support.media.own_thread`."""
    before = os.sched_getscheduler(0)
    yield
    assert os.sched_getscheduler(0) == before, "this process keeps the cores from all others"


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    """Two photos of different size and a clip of 12 frames with sound."""
    folder = tmp_path_factory.mktemp("collection")
    for name in ("flower.jpg", "grace_hopper.jpg"):
        shutil.copyfile(photos()[name], folder / name)
    image = cv2.cvtColor(cv2.imread(str(photos()["grace_hopper.jpg"])), cv2.COLOR_BGR2RGB)
    write_clip(folder / "pan.mp4", pan(image, 12), tone(12 / 25, 440))
    return folder


@pytest.fixture(scope="session")
def shared_ray():
    """The machines of one Ray, which all tests share since a start takes seconds."""
    from framekiln.engine.ray.session import session

    with session(None) as nodes:
        yield nodes
        # Its questions to a Ray that ends would end this process, without a message.
        assert "deaths" not in {thread.name for thread in threading.enumerate()}, "a test has not closed its Engine"


@pytest.fixture
def machines(request):
    """The machines of a test's runs: those of a Ray for `engine` ray and `on_ray`, else this one."""
    for name in {"engine", "on_ray", "local"} & set(request.fixturenames):
        request.getfixturevalue(name)  # which sets the variable
    if os.environ.get("FRAMEKILN_ENGINE") == "ray":
        return request.getfixturevalue("shared_ray")
    from framekiln.planning.processes.resources import this_machine

    return [this_machine()]


@pytest.fixture(scope="session", autouse=True)
def one_process():
    """Runs of this process without Ray take one more process, since each costs half a second.

    Calls of the command line in this process share one parser, since to make it takes 11 ms.
    """
    parser = cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", parser)
        patch.setattr("typer.testing._get_command", parser)
        patch.setattr("framekiln.engine.local.engine.usable_cores", lambda: 1)
        yield


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.heavy)])  # a Ray takes most of the time
def engine(request, monkeypatch):
    """Each of the two engines, for runs of this process and of those that it starts."""
    monkeypatch.setenv("FRAMEKILN_ENGINE", request.param)
    monkeypatch.setattr("framekiln.engine.local.engine.usable_cores", usable_cores)
    return request.param


@pytest.fixture
def on_ray(monkeypatch):
    """Runs on Ray, however small."""
    monkeypatch.setenv("FRAMEKILN_ENGINE", "ray")


@pytest.fixture
def local(monkeypatch):
    """Runs without Ray: of what an engine has no part in."""
    monkeypatch.setenv("FRAMEKILN_ENGINE", "local")


@pytest.fixture
def serial(local):
    """Runs within this process: of what no process of an engine has a part in, since each costs a second."""
    from tests.support.runs.serial_engine import without_ray

    with without_ray():
        yield


@pytest.fixture
def framekiln(machines, capsys):
    """The command line in this process: a call takes its words and returns its output."""
    from framekiln.cli.app import main

    def call(*words, code=0):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        output = capsys.readouterr()
        assert end.value.code == code, output.err
        return output.out

    return call


@pytest.fixture
def no_weights(tmp_path, monkeypatch):
    """A machine without any weights, and no proxy between the test and a server of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FRAMEKILN_WEIGHTS", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
