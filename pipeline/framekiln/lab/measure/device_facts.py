"""Facts of the machine for a bench's figures: software and load, GPU state, energy and measured limits.

Clocks are read and never set. A model's rate is a share of what this device reaches now, not of a data sheet. The
references are the rates of a large matrix product and of a large copy. The fastest of some calls counts: other work on
the machine only makes calls slower.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import psutil

from framekiln.device import torch, type_of, wait
from framekiln.device.cores import usable_cores
from framekiln.device.nvml import library, visible_handles
from framekiln.lab.measure.precision import arithmetic, layer_precision
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.profiling.node_metrics import GPU_FIGURES, GpuMetrics, read_gpu
from framekiln.runtime.run.environment import environment, package_version

_MORE = ("transformers", "timm", "torchao", "onnxruntime", "tensorrt", "torch-tensorrt", "line-profiler")
_REASONS = {  # NVML's bits of reasons for a lower clock, from nvml.h; idle and set clocks are no throttling
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "software thermal slowdown": 0x20,
    "hardware thermal slowdown": 0x40,
    "hardware power brake": 0x80,
}
_LISTEN_S = 0.25  # s; the system counts CPU time in hundredths of a second
LEAST_S = 0.5  # s; NVML updates the counter every 20 to 100 ms, so a shorter loop could err by a tenth or more
_LIMITS = TimeLimits(warmup=1, least=5, wanted=5, seconds=0.1, patience_s=3.0, slow_s=0.2)
_SIDES = {"cpu": 512, "cuda": 8192}  # sides of square matrices; a CPU without 16-bit arithmetic takes seconds for 1,024
_COPIED = {"cpu": 2**27, "cuda": 2**30}  # bytes, several times the largest cache


def bench_environment(device: str) -> dict[str, Any]:
    """Return the facts that figures depend on, besides the model."""
    known, driver, nvml = environment(), None, library()
    known["versions"] |= {name: package_version(name) for name in _MORE if package_version(name)}
    gpu = device != "cpu" and torch.cuda.is_available()
    with suppress(Exception):  # without NVML, too
        driver = str(nvml.nvmlSystemGetDriverVersion())
    return known | {
        "device": device,
        "gpu": torch.cuda.get_device_name(device) if gpu else None,
        "driver": driver,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": usable_cores(),
        "others": load_of_others(device),
        "clocks": gpu_states(),
    }


def load_of_others(device: str) -> dict[str, Any]:
    """Return other programs' load while this one waits: cores of the machine, and the GPUs that it may use.

    Call it before this process uses a GPU. Programs that draw a display are missing in `gpu_processes_gb` (by process
    id), but count in `gpu_percent`.
    """
    cores = psutil.cpu_count() or 1  # of the machine: a container may use fewer
    used: dict[str, Any] = {"cores": psutil.cpu_percent(_LISTEN_S) / 100 * cores, "machine_cores": cores}
    if device == "cpu":
        return used
    gpus = GpuMetrics(library(), os.environ.get("CUDA_VISIBLE_DEVICES")).read()
    processes = {str(pid): gb for pid, gb in gpus["gpu_processes_gb"].items() if pid != os.getpid()}
    percents = [round(gpu["use_percent"]) for gpu in gpus["gpus"] if gpu["use_percent"] is not None]
    return used | {"gpu_percent": max(percents, default=0), "gpu_processes_gb": processes}


def gpu_states() -> list[dict[str, Any]]:
    """Return a sample of each GPU that this process may use, without figures that NVML does not support."""
    nvml = library()
    figures: dict[str, Callable[[Any, Any], Any]] = {
        "sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "most_sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        **{name: GPU_FIGURES[name] for name in ("temperature_c", "power_w", "use_percent")},
        "throttled": _list_throttling,
    }
    return [read_gpu(nvml, gpu, figures) for gpu in visible_handles(nvml)]


def _list_throttling(nvml: Any, handle: Any) -> list[str]:
    read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    bits = int((read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))
    return [name for name, bit in _REASONS.items() if bits & bit]


class EnergyCounter:
    """The energy counter of one device; a CPU has none. Tests pass their own `nvml`, and a `uuid` that it knows."""

    def __init__(self, device: str, nvml: Any = None, uuid: str | None = None) -> None:
        self._device, self._uuid, self._nvml = device, uuid, None if device == "cpu" else nvml or library()
        self._before: float | str = ""

    def mark(self) -> None:
        """Note the joules counted so far."""
        self._before = self._read()

    def since_mark(self, seconds: float) -> tuple[float | None, str]:
        """Return the joules since the mark, for a loop of this length; None and the reason if there are none."""
        before, after = self._before, self._read()
        if isinstance(before, str) or isinstance(after, str):
            return None, str(after)
        why = f"a loop of {seconds:.2f} s is too short for the GPU's counter; {LEAST_S:g} s are enough"
        return (None, why) if seconds < LEAST_S else (after - before, "")

    def _read(self) -> float | str:
        """Return the joules that the device has counted, or the reason why it counts none."""
        if self._nvml is None:
            return "only a GPU counts its energy" if self._device == "cpu" else "NVML is missing"
        try:
            uuid = self._uuid or f"GPU-{torch.cuda.get_device_properties(self._device).uuid}"
            gpu = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3
        except Exception as error:  # NVML errors of any class: GPUs before Volta, parts of a GPU, or no permission
            return f"NVML does not count the GPU's energy: {error}"


@cache
def peak_tflops(precision: str, device: str) -> float | None:
    """Return the TFLOP/s of a matrix product in a precision; None for 8-bit integers.

    For a linear layer in that type only: sparse and 8-bit formats are not measured. On a CPU, `torch.matmul` in fp16
    uses another kernel than models: 0.0025 TFLOP/s instead of 0.019 on two cores.
    """
    from torch.nn.functional import linear

    if (name := layer_precision(precision)) is None:
        return None
    side = _SIDES[device.partition(":")[0]]
    left = torch.rand(side, side, device=device).to(type_of(name))
    with torch.inference_mode(), arithmetic(name, device):
        seconds = timed(lambda: linear(left, left), lambda: wait(device), _LIMITS, wait_each=True).seconds
    return 2 * side**3 / min(seconds) / 1e12


@cache
def peak_gb_s(device: str) -> float:
    """Return the GB/s (read and written together) of a large copy on a device."""
    source = torch.zeros(_COPIED[device.partition(":")[0]], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), lambda: wait(device), _LIMITS, wait_each=True).seconds
    return 2 * source.nbytes / min(seconds) / 1e9
