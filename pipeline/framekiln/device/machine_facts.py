"""Facts about this machine that decide whether torch can use its GPUs; `planning.machine` judges them.

NVML reports the GPUs and their driver without a CUDA context. torch reports its build in a process of its own, since
the driver plans without it.
"""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from framekiln.device.nvml import HANGS, find_visible, handles, library, silence

T = TypeVar("T")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI's vendor, and the first byte of the class of display controllers
_PROBE_S = 120.0  # torch loads in 2 to 20 s from a cold disk; a driver that hangs never answers
_PROBE = """
import json, torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda, "error": ""}
if torch.version.cuda:
    try:
        torch.cuda.init()
    except Exception as error:
        facts["error"] = (str(error).strip() or type(error).__name__).splitlines()[0]
print(json.dumps({**facts, "architectures": torch.cuda.get_arch_list()}))
"""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one part of it that MIG made."""

    name: str
    uuid: str = ""
    total_gb: float
    free_gb: float
    capability: tuple[int, int] | None = None  # None: the driver does not report it
    parts: "tuple[Gpu, ...] | None" = None  # parts made by MIG; None: MIG is off


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The installed torch."""

    version: str
    cuda: str | None  # CUDA version of the build; None for a build without CUDA
    architectures: tuple[str, ...] = ()  # architectures that it has code for, such as sm_90 or compute_90
    error: str = ""  # why it cannot use the GPU; empty if it can


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """The GPUs of this machine, by their driver."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None  # the newest CUDA version that it supports
    silence: str = ""  # why NVML does not respond, on a machine with an NVIDIA GPU
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    wsl: bool = False  # the driver is Windows' own (WSL)

    @property
    def seen(self) -> tuple[Gpu, ...]:
        """The GPUs and parts of GPUs that CUDA_VISIBLE_DEVICES leaves."""
        if self.visible is None:
            return self.gpus
        named = (*self.gpus, *(part for gpu in self.gpus for part in gpu.parts or ()))
        places = find_visible(self.visible, [gpu.uuid for gpu in named], len(self.gpus))
        return tuple(named[place] for place in places)


def read_machine() -> MachineFacts:
    """Return the driver's facts of this machine's GPUs; no GPUs if it does not respond."""
    nvml, visible = library(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if nvml is None:
        reason = silence()
        return MachineFacts(silence=reason if reason == HANGS or _is_on_bus() else "", visible=visible)
    version = _ask(nvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    return MachineFacts(
        gpus=_ask(lambda: tuple(_read_gpu(nvml, handle) for handle in handles(nvml)), ()),
        driver=_ask(nvml.nvmlSystemGetDriverVersion, ""),
        driver_cuda=(version // 1000, version % 1000 // 10) if version else None,
        visible=visible,
        wsl="microsoft" in platform.release().lower(),
    )


def read_torch() -> TorchBuild:
    """Return the facts of torch's build, and why it cannot use the GPU, if so. Takes some seconds."""
    command = [sys.executable, "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False)
        facts = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return TorchBuild(version="", cuda="", error=f"no answer within {_PROBE_S:.0f} s")
    except (IndexError, ValueError):
        last = (done.stderr.strip() or f"its process ended with {done.returncode}").splitlines()[-1]
        return TorchBuild(version="", cuda="", error=last)
    return TorchBuild(**{**facts, "architectures": tuple(facts["architectures"])})


def missing_build_tools() -> tuple[str, ...]:
    """Return what Triton misses to build its launcher at the first compiled call: gcc, Python.h, triton."""
    found = {
        "gcc": os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"),
        "Python.h": (Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h").is_file(),
        "triton": importlib.util.find_spec("triton"),
    }
    return tuple(name for name, is_there in found.items() if not is_there)


def _read_gpu(nvml: Any, handle: Any) -> Gpu:
    gpu = replace(_read_part(nvml, handle), name=nvml.nvmlDeviceGetName(handle))
    gpu = replace(gpu, capability=_ask(lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)), None))
    if not _ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0):
        return gpu
    parts = []
    for i in range(_ask(lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)):
        with suppress(Exception):  # no part has this number
            part = _read_part(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i))
            parts.append(replace(part, name=gpu.name, capability=gpu.capability))
    return replace(gpu, parts=tuple(parts))


def _read_part(nvml: Any, handle: Any) -> Gpu:
    memory, uuid = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetUUID(handle)
    return Gpu(name="", uuid=uuid, total_gb=memory.total / 1e9, free_gb=memory.free / 1e9)


def _ask(question: Callable[[], T], otherwise: T) -> T:
    """Return NVML's answer; None on an error of any class, since drivers and GPUs support different queries."""
    try:
        return question()
    except Exception:
        return otherwise


def _is_on_bus() -> bool:
    """Return whether an NVIDIA GPU is in this machine, by PCI's own list."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
            if vendor == _NVIDIA and kind.startswith(_DISPLAY):
                return True
    return False
