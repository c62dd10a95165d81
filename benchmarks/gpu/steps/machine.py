"""Versions, and rates of copies, memory and arithmetic: what the other figures rest on."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from benchmarks.gpu.options import GpuOptions, Recorder
from benchmarks.made_rows import PHOTO, windows
from framekiln.device import wait
from framekiln.lab.measure.device_facts import bench_environment, peak_gb_s, peak_tflops
from framekiln.lab.measure.timed import TimeLimits, timed

_COPIED = 64 << 20  # bytes: a packet of pixels is of this order


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record the environment, then rates in GB/s, TFLOP/s and images a second of one core."""
    shared = Path("/dev/shm")  # Ray's object store; some containers have none
    free = {"dev_shm_gb": shutil.disk_usage(shared).free / 1e9 if shared.is_dir() else None}
    record(environment=bench_environment(options.device) | free)
    for precision in ("fp32",) if options.small else ("fp32", "tf32", "fp16", "fp16-sums", "bf16"):
        if precision != "tf32" or options.device != "cpu":
            record(matrix_products=precision, tflops=peak_tflops(precision, options.device))
    record(memory_gb_s=peak_gb_s(options.device))
    _host(options, record)
    if options.device != "cpu":
        _copies(options, record)


def _host(options: GpuOptions, record: Recorder) -> None:
    """Record what one core decodes and encodes of photos of 1 MP."""
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    (image,) = windows([PHOTO])
    image = image.copy()
    jpeg = simplejpeg.encode_jpeg(image, quality=90)
    work = {
        "decode JPEG": lambda: simplejpeg.decode_jpeg(jpeg),
        "decode JPEG at half size": lambda: simplejpeg.decode_jpeg(jpeg, min_height=400, min_width=640),
        "copy": image.copy,
    }
    for name, call in work.items():
        samples = timed(call, lambda: None, TimeLimits(seconds=options.seconds / 4))
        record(one_core=name, per_s=samples.rate(1))


def _copies(options: GpuOptions, record: Recorder) -> None:
    """Record copies between host and GPU, from and to pageable and page-locked memory."""
    import torch

    pageable = torch.zeros(_COPIED, dtype=torch.uint8)
    pinned, there = pageable.pin_memory(), torch.zeros(_COPIED, dtype=torch.uint8, device=options.device)
    for name, target, source in (
        ("up, pageable", there, pageable),
        ("up, pinned", there, pinned),
        ("down, pageable", pageable, there),
        ("down, pinned", pinned, there),
    ):
        copy = partial(target.copy_, source, non_blocking=True)
        samples = timed(copy, partial(wait, options.device), TimeLimits(seconds=options.seconds / 4), wait_each=True)
        record(copy=name, gb_s=samples.rate(_COPIED) / 1e9)
