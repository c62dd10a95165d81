"""Weights that are replaced between the check before a run and their loading are noticed."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace

import pytest
import torch

from framekiln.contract.errors import SetupError, WeightsError
from framekiln.contract.placement import Placement
from framekiln.device import Batches, CallScheduler
from framekiln.output.object_store import Store
from framekiln.runtime import stage_setup
from framekiln.runtime.recovery.batch_limits import BatchLimits
from framekiln.runtime.stage_setup import set_up, set_up_stage
from framekiln.runtime.step_results import PacketCaller
from framekiln.runtime.worker import Worker
from framekiln.weights.lockfile import WeightsEntry
from tests.support.runs.plan_factory import plan, toy
from tests.toys import Checksum, Meeting


def test_a_file_that_was_replaced_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "net.pt"
    path.write_bytes(b"what was verified")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = WeightsEntry.model_construct(name="net", sha256=digest)
    set_up_stage(Checksum(), "crc", {"net": path}, Placement(), {"net": entry})
    path.write_bytes(b"what was swapped!")
    with pytest.raises(WeightsError) as error:
        set_up_stage(Checksum(), "crc", {"net": path}, Placement(), {"net": entry})
    assert error.value.code == "FK-WEIGHTS-REPLACED"


def test_a_node_whose_torch_cannot_use_its_gpu_stops_the_run(monkeypatch):
    def refuse(gigabytes):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(stage_setup.device, "watch_gpu", lambda _: None)
    monkeypatch.setattr(stage_setup.device, "limit_memory", refuse)
    step = plan({"ten": toy("Meeting")}, missing_weights="dummy").first[0].placed(device="cuda", vram_gb=1.0)
    with pytest.raises(SetupError) as error:
        stage_setup.share_gpu([step])
    assert error.value.code == "FK-GPU-UNUSABLE"


@pytest.mark.parametrize(("device", "watched"), [("cpu", []), ("cuda", ["cuda"])])
def test_a_gpu_is_watched_also_if_no_step_states_its_memory(device, watched, monkeypatch):
    asked = []
    monkeypatch.setattr(stage_setup.device, "configure_gpu", lambda: None)
    monkeypatch.setattr(stage_setup.device, "watch_gpu", asked.append)
    step = plan({"ten": toy("Meeting")}, missing_weights="dummy").first[0].placed(device=device)
    stage_setup.share_gpu([step])
    assert asked == watched


@pytest.mark.parametrize(("learned", "expected"), [({}, 8), ({"items": 2}, 2)])
def test_chunks_that_earlier_runs_learned_hold_against_the_profile(learned, expected):
    step = plan({"hungry": toy("Hungry")}, {"steps": {"hungry": {"chunks": {"items": 8}}}}).first[0]
    PacketCaller(step, BatchLimits(chunks=learned))
    set_up(step)
    assert step.stage.chunk_sizes["items"] == expected


def test_a_model_is_set_up_by_the_thread_that_calls_it(tmp_path, monkeypatch):
    """Check what CUDA and torch's compiler keep for each thread: plans of convolutions, limits."""
    compiled = {"steps": {"ten": {"compile": True}}}  # so that the model has a thread of its own on the CPU too
    step = plan({"ten": toy("Meeting")}, compiled, missing_weights="dummy").first[0]
    threads = []

    def set_up(stage, weights, placement):
        threads.append(threading.current_thread())
        plain = replace(placement, compile=False)
        stage._batches = Batches(lambda rows: (threads.append(threading.current_thread()), rows)[1], plain)

    monkeypatch.setattr(Meeting, "setup", set_up)
    worker = Worker([step], Store(str(tmp_path)))
    with worker.packet():
        step.stage._batches(torch.ones(3))
    assert len(threads) == 2 and threads[0] is threads[1] is not threading.current_thread()
    Batches.calls.close()
    Batches.calls = CallScheduler()


@pytest.mark.parametrize(("error", "told"), [(SystemExit(0), "SystemExit: 0"), (ValueError("\udcff"), r"\udcff")])
def test_whatever_a_setup_raises_is_a_setup_error(error, told, monkeypatch):
    def end(*_):
        raise error

    monkeypatch.setattr(Checksum, "setup", end)
    with pytest.raises(SetupError) as caught:
        set_up_stage(Checksum(), "crc", {}, Placement())
    assert caught.value.code == "FK-STAGE-SETUP" and told in str(caught.value)
