"""Energy of a loop of calls, by the total that NVML counts for a GPU since its driver was loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from framekiln.device.nvml import library

LEAST_S = 0.5  # NVML renews the counter every 20 to 100 ms, so a shorter loop would be off by a tenth or more


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Joules of a loop, or why there are none."""

    joules: float | None = None
    why: str = ""


class EnergyCounter:
    """The counter of one device.

    Args:
        device: of torch; a CPU has no counter.
        nvml: the module pynvml, or one with its interface; None for the installed one.
        uuid: of the GPU, as NVML names it; None for torch's own.
    """

    def __init__(self, device: str, nvml: Any = None, uuid: str | None = None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._before: float | None = None
        self._why = "only a GPU counts its energy"
        if device == "cpu":
            return
        self._nvml = nvml or library()
        if self._nvml is None:
            self._why = "NVML is missing"
            return
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid or _uuid(device))
        except Exception as error:  # NVML's own, of any class: a part of a GPU, or no permission
            self._why = f"NVML does not know the GPU: {error}"

    def mark(self) -> None:
        """Note the joules so far."""
        self._before = self._read()

    def since_mark(self, seconds: float) -> Energy:
        """Return the energy since the mark, in a loop that took so long."""
        after = self._read()
        if self._before is None or after is None:
            return Energy(why=self._why)
        if seconds < LEAST_S:
            return Energy(why=f"a loop of {seconds:.2f} s is too short for the GPU's counter; {LEAST_S:g} s are enough")
        return Energy(joules=after - self._before)

    def _read(self) -> float | None:
        if self._handle is None:
            return None
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except Exception as error:  # of NVML, of any class: GPUs before Volta, and parts of GPUs
            self._why, self._handle = f"the GPU does not count it: {error}", None
            return None


def _uuid(device: str) -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
