"""Roofline scaling: the change of a model's time from one GPU to another, and its assumption.

A call is bound by arithmetic or by the GPU's memory; measurements do not tell which, kernel by kernel. So the estimate
takes the slower of the two ratios, and the interval reaches to the other one. Where the model used little of the GPU,
something else was the limit and may take as long on any GPU. Then the interval also reaches to the unchanged time.
"""

from __future__ import annotations

from dataclasses import dataclass

from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.planning.gpu.calibration_file import StepFigures

LITTLE = 0.3  # share of the roofline below which something else counts as the limit; a first setting


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Factors of a model's time; `quick` and `slow` are the ends of the plausible interval."""

    central: float
    quick: float
    slow: float
    assumption: str


def efficiency(figures: StepFigures, batch: int, seconds: float, gpu: GpuSpecs) -> float | None:
    """Return the share of the roofline that a model reached: the shortest possible time of a row by its actual time.

    The shortest time is the longer of two: FLOPs by the GPU's rate, and the bytes of the weights, read once a call, by
    its bandwidth. Reads of activations are not counted, so a model bound by them seems less efficient than it is.

    Returns:
        0 to 1 (more if the GPU's clock is above its data sheet's); None if FLOPs were not counted.
    """
    if figures.flops_per_row is None or seconds <= 0:
        return None
    arithmetic = figures.flops_per_row / (gpu.tflops(figures.precision) * 1e12)
    memory = (figures.weights_bytes or 0) / batch / (gpu.bandwidth_gb_s * 1e9)
    return max(arithmetic, memory) / seconds


def scaling(figures: StepFigures, batch: int, seconds: float, source: GpuSpecs, target: GpuSpecs) -> Scaling:
    """Return the factors of the model's phase from one GPU to another."""
    by_arithmetic = source.tflops(figures.precision) / target.tflops(figures.precision)
    by_memory = source.bandwidth_gb_s / target.bandwidth_gb_s
    central = max(by_arithmetic, by_memory)
    reached = efficiency(figures, batch, seconds, source)
    ends = [by_arithmetic, by_memory]
    slower, other = ("arithmetic", "memory") if by_arithmetic >= by_memory else ("memory", "arithmetic")
    ratios = f"{slower} ({central:.2f} times), not their {other} ({min(ends):.2f})"
    assumption = f"the model's time follows the GPUs' {ratios}"
    if reached is None or reached < LITTLE:
        ends.append(1.0)
        used = "an unknown share" if reached is None else f"{reached:.0%}"
        assumption = (
            f"it used {used} of what its GPU can do; the rest may not change with the GPU ({central:.2f} times or 1)"
        )
    return Scaling(central=central, quick=min(ends), slow=max(ends), assumption=assumption)
