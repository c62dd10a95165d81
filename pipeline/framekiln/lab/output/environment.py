"""The machine, its software and its load, beside the figures of a bench."""

import os
from contextlib import suppress
from typing import Any

from framekiln.device.cores import usable_cores
from framekiln.device.nvml import library, text
from framekiln.lab.measure.device_facts import gpu_states
from framekiln.runtime.run.environment import environment, package_version

_MORE = ("transformers", "timm", "torchao", "onnxruntime", "tensorrt", "torch-tensorrt", "line-profiler")


def bench_environment(device: str) -> dict[str, Any]:
    """Return what figures depend on beside the model."""
    import torch

    known = environment()
    known["versions"] |= {name: package_version(name) for name in _MORE if package_version(name)}
    gpu = device != "cpu" and torch.cuda.is_available()
    return known | {
        "device": device,
        "gpu": torch.cuda.get_device_name(device) if gpu else None,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": usable_cores(),
        "machine_cores": os.cpu_count(),  # those that the load is of
        "load": os.getloadavg()[0],  # of one minute, before the first cell
        "clocks": gpu_states(),
    }


def _driver() -> str | None:
    """Return the version of NVIDIA's driver; None without one."""
    nvml = library()
    if nvml is not None:
        with suppress(Exception):
            return text(nvml.nvmlSystemGetDriverVersion())
    return None
