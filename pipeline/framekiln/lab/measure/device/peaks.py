"""Measured limits of a device: the rates of a large matrix product and of a large copy.

A model's rate is then a share of what this device reaches in this state, and not of a data sheet. The fastest of some
calls counts: other work on the machine makes calls slower, never faster.
"""

from __future__ import annotations

from functools import cache

from framekiln.device import wait
from framekiln.lab.measure.precision import arithmetic, dtype_of
from framekiln.lab.measure.timed import TimeLimits, timed

_LIMITS = TimeLimits(warmup=1, least=5, wanted=5, seconds=0.1, patience_s=3.0, slow_s=0.2)
_SIDES = {"cpu": 512, "cuda": 8192}  # of square matrices; without 16-bit arithmetic a CPU takes seconds for 1,024
_COPIED = {"cpu": 2**27, "cuda": 2**30}  # bytes, several times the largest cache


@cache
def peak_tflops(precision: str, device: str) -> float | None:
    """Return the TFLOP/s of a matrix product in a precision; None for 8-bit integers.

    Compared with a linear layer in that type only: what a device does in sparse or 8-bit formats is not measured. On a
    CPU, `torch.matmul` in fp16 takes another kernel than models do: 0.0025 TFLOP/s beside 0.019 on two cores.
    """
    import torch
    from torch.nn.functional import linear

    if precision.startswith("int8"):
        return None
    side, name = _SIDES[_kind(device)], precision.removesuffix("-autocast")
    left = torch.rand(side, side, device=device).to(dtype_of(name))
    with torch.inference_mode(), arithmetic(name, device):
        seconds = timed(lambda: linear(left, left), lambda: wait(device), _LIMITS, wait_each=True).seconds
    return 2 * side**3 / min(seconds) / 1e12


@cache
def peak_gb_s(device: str) -> float:
    """Return the GB/s that a large copy on a device reads and writes together."""
    import torch

    source = torch.zeros(_COPIED[_kind(device)], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), lambda: wait(device), _LIMITS, wait_each=True).seconds
    return 2 * source.nbytes / min(seconds) / 1e9


def _kind(device: str) -> str:
    return "cpu" if device == "cpu" else "cuda"
