"""Pixels and models on their device; the only package of `pipeline/` that imports torch.

    preprocessing  ->  the stage's model, prepared by `model.ready`

The driver plans without torch, so modules that it imports take it from here: `lazy`.
"""

from framekiln.device.call_queue import keep_while_used
from framekiln.device.call_scheduler import CallScheduler
from framekiln.device.compiled import take_failures
from framekiln.device.failures import is_broken_gpu, is_out_of_memory, message_of, release_memory
from framekiln.device.flops import flops_by_module, flops_of, modules_of, traffic_of, weights_bytes
from framekiln.device.kernels import CountedCall, count_call, made_weights
from framekiln.device.lazy import torch
from framekiln.device.model import (
    Batches,
    configure_gpu,
    counted_calls,
    device_name,
    dtype_of,
    limit_memory,
    ready,
    recorded_calls,
    seeded,
    summed,
    wait,
)
from framekiln.device.preprocessing import LONGEST, Phase, middle, normalized, prepare, untimed, upload, upload_all
from framekiln.device.resizing import Preparation, fit_mixed
from framekiln.device.timing import DeviceMemory, Meter, clock_of, memory_gb

__all__ = [
    "LONGEST",
    "Batches",
    "CallScheduler",
    "CountedCall",
    "DeviceMemory",
    "Meter",
    "Phase",
    "Preparation",
    "clock_of",
    "configure_gpu",
    "count_call",
    "counted_calls",
    "device_name",
    "dtype_of",
    "fit_mixed",
    "flops_by_module",
    "flops_of",
    "is_broken_gpu",
    "is_out_of_memory",
    "keep_while_used",
    "limit_memory",
    "made_weights",
    "memory_gb",
    "message_of",
    "middle",
    "modules_of",
    "normalized",
    "prepare",
    "ready",
    "recorded_calls",
    "release_memory",
    "seeded",
    "summed",
    "take_failures",
    "torch",
    "traffic_of",
    "untimed",
    "upload",
    "upload_all",
    "wait",
    "weights_bytes",
]
