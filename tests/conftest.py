"""What tests of many files share: a small real collection, one Ray, small models, and a machine without weights."""

from __future__ import annotations

import shutil

import cv2
import pytest

from samples.make import pan, photos, tone, write_clip

HELPERS = ("people_factory", "photo_factory", "report_reader", "segment_factory", "segmented_films")
pytest.register_assert_rewrite(*(f"tests.{name}" for name in HELPERS))  # what they assert is told as tests' own


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
def machines():
    """One Ray for all tests that can share it, since a start takes seconds: the machines it has."""
    from pipeline.engine import session

    with session(None) as found:
        yield found


@pytest.fixture
def framemill(machines, capsys):
    """The command line in this process, on the shared Ray: called with its words, it returns what it printed."""
    from pipeline.cli import main

    def call(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        said = capsys.readouterr()
        assert end.value.code == 0, said.err
        return said.out

    return call


@pytest.fixture(scope="module")
def one_thread():
    """Many small calls in torch, whose threads would only wait for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """CLIP of two small layers, quick enough for many calls; its weights are scaled up so that pictures differ."""
    import torch
    from safetensors.torch import save_file

    from tests.clip_factory import TINY, reference

    monkeypatch.setattr("stages.nets.clip.MODELS", TINY)
    monkeypatch.setattr("stages.categorize.MODELS", TINY)
    state = {name: value * 3 for name, value in reference(TINY["clip-vit-b32"]).state_dict().items()}
    state["logit_scale"] = torch.tensor(4.6)  # the trained model's: log 100
    save_file(state, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


@pytest.fixture(scope="session")
def sam_file(tmp_path_factory):
    """Random weights of a SAM 2.1 that a test can afford."""
    from tests.sam_weights import TOY, lively

    return lively(TOY, tmp_path_factory.mktemp("weights") / "toy.safetensors")


@pytest.fixture
def sam(sam_file, monkeypatch):
    """The file of these weights, while `toy` is one of the models that a stage may be told to take."""
    import torch

    from stages.nets.sam2 import MODELS
    from tests.sam_weights import TOY

    monkeypatch.setitem(MODELS, "toy", TOY)
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    yield sam_file
    torch.set_num_threads(threads)


@pytest.fixture
def no_weights(tmp_path, monkeypatch):
    """A machine without any weights, and no proxy between the test and a server of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FRAMEMILL_WEIGHTS", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def site(no_weights):
    """A server that has a file of weights to give, for such a machine."""
    from tests.fetch_factory import CONTENT
    from tests.range_server import serving

    with serving() as found:
        found.files["/toy.bin"] = CONTENT
        yield found
