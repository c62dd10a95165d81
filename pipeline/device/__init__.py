"""Pixels and models on their device; the only package of `pipeline/` that imports torch.

    transfer  ->  preprocessing  ->  the stage's model, prepared by `model.ready`

torch is imported inside functions, because the driver plans without it.
"""

from pipeline.device.flops import flops_of, weights_bytes
from pipeline.device.memory import DeviceMemory, Meter, meter_of
from pipeline.device.model import (
    Batches,
    device_name,
    disable_tf32,
    dtype_of,
    is_broken_gpu,
    is_out_of_memory,
    limit_memory,
    ready,
    recorded_calls,
    release_memory,
    seeded,
    wait,
)
from pipeline.device.preprocessing import LONGEST, Preparation, middle, prepare
from pipeline.device.timing import clock_of, memory_gb
from pipeline.device.transfer import Phase, untimed, upload

__all__ = [
    "LONGEST",
    "Batches",
    "DeviceMemory",
    "Meter",
    "Phase",
    "Preparation",
    "clock_of",
    "device_name",
    "disable_tf32",
    "dtype_of",
    "flops_of",
    "is_broken_gpu",
    "is_out_of_memory",
    "limit_memory",
    "memory_gb",
    "meter_of",
    "middle",
    "prepare",
    "ready",
    "recorded_calls",
    "release_memory",
    "seeded",
    "untimed",
    "upload",
    "wait",
    "weights_bytes",
]
