"""A run with a model that torch cannot compile ends as any other, with a note; no child process compiles."""

from __future__ import annotations

import os
from functools import partial

import pytest
import torch

from framekiln.contract.output_names import FRAMES
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.runtime.recovery.child_tasks import StageCalls
from framekiln.runtime.run.record import read_run_record
from framekiln.weights.checksums import cache_root
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import order, rows
from tests.support.runs.plan_factory import plan, toy
from tests.support.runs.serial_engine import without_ray


def refusing_backend(graph, inputs):
    raise RuntimeError("no compiler here")


@pytest.mark.parametrize("works", [True, False])
def test_a_model_that_cannot_be_compiled_is_a_note(works, tmp_path, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "of the shell")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    backend = "eager" if works else refusing_backend
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    for number in range(3):
        photo(tmp_path / "in" / f"{number}.png", number)
    wanted = order(
        tmp_path / "in",
        tmp_path / "out",
        {"ten": ("Meeting", {})},
        missing_weights="dummy",
        settings=("ten.compile=true",),
    )
    with without_ray():
        Job(wanted).run()
    assert rows(tmp_path / "out", FRAMES)["tenfold"].to_pylist() == [0, 0, 0]
    store = Store(str(tmp_path / "out"))
    notes = read_run_record(store)["notes"]
    assert list(notes) == ([] if works else ["ten"])
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(cache_root() / "compiled")
    assert works or ("[FK-COMPILE-FAILED]" in notes["ten"] and "no compiler here" in notes["ten"])


def test_a_child_for_a_suspected_call_does_not_compile():
    step = plan({"hungry": toy("Hungry")}, {"steps": {"hungry": {"compile": True}}}).first[0]
    assert step.placement.compile
    assert not StageCalls.of(step, []).step.placement.compile
