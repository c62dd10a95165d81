"""What a step asks of a card: memory and time at one batch or another, by a calibration or as its profile says."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from pipeline.calibration.figures import StepFigures, Trial
from pipeline.stage import Scope
from pipeline.step import Step

FRAGMENTS = 1.15  # memory that torch's allocator holds for what is allocated, where trials do not tell
_ON_CARD = ("upload", "infer", "download")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to run a step in one process."""

    batch: int
    gb: float  # of the card, at most, besides the process's context
    card_s: float | None = None  # seconds of the card a row; None: nobody has measured
    own_s: float | None = None  # seconds of its process a row, those of the card among them


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A step, and the ways to run it, of which none takes more memory and is slower than another."""

    step: Step
    options: tuple[Option, ...]  # the fastest first
    workers: int  # processes on one card, as its profile says
    fixed_workers: bool = False  # whether somebody said so for this run
    set_up_s: float = 0.0
    held_gb: float = 0.0  # of `gb`, what it keeps between calls: its weights

    @property
    def name(self) -> str:
        """Of the step."""
        return self.step.name

    @property
    def measured(self) -> bool:
        """Whether its rate is known."""
        return self.options[0].own_s is not None


def stated(step: Step, workers: int, gb: float) -> Ask:
    """As its profile has it: one way, whose rate nobody knows."""
    option = Option(batch=step.placement.batch_rows, gb=gb)
    return Ask(step=step, options=(option,), workers=workers, held_gb=gb)


def measured(step: Step, found: StepFigures, workers: int, pinned: Collection[str]) -> Ask:
    """As a calibration has it; of a step whose items it never saw, at least the memory that the profile says.

    Args:
        step: the step.
        found: its figures, on this card.
        workers: processes on one card, as its profile says.
        pinned: keys of its placement that somebody said for this run.
    """
    sizes = sorted({trial.batch for trial in found.trials if trial.batch <= found.largest_batch})
    if step.stage.scope is not Scope.ROW or "batch" in pinned:
        sizes = [min(step.placement.batch_rows, found.largest_batch)]
    least = step.placement.vram_gb if found.unseen else 0.0
    options = [replace(one, gb=max(one.gb, least)) for one in (_option(found, size) for size in sizes)]
    return Ask(
        step=step,
        options=_worthwhile(options),
        workers=workers,
        fixed_workers="workers" in pinned,
        set_up_s=found.set_up_s,
        held_gb=found.weights_gb,
    )


def _option(found: StepFigures, batch: int) -> Option:
    own = 1 / found.rate(batch)
    phases = max(found.trials, key=lambda trial: (trial.batch <= batch, trial.batch)).phases
    total = sum(phases.values())
    share = sum(phases.get(name, 0.0) for name in _ON_CARD) / total if total else 1.0
    return Option(batch=batch, gb=_gb(found, batch), card_s=own * share, own_s=own)


def _gb(found: StepFigures, batch: int) -> float:
    """What torch will hold at a batch: the line at the largest pictures and its error, with what lies in fragments."""
    held = max((_held(trial) for trial in found.trials), default=FRAGMENTS)
    if found.memory is None:
        return found.weights_gb * held
    largest = max(trial.megapixels for trial in found.trials)
    return (found.memory.at(batch, largest) + found.memory.error_gb) * held


def _held(trial: Trial) -> float:
    """What torch held for each byte that was allocated."""
    if not trial.peak_gb or not trial.reserved_gb:
        return 1.0
    return max(1.0, min(trial.reserved_gb / trial.peak_gb, FRAGMENTS * FRAGMENTS))


def _worthwhile(options: list[Option]) -> tuple[Option, ...]:
    """Those that are faster than all that take less; the fastest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda one: (one.gb, one.batch)):
        if not kept or (option.own_s or math.inf) < (kept[-1].own_s or math.inf):
            kept.append(option)
    return tuple(reversed(kept))
