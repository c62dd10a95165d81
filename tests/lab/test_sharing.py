"""A calibration is published without anything private, and only with figures that its GPU can reach."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from framekiln.contract.shipped_files import shipped
from framekiln.lab.calibrate.sharing import find_implausible, to_shared
from framekiln.lab.measure.device_facts import load_of_others
from framekiln.planning.gpu.calibration_file import (
    Learned,
    Line,
    StepFigures,
    default_path,
    read_calibration,
    write_calibration,
)
from framekiln.planning.sample import Sample
from tests.device.test_nvml import Driver
from tests.lab.gpu_law import DEVICE, GPUS, calibration, figures
from tests.support.machine.command_line import command

MADE = "2026-11-26T18:40:11+00:00"


def known(folder, **changes):
    """Write a calibration of a shipped step, of an own one and of one with random weights, with what runs learned."""
    shipped_one = figures(use="framekiln_stages.categorize:Categorize", flops=1e9)
    shipped_one.trials[0] = shipped_one.trials[0].model_copy(update={"subject": "/home/ann/p.yaml", "why": "host-7"})
    random = figures(use="framekiln_stages.faces:Faces", dummy=True)
    steps = {"categorize": shipped_one, "secret": figures(use="acme.secret:Model"), "faces": random}
    more = {"learned": {"secret": Learned(runs=1)}, "made": MADE}
    return write_calibration(calibration(steps).model_copy(update={**more, **changes}), folder)


def leaves(value):
    """Return all keys of nested JSON, without the names of steps, phases and items."""
    if isinstance(value, list):
        return set().union(*map(leaves, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(leaves(each) for name, each in value.items() if name not in ("phases", "items")))


def test_the_command_shares_what_was_measured_before_and_nothing_private(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver(DEVICE))
    known(tmp_path / "fits")
    done = command("calibrate", "--save", tmp_path / "fits", "--share", tmp_path / "new" / "card.json")
    assert done.returncode == 0, done.stderr
    assert "faces, secret" in done.stdout
    text = (tmp_path / "new" / "card.json").read_text()
    assert not [word for word in ("ann", "host-7", "acme", "secret", "18:40", str(tmp_path)) if word in text]
    of_device = {"device", "kind", "vram_gb", "context_gb", "made", "framekiln", "torch", "decode_rows_per_s", "format"}
    of_step = {"use", "settings", "precision", "compile", "dummy", "set_up_s", "weights_gb", "trials", "memory"}
    of_step |= {"largest_batch", "largest_is_limit", "fastest_batch", "chunks", "flops_per_row", "weights_bytes"}
    of_memory = {"base_gb", "per_row_gb", "per_megapixel_gb", "error_gb"}
    of_trial = {"batch", "megapixels", "calls", "seconds", "phases", "items", "peak_gb", "reserved_gb", "outcome"}
    kept = of_device | of_step | of_memory | of_trial | {"steps", "learned", "categorize"}
    assert leaves(json.loads(text)) <= kept
    result = read_calibration(tmp_path / "new" / "card.json")
    assert (result.made, result.learned, [*result.steps]) == ("2026-11-26", {}, ["categorize"])
    assert result.steps["categorize"].rate(8) == figures().rate(8) and to_shared(result) == result


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"device": "NVIDIA Unheard Of"}, "manifests/gpus.yaml"),
        ({"gpu_vram_gb": 17.0}, "17.0 GB"),  # of an RTX 4090, which has 24
        ({"gpu_vram_gb": 26.5}, "26.5 GB"),
        ({"device": "NVIDIA GeForce RTX 3080", "gpu_vram_gb": 10.7}, None),
        ({"device": "NVIDIA GeForce RTX 3080", "gpu_vram_gb": 12.8}, None),
        ({"device": "NVIDIA GeForce RTX 5060 Ti", "gpu_vram_gb": 8.5}, None),
        ({"device": "NVIDIA GeForce RTX 3060", "gpu_vram_gb": 17.0}, "17.0 GB"),
        ({"context_gb": 24.5}, "categorize took"),
        ({"torch": ""}, "torch"),
        ({"made": MADE}, "holds more"),
        ({"made": "2999-01-01"}, "2999"),
        ({"made": "yesterday"}, "yesterday"),
        ({"decode_rows_per_s": 2e5}, "200,000 rows"),
        ({"trials": [Sample(batch=32, seconds=10.0, megapixels=2e3)]}, "do not agree"),
        ({"learned": {"faces": Learned()}}, "holds more"),
        ({"steps": {}}, "no shipped step"),
        # 2.5 times what 165.2 TFLOP/s do in 2.625 ms, and 1,008 GB/s in 6.5 ms: 1.08 TFLOP and 16.4 GB
        ({"flops_per_row": 1.07e12}, None),
        ({"flops_per_row": 1.09e12}, "times as fast"),
        ({"weights_bytes": 16 * 10**9}, None),
        ({"weights_bytes": 17 * 10**9}, "times as fast"),
        ({"weights_gb": 26.0}, "categorize took"),
        ({"fastest_batch": 7}, "do not agree"),  # of no trial
        ({"trials": [Sample(batch=32, seconds=0.01, phases={"infer": 0.3})]}, "do not agree"),  # ms
        ({"trials": [Sample(batch=32, seconds=10.0, phases={"infer": -0.3})]}, "do not agree"),
        ({"memory": Line(base_gb=1000.0, error_gb=0.1)}, "do not agree"),  # MB
        ({"settings": "<script>"}, "holds '<'"),
        ({"torch": "/home/ann"}, "holds '/'"),
    ],
)
def test_figures_that_the_gpu_cannot_have_are_told(tmp_path, changes, problem):
    good = to_shared(read_calibration(known(tmp_path)))
    of_step = {name: value for name, value in changes.items() if name in StepFigures.model_fields}
    steps = {name: step.model_copy(update=of_step) for name, step in good.steps.items()}
    found = [*find_implausible(good.model_copy(update={"steps": steps, **changes}), GPUS)]
    assert len(found) == (problem is not None) and all(problem in each for each in found)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpu_vram_gb": 12.0}, "FK-CALIBRATION-IMPLAUSIBLE"),
        ({"kind": "cpu"}, "FK-CALIBRATION-OF-CPU"),
        ({"device": "another"}, "FK-NO-CALIBRATION"),
    ],
)
def test_what_may_not_be_shared_is_one_sentence_and_no_file(tmp_path, monkeypatch, changes, code):
    monkeypatch.setitem(sys.modules, "pynvml", Driver(DEVICE))
    known(tmp_path / "fits", **changes)
    done = command("calibrate", "--save", tmp_path / "fits", "--share", tmp_path / "card.json")
    assert (done.returncode, (tmp_path / "card.json").exists()) == (2, False) and code in done.stderr


def test_the_calibrations_of_others_are_plausible():
    for path in shipped("calibrations").glob("*.json"):
        shared = read_calibration(path)
        assert [*find_implausible(shared, GPUS)] == [] and path.name == default_path(shared.device).name, path


def test_processes_of_others_on_the_gpu_are_found(monkeypatch):
    driver = Driver(DEVICE)
    driver.nvmlDeviceGetUtilizationRates = lambda gpu: SimpleNamespace(gpu=40 * gpu)
    driver.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=7, usedGpuMemory=3e9)]
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    used = load_of_others("cuda")
    assert (used["gpu_percent"], used["gpu_processes_gb"]) == (40, {"7": 6.0})  # of both GPUs
    assert "gpu_percent" not in load_of_others("cpu")
