"""GPUs by NVML, through a module that the package brings; without a driver there are none."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from framekiln.device import Meter, nvml
from framekiln.planning.processes import resources

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
        self.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=3e9, total=16e9)


@pytest.fixture
def driver(monkeypatch):
    def install(name="NVIDIA GeForce RTX 5080"):
        monkeypatch.setitem(sys.modules, "pynvml", Driver(name))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


@pytest.mark.parametrize("module", ["pynvml", "ray._private.thirdparty.pynvml"])
def test_both_modules_have_every_function_that_is_called(module):
    nvml_module = importlib.import_module(module)
    assert [name for name in CALLED if not hasattr(nvml_module, name)] == []


def test_the_package_brings_the_module():
    needed = importlib.metadata.requires("framekiln") or []
    assert any(requirement.startswith("nvidia-ml-py") for requirement in needed)


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 5080", b"NVIDIA GeForce RTX 5080"])
def test_cards_are_counted_and_named(driver, name):
    driver(name)
    assert resources.gpu_names() == ["NVIDIA GeForce RTX 5080"] * 2
    assert resources.this_machine().gpus == 2


def test_of_the_cards_those_count_that_this_process_may_see(driver, monkeypatch):
    driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert resources.this_machine().gpus == 1


@pytest.mark.parametrize(
    ("visible", "seen"), [(None, [0, 1]), ("1", [1]), ("GPU-1,0", [1, 0]), ("", []), ("-1", []), ("7", [])]
)
def test_of_the_cards_those_are_watched_that_this_process_may_use(driver, monkeypatch, visible, seen):
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.visible_handles(nvml.library()) == seen


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
