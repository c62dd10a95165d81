"""Cards are found by NVML: by a module that the package brings, and without a driver there are none."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from pipeline import machines, nvml
from pipeline.device import meter_of

ASKED = (
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
"""All that Framemill asks."""


class Driver:
    """NVML as it answers on a machine with two cards."""

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
def test_both_modules_know_all_that_is_asked(module):
    found = importlib.import_module(module)
    assert [name for name in ASKED if not hasattr(found, name)] == []


def test_the_package_brings_the_module():
    needed = importlib.metadata.requires("framemill") or []
    assert any(one.startswith("nvidia-ml-py") for one in needed)


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 5080", b"NVIDIA GeForce RTX 5080"])
def test_cards_are_counted_and_named(driver, name):
    driver(name)
    assert machines.gpu_names() == ["NVIDIA GeForce RTX 5080"] * 2
    assert machines.this_machine().gpus == 2


def test_of_the_cards_those_count_that_this_process_may_see(driver, monkeypatch):
    driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machines.this_machine().gpus == 1


def test_without_a_driver_there_is_no_card(monkeypatch):
    def refuse():
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=refuse))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.library() is None and machines.gpu_names() == [] and machines.this_machine().gpus == 0


def test_memory_of_cards_is_known_by_their_uuid(driver):
    driver()
    meter = meter_of("cuda")
    meter.begin()
    assert meter._before == {"0": 3.0, "1": 3.0}
