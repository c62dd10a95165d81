"""The share of the roofline that models reach: `manifests/ceilings.yaml`, or the same step measured on another GPU.

A share measured on one GPU holds for another if the same thing limits both. No measurement of the whole shows whether
that is arithmetic or memory. So the interval covers the ratio of each alone. It also covers the unchanged time if a
model reached less than nine of ten models do: then something else limited it. A share is no surer on another GPU than
among models, so both ends are widened by that spread.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import yaml

from framekiln.contract.errors import ConfigError
from framekiln.contract.limits import Positive
from framekiln.contract.shipped_files import shipped
from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.lab.predict.pace import OTHER_END, Interval
from framekiln.lab.predict.source_run import SourceRun
from framekiln.lab.predict.work import GpuWork
from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.settings import Strict

_END = 0.95  # quantile; the interval holds nine of ten


class Ceiling(Strict):
    """One model alone on one GPU, at a batch with a level rate."""

    gpu: str  # name in gpus.yaml
    model: str
    compile: bool
    batch: int
    per_s: Positive  # items a second
    reached: Positive  # reached share of the roofline, by arithmetic


@cache
def read_ceilings() -> tuple[Ceiling, ...]:
    """Return the shipped ceilings."""
    return tuple(map(Ceiling.model_validate, yaml.safe_load(shipped("ceilings.yaml").read_text(encoding="utf-8"))))


def usual_share(ceilings: Sequence[Ceiling] | None = None, *, compiled: bool = True) -> Interval:
    """Return the likely share of another model: the geometric mean, and nine of ten by Student's t."""
    from scipy.stats import t

    alike = [ceiling for ceiling in ceilings or read_ceilings() if ceiling.compile == compiled]
    logs = np.log([ceiling.reached for ceiling in alike])
    width = float(t.ppf(_END, len(logs) - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))
    mean = float(logs.mean())
    return Interval(central=math.exp(mean), low=math.exp(mean - width), high=math.exp(mean + width))


def guess(work: GpuWork, batch: int, gpu: GpuSpecs, *, compiled: bool = True) -> Interval:
    """Return the seconds a row of a step without any measurement."""
    bound = float(work.bound(gpu, batch).max())
    parts = [(net.roofline_s(gpu, batch), usual_share(compiled=compiled and not net.eager)) for net in work.networks]
    return Interval.each(lambda end: max(bound, sum(s / getattr(share, OTHER_END[end]) for s, share in parts)))


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """One step on one GPU."""

    gpu: GpuSpecs
    seconds: Mapping[int, float]  # time of a row in the model, by batch
    compile: bool = True

    def reached(self, work: GpuWork) -> tuple[float, float]:
        """Return the share of the roofline, and how far single batches are from it."""
        logs = [math.log(work.roofline_s(self.gpu, batch) / taken) for batch, taken in self.seconds.items()]
        mean = sum(logs) / len(logs)
        return math.exp(mean), math.expm1(math.sqrt(sum((log - mean) ** 2 for log in logs) / len(logs)))

    def on(self, gpu: GpuSpecs, work: GpuWork, batch: int) -> Interval:
        """Return the seconds a row on a GPU."""
        share, error = self.reached(work)
        here, there = work.roofline_s(self.gpu, batch) / share, work.roofline_s(gpu, batch) / share
        if gpu == self.gpu:
            return Interval(central=there, low=there / (1 + error), high=there * (1 + error))
        usual = usual_share(compiled=self.compile)
        wider = max(1 + error, usual.high / usual.central)
        ratios = [self.gpu.tflops(precision) / gpu.tflops(precision) for precision in work.precisions]
        ratios += [self.gpu.bandwidth_gb_s / gpu.bandwidth_gb_s, *([1.0] if share < usual.low else [])]
        ends = [there, *(here * ratio for ratio in ratios)]
        bound = float(work.bound(gpu, batch).max())
        return Interval(
            central=max(bound, there), low=max(bound, min(ends) / wider), high=max(bound, max(ends) * wider)
        )


def measured_steps(
    source: SourceRun, calibration: Calibration | None, here: Callable[[str, float | None], GpuSpecs]
) -> dict[str, tuple[str, MeasuredStep]]:
    """Return the steps measured on a GPU: by a run, and by a calibration, which wins.

    Raises ConfigError: the run's machine had several kinds of GPUs, and no record says which of them a call used.
    """
    if source.gpu_steps and len(kinds := set(source.devices)) > 1:
        raise ConfigError(
            f"The run's machine has several kinds of GPUs ({', '.join(sorted(kinds))}), and its records do not say "
            "which one was used; give the output of a run with CUDA_VISIBLE_DEVICES set to GPUs of one kind.",
            code="FK-PREDICT-SEVERAL-GPUS",
        )
    known = [
        (step.name, step.settings, (source.devices[0], source.gpu_gb), step.compile, [step.sample])
        for step in (source.gpu_steps if source.devices else ())
    ]
    if calibration is not None:
        steps, device = calibration.steps.items(), (calibration.device, calibration.gpu_vram_gb)
        known += [(name, one.settings, device, one.compile, one.trials) for name, one in steps]
    return {
        name: (settings, MeasuredStep(gpu=here(*device), seconds=seconds, compile=is_compiled))
        for name, settings, device, is_compiled, samples in known
        if (seconds := {one.batch: one.model_s for one in samples if one.model_s > 0})
    }
