"""How much of a card a process takes: what calibration reads between calls, and never inside a timed one.

Gigabytes are 1e9 bytes, as everywhere in Framemill.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.nvml import handles, library, text


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The device that a process runs on."""

    name: str  # as its driver calls it; "cpu" for the processor
    total_gb: float | None = None  # None where it does not tell
    context_gb: float = 0.0  # taken by this process beside what torch's allocator holds


class Meter(Protocol):
    """Reads one process's memory on its device; it is pickled before it is used."""

    def begin(self) -> None:
        """Called first in the process, before anything touches the device."""

    def clear(self) -> None:
        """Give back what is cached and forget earlier peaks; called before each size of a batch."""

    def held(self) -> float | None:
        """GB that are allocated now; None where the device does not tell."""

    def peaks(self) -> tuple[float, float] | None:
        """GB that were allocated and reserved at most since the last `clear`."""

    def seen(self) -> Seen:
        """The device; called last, when all that calls load has been loaded."""


class NoMeter:
    """The processor's: it tells nothing."""

    def begin(self) -> None:
        """See `Meter`."""

    def clear(self) -> None:
        """See `Meter`."""

    def held(self) -> float | None:
        """See `Meter`."""
        return None

    def peaks(self) -> tuple[float, float] | None:
        """See `Meter`."""
        return None

    def seen(self) -> Seen:
        """See `Meter`."""
        return Seen(name="cpu")


class TorchMeter:
    """A GPU's, by the counters of torch's allocator.

    What a context takes beside them (its kernels, cuBLAS and cuDNN handles) is the growth of the card's used memory
    between the process's start and its end, less what the allocator holds: by NVML, which needs no context itself.
    Without NVML it is what the card has in use then, less what the allocator holds, as if nobody else used the card.
    """

    def __init__(self, device: str = "cuda") -> None:
        self._device = device
        self._before: Mapping[str, float] = {}

    def begin(self) -> None:
        """See `Meter`."""
        self._before = _used_gb()

    def clear(self) -> None:
        """See `Meter`."""
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def held(self) -> float | None:
        """See `Meter`."""
        import torch

        return torch.cuda.memory_allocated(self._device) / 1e9

    def peaks(self) -> tuple[float, float] | None:
        """See `Meter`."""
        import torch

        allocated, reserved = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
        return allocated(self._device) / 1e9, reserved(self._device) / 1e9

    def seen(self) -> Seen:
        """See `Meter`."""
        import torch

        known: Any = torch.cuda.get_device_properties(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        used, before = (total - free) / 1e9, 0.0
        uuid = str(getattr(known, "uuid", "")).removeprefix("GPU-")
        after = _used_gb()
        if uuid in self._before and uuid in after:
            used, before = after[uuid], self._before[uuid]
        context = used - before - torch.cuda.memory_reserved(self._device) / 1e9
        return Seen(name=str(known.name), total_gb=total / 1e9, context_gb=max(0.0, context))


def meter_of(device: str) -> Meter:
    """The meter of a device."""
    return NoMeter() if device == "cpu" else TorchMeter(device)


def _used_gb() -> dict[str, float]:
    """By UUID, what all processes use of each card; nothing where NVML does not answer."""
    nvml, found = library(), dict[str, float]()
    with suppress(Exception):  # a question that this card or this user is refused
        for handle in handles(nvml):
            name = text(nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-")
            found[name] = nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e9
    return found
