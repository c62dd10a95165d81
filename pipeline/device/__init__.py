"""Pixels and models on the device that runs them: the one owner of torch in `pipeline/`.

    copying  ->  pixels  ->  (the stage's model, made ready by `model`)

torch is imported where it is used: the driver plans without it.
"""

from pipeline.device.clock import clock_of, memory_gb
from pipeline.device.copying import Phase, untimed, upload
from pipeline.device.counting import flops_of, weights_bytes
from pipeline.device.meter import Meter, NoMeter, Seen, TorchMeter, meter_of
from pipeline.device.model import (
    Batches,
    device_name,
    dtype_of,
    is_broken_gpu,
    is_out_of_memory,
    limit_memory,
    overheard,
    plain_convolutions,
    ready,
    release_memory,
    seeded,
    wait,
)
from pipeline.device.pixels import LONGEST, Preparation, middle, prepare

__all__ = [
    "LONGEST",
    "Batches",
    "Meter",
    "NoMeter",
    "Phase",
    "Preparation",
    "Seen",
    "TorchMeter",
    "clock_of",
    "device_name",
    "dtype_of",
    "flops_of",
    "is_broken_gpu",
    "is_out_of_memory",
    "limit_memory",
    "memory_gb",
    "meter_of",
    "middle",
    "overheard",
    "plain_convolutions",
    "prepare",
    "ready",
    "release_memory",
    "seeded",
    "untimed",
    "upload",
    "wait",
    "weights_bytes",
]
