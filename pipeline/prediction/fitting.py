"""Whether steps fit a card, and at what batch: by the lines of the calibration.

Steps that do not fit at once go over the media in several waves, laid out by the same rules as a plan's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.calibration.figures import StepFigures
from pipeline.prediction.cards import Card
from pipeline.prediction.source import StepTimes
from pipeline.scheduling.asks import Ask, Option
from pipeline.scheduling.layouts import layouts
from pipeline.scheduling.sharing import Room
from pipeline.step import Step


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One process of a step on a card."""

    batch: int | None  # the run's own where it fits, else the largest that does; None: not even one row
    need_gb: float  # of that batch (of one row where none fits), without the context
    context_gb: float


@dataclass(frozen=True, kw_only=True)
class Together:
    """All steps at once."""

    need_gb: float
    memory_gb: float
    waves: tuple[tuple[str, ...], ...] = ()  # steps that are on the card together; empty where nobody can tell

    @property
    def one_pass(self) -> bool:
        """Whether all are on the card at once; otherwise the media must be gone through several times."""
        return self.need_gb <= self.memory_gb


def fit(figures: StepFigures, step: StepTimes, context_gb: float, error: float, card: Card) -> Fit:
    """A step's process alone on a card, with pictures as large as the largest that were measured.

    Args:
        figures: with a memory line.
        step: as it ran.
        context_gb: of a process, beside its allocations.
        error: of memory, by the back-test; it is added as a share.
        card: which.
    """
    room = card.memory_gb - context_gb
    batches = sorted({1, *range(1, step.batch + 1)}, reverse=True)
    for batch in batches:
        if (need := needed(figures, batch, error)) <= room:
            return Fit(batch=batch, need_gb=need, context_gb=context_gb)
    return Fit(batch=None, need_gb=needed(figures, 1, error), context_gb=context_gb)


def needed(figures: StepFigures, batch: int, error: float) -> float:
    """GB of a call, with the line's error and the back-test's."""
    line = figures.memory
    if line is None:
        raise ValueError("no memory was measured")
    largest = max(trial.megapixels for trial in figures.trials)
    return line.at(batch, largest) * (1 + error) + line.error_gb


def together(
    steps: Sequence[StepTimes],
    fits: Mapping[str, Fit],
    figures: Mapping[str, StepFigures],
    card: Card,
    planned: Sequence[Step],
) -> Together:
    """All processes of all steps on one card; steps that share a process share a context.

    Args:
        steps: those that need the card.
        fits: of each, alone.
        figures: of each.
        card: which.
        planned: the first pass, producers before readers; empty where it is not known.
    """
    contexts = {step.process: (step.workers, fits[step.name].context_gb) for step in steps}
    need = sum(step.workers * fits[step.name].need_gb for step in steps)
    need += sum(count * each for count, each in contexts.values())
    waves: tuple[tuple[str, ...], ...] = (tuple(step.name for step in steps),)
    if need > card.memory_gb:
        room = Room(limit_gb=card.memory_gb, context_gb=max(fit.context_gb for fit in fits.values()))
        waves = _waves(_asks(steps, fits, figures, planned), planned, room)
    return Together(need_gb=need, memory_gb=card.memory_gb, waves=waves)


def _asks(
    steps: Sequence[StepTimes], fits: Mapping[str, Fit], figures: Mapping[str, StepFigures], planned: Sequence[Step]
) -> list[Ask]:
    """The steps at the batches that fit alone; none where the first pass is not known."""
    times = {step.name: step for step in steps}
    mine = [step for step in planned if step.name in times]
    if len(mine) < len(times):
        return []
    return [
        Ask(
            step=step,
            options=(Option(batch=fits[step.name].batch or 1, gb=fits[step.name].need_gb),),
            workers=times[step.name].workers,
            held_gb=figures[step.name].weights_gb,
        )
        for step in mine
    ]


def _waves(asks: Sequence[Ask], planned: Sequence[Step], room: Room) -> tuple[tuple[str, ...], ...]:
    """The fewest waves, as a plan without rates would choose them."""
    found = layouts(asks, planned, room) if asks else []
    return tuple(wave.names for wave in found[0].waves) if found else ()
