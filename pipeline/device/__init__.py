"""Pixels and models on the device that runs them: the one owner of torch in `pipeline/`.

    copying  ->  pixels  ->  (the stage's model, made ready by `model`)

torch is imported where it is used: the driver plans without it.
"""

from pipeline.device.clock import clock_of, memory_gb
from pipeline.device.copying import Phase, untimed, upload
from pipeline.device.model import (
    Batches,
    device_name,
    dtype_of,
    is_broken_gpu,
    is_out_of_memory,
    limit_memory,
    overheard,
    peak_memory,
    ready,
    release_memory,
    seeded,
    wait,
)
from pipeline.device.pixels import LONGEST, Preparation, middle, prepare

__all__ = [
    "LONGEST",
    "Batches",
    "Phase",
    "Preparation",
    "clock_of",
    "device_name",
    "dtype_of",
    "is_broken_gpu",
    "is_out_of_memory",
    "limit_memory",
    "memory_gb",
    "middle",
    "overheard",
    "peak_memory",
    "prepare",
    "ready",
    "release_memory",
    "seeded",
    "untimed",
    "upload",
    "wait",
]
