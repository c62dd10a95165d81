"""Memory of steps on a GPU: the batch that fits, by the memory formulas of the calibration.

Steps that do not fit together process the media in several waves, chosen by the same rules as those of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.lab.predict.source_run import SourceStep
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.gpu.co_location import GpuCapacity
from framekiln.planning.gpu.packing import layouts
from framekiln.planning.gpu.requirements import BatchOption, Requirement
from framekiln.planning.step import Step


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """One process of a step on a GPU."""

    batch: int | None  # the run's batch if it fits, else the largest that does; None if not even one row fits
    need_gb: float  # of that batch (of one row if none fits), without the context
    context_gb: float


@dataclass(frozen=True, kw_only=True)
class CombinedFit:
    """All steps on one GPU at once."""

    need_gb: float
    memory_gb: float
    waves: tuple[tuple[str, ...], ...] = ()  # steps on the GPU at the same time; empty if unknown

    @property
    def one_pass(self) -> bool:
        """True if all steps fit on the GPU at once; otherwise the media are processed in several waves."""
        return self.need_gb <= self.memory_gb


def fit(figures: StepFigures, step: SourceStep, context_gb: float, error: float, gpu: GpuSpecs) -> StepFit:
    """Fit a step's process alone on a GPU, with images as large as the largest measured ones.

    A process takes `context_gb` besides its allocations. `error` is that of memory by the back-test, added as a share.
    """
    capacity = gpu.memory_gb - context_gb
    for batch in range(max(1, step.sample.batch), 0, -1):
        if (need := needed(figures, batch, error)) <= capacity:
            return StepFit(batch=batch, need_gb=need, context_gb=context_gb)
    return StepFit(batch=None, need_gb=needed(figures, 1, error), context_gb=context_gb)


def needed(figures: StepFigures, batch: int, error: float) -> float:
    """Return the GB of a call, with the errors of the formula and of the back-test added."""
    line = figures.memory
    if line is None:
        raise ValueError("no memory was measured")
    largest = max(trial.megapixels for trial in figures.trials)
    return line.at(batch, largest) * (1 + error) + line.error_gb


def fit_together(
    steps: Sequence[SourceStep],
    fits: Mapping[str, StepFit],
    figures: Mapping[str, StepFigures],
    gpu: GpuSpecs,
    planned: Sequence[Step],
) -> CombinedFit:
    """Fit all processes of all steps on one GPU; steps in one process share a context.

    `planned` is the first pass, producers before readers; empty if unknown.
    """
    contexts = {step.process: (step.workers, fits[step.name].context_gb) for step in steps}
    need = sum(step.workers * fits[step.name].need_gb for step in steps)
    need += sum(count * each for count, each in contexts.values())
    waves: tuple[tuple[str, ...], ...] = (tuple(step.name for step in steps),)
    if need > gpu.memory_gb:
        capacity = GpuCapacity(limit_gb=gpu.memory_gb, context_gb=max(fit.context_gb for fit in fits.values()))
        waves = _waves(steps, fits, figures, planned, capacity)
    return CombinedFit(need_gb=need, memory_gb=gpu.memory_gb, waves=waves)


def _waves(
    steps: Sequence[SourceStep],
    fits: Mapping[str, StepFit],
    figures: Mapping[str, StepFigures],
    planned: Sequence[Step],
    capacity: GpuCapacity,
) -> tuple[tuple[str, ...], ...]:
    """Return the fewest waves, as a plan without rates chooses them; empty if the first pass is unknown."""
    workers = {step.name: step.workers for step in steps}
    requirements = [
        Requirement(
            step=step,
            options=(BatchOption(batch=fits[step.name].batch or 1, gb=fits[step.name].need_gb),),
            workers=workers[step.name],
            held_gb=figures[step.name].weights_gb,
        )
        for step in planned
        if step.name in workers
    ]
    candidates = layouts(requirements, planned, capacity) if len(requirements) == len(workers) else []
    return tuple(wave.names for wave in candidates[0].waves) if candidates else ()
