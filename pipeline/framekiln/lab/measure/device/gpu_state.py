"""State of the GPUs while a model is measured: clocks, throttling, temperature, power. Clocks are never set."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from framekiln.device.nvml import handles, library

_REASONS = {  # NVML's bits of reasons for a lower clock, from nvml.h; idle and set clocks are no throttling
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "software thermal slowdown": 0x20,
    "hardware thermal slowdown": 0x40,
    "hardware power brake": 0x80,
}


def gpu_states(nvml: Any = None) -> list[dict[str, Any]]:
    """Return a sample of each GPU that NVML lists; a figure that it does not give is left out.

    Args:
        nvml: the module pynvml, or one with its interface; None for the installed one.
    """
    nvml = nvml or library()
    return [_state(nvml, handle) for handle in handles(nvml)]


def _state(nvml: Any, handle: Any) -> dict[str, Any]:
    figures: dict[str, Callable[[], Any]] = {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "most_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "use_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "throttled": lambda: throttling(_reasons(nvml, handle)),
    }
    state: dict[str, Any] = {}
    for name, read in figures.items():
        with suppress(Exception):  # this GPU or this driver does not give it
            state[name] = read()
    return state


def throttling(bits: int) -> list[str]:
    """Return the reasons why a GPU runs below the clock that it could have."""
    return [name for name, bit in _REASONS.items() if bits & bit]


def _reasons(nvml: Any, handle: Any) -> int:
    read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))
