"""The GPU memory and time that a step needs at one batch or another, by a calibration or as its profile states."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from framekiln.contract.stage import Scope
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.step import Step

FRAGMENTS = 1.15  # memory held by torch's allocator for each byte allocated, as a rule
IN_FLIGHT_GB = 0.4  # of each further packet in work: 128 MB of pixels, and four times 64 MB of them as float32
_ON_GPU = ("upload", "infer", "download")


@dataclass(frozen=True, kw_only=True)
class BatchOption:
    """One batch of a step in one process, with its cost."""

    batch: int
    gb: float  # peak GPU memory, without the process's context
    gpu_s: float | None = None  # GPU seconds a row; None: not measured
    own_s: float | None = None  # process seconds a row, those of the GPU included


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A step with its Pareto-optimal batches: none takes more memory than another and is slower. One is in use."""

    step: Step
    options: tuple[BatchOption, ...]  # the fastest first
    workers: int  # processes on one GPU, by the profile
    fixed_workers: bool = False  # set for this run by --set
    set_up_s: float = 0.0
    held_gb: float = 0.0  # part of `gb` that it keeps between calls: its weights
    used: int = 0  # number of the option in use

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.step.name

    @property
    def measured(self) -> bool:
        """True if its rate is known."""
        return self.options[0].own_s is not None

    @property
    def option(self) -> BatchOption:
        """The batch in use."""
        return self.options[self.used]

    @property
    def kept_gb(self) -> float:
        """Memory that it keeps between calls."""
        return min(self.held_gb, self.option.gb)

    @property
    def call_gb(self) -> float:
        """Memory that its calls take beside that."""
        return self.option.gb - self.kept_gb

    @property
    def process_s(self) -> float:
        """A process's seconds a row: with several packets in work, its own work overlaps with the GPU's."""
        return max(self.option.gpu_s or 0.0, (self.option.own_s or 0.0) / self.step.placement.in_flight)


def stated(step: Step, workers: int, gb: float) -> Requirement:
    """Return the requirement as the profile states it: one batch with an unknown rate."""
    option = BatchOption(batch=step.placement.batch, gb=gb)
    return Requirement(step=step, options=(option,), workers=workers, held_gb=gb)


def measured(step: Step, figures: StepFigures, workers: int, pinned: Collection[str]) -> Requirement:
    """Return the requirement by a calibration.

    If the calibration's rows had none of the step's items, the profile's memory is the least. `pinned` has the keys of
    the placement that --set gives for this run.
    """
    sizes = sorted({trial.batch for trial in figures.trials if trial.batch <= figures.largest_batch})
    if step.stage.scope is not Scope.ROW or "batch" in pinned:
        sizes = [min(step.placement.batch, figures.largest_batch)]
    least = step.placement.vram_gb if figures.unseen else 0.0
    others = (step.placement.in_flight - 1) * IN_FLIGHT_GB  # a calibration has one packet in work
    options = [
        replace(option, gb=max(option.gb + others, least)) for option in (_make_option(figures, n) for n in sizes)
    ]
    kept: list[BatchOption] = []
    for option in sorted(options, key=lambda each: (each.gb, each.batch)):
        if not kept or (option.own_s or math.inf) < (kept[-1].own_s or math.inf):
            kept.append(option)
    return Requirement(
        step=step,
        options=tuple(reversed(kept)),
        workers=workers,
        fixed_workers="workers" in pinned,
        set_up_s=figures.set_up_s,
        held_gb=figures.weights_gb,
    )


def _make_option(figures: StepFigures, batch: int) -> BatchOption:
    own = 1 / figures.rate(batch)
    phases = max(figures.trials, key=lambda trial: (trial.batch <= batch, trial.batch)).phases
    total = sum(phases.values())
    share = sum(phases.get(name, 0.0) for name in _ON_GPU) / total if total else 1.0
    return BatchOption(batch=batch, gb=_estimate_gb(figures, batch), gpu_s=own * share, own_s=own)


def _estimate_gb(figures: StepFigures, batch: int) -> float:
    """Return the memory that torch holds at a batch: the fitted line at the largest images and its error."""
    ratios = [each.reserved_gb / each.peak_gb for each in figures.trials if each.peak_gb and each.reserved_gb]
    held = max(1.0, min(max(ratios, default=1.0), FRAGMENTS * FRAGMENTS))  # they stay with the allocator
    if figures.memory is None:
        return figures.weights_gb * held
    largest = max(trial.megapixels for trial in figures.trials)
    return (figures.memory.at(batch, largest) + figures.memory.error_gb) * held
