"""GPUs by NVML, through a module that the package brings; without a driver there are none."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from types import SimpleNamespace

import pytest

from framekiln.device import Meter, nvml
from framekiln.device.machine_facts import Gpu, read_machine
from framekiln.planning.processes import resources
from framekiln.profiling import node_metrics
from framekiln.profiling.node_metrics import NodeMetrics

CALLED = (
    "nvmlInit",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "NVML_TEMPERATURE_GPU",
)
"""The functions that Framekiln calls."""


class Driver:
    """NVML on a machine with two GPUs."""

    def __init__(self, name):
        self.nvmlInit, self.nvmlDeviceGetCount = lambda: None, lambda: 2
        self.nvmlDeviceGetHandleByIndex = lambda i: i
        self.nvmlDeviceGetName = lambda handle: name
        self.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
        self.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=3e9, free=13e9, total=16e9)
        self.nvmlSystemGetDriverVersion = lambda: "570.86.15"
        self.nvmlSystemGetCudaDriverVersion_v2 = lambda: 12080


@pytest.fixture
def driver(monkeypatch):
    def install(name="NVIDIA GeForce RTX 5080"):
        monkeypatch.setitem(sys.modules, "pynvml", Driver(name))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def test_the_module_has_every_function_that_is_called():
    assert [name for name in CALLED if not hasattr(importlib.import_module("pynvml"), name)] == []


def test_the_package_brings_the_module():
    needed = importlib.metadata.requires("framekiln") or []
    assert any(requirement.startswith("nvidia-ml-py") for requirement in needed)


def test_cards_are_counted_and_named(driver):
    driver()
    assert resources.gpu_names() == ["NVIDIA GeForce RTX 5080"] * 2
    assert resources.this_machine().gpus == 2


@pytest.mark.parametrize(
    ("visible", "seen"), [("1", [1]), ("GPU-0", [0]), ("1, GPU-0", [1, 0]), ("", []), ("-1", []), ("MIG-0", [0, 1])]
)
def test_of_the_cards_those_are_read_that_a_run_may_use(driver, monkeypatch, visible, seen):
    driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(node_metrics, "read_gpu", lambda nvml, handle, figures: {"use_percent": handle})
    gpus = NodeMetrics("0", os.getpid(), nvml.library()).read()["gpus"]
    assert [gpu["use_percent"] for gpu in gpus] == seen
    assert resources.this_machine().gpus == len(seen) or "MIG" in visible


@pytest.mark.parametrize(
    ("visible", "seen"),
    [(None, [0, 1]), ("1", [1]), ("GPU-1,0", [1, 0]), ("", []), ("-1", []), ("7", []), ("0,7,1", [0])],
)
def test_of_the_cards_those_are_watched_that_this_process_may_use(driver, monkeypatch, visible, seen):
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.visible_handles(nvml.library()) == seen and len(resources.gpu_names()) == len(seen)


def test_without_a_driver_there_is_no_card(monkeypatch):
    def refuse():
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=refuse))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.library() is None and resources.gpu_names() == [] and resources.this_machine().gpus == 0


def test_memory_of_cards_is_known_by_their_uuid(driver):
    driver()
    meter = Meter("cuda")
    meter.begin()
    assert meter._before == {"0": 3.0, "1": 3.0}


def test_a_machine_is_read_also_where_a_driver_does_not_answer_all_questions(driver):
    driver()
    machine = read_machine()
    card = Gpu(name="NVIDIA GeForce RTX 5080", uuid="GPU-1", total_gb=16.0, free_gb=13.0)
    assert machine.gpus[1] == card and (machine.driver, machine.driver_cuda) == ("570.86.15", (12, 8))


def test_parts_of_a_gpu_that_mig_made_have_memory_of_their_own(driver, monkeypatch):
    driver()
    mig = {
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMigMode": lambda handle: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda handle, i: {2: "part"}[i],
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(free=4e9, total=5e9 if handle == "part" else 40e9),
    }
    for name, answer in mig.items():
        monkeypatch.setattr(sys.modules["pynvml"], name, answer, raising=False)
    (gpu,) = read_machine().gpus
    assert (gpu.total_gb, gpu.capability) == (40.0, (9, 0))
    assert [(part.uuid, part.total_gb) for part in gpu.parts] == [("GPU-part", 5.0)]
