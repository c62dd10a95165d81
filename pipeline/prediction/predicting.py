"""Estimates of a run on other cards: each step by itself, then all of them on one card.

A step or a run whose prediction could not be back-tested is not predicted; why is told instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.calibration.figures import Calibration, StepFigures, slug
from pipeline.errors import ConfigError
from pipeline.failure import DECODE
from pipeline.prediction.backtest import Tested, backtest, on_card_s, predicted
from pipeline.prediction.cards import Card
from pipeline.prediction.fitting import Fit, Together, fit, together
from pipeline.prediction.roofline import Scaling, scaling
from pipeline.prediction.source import Source, StepTimes
from pipeline.scheduling import CONTEXT_GB

_SLACK = 0.01  # of shares of a GPU that add up to one


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A rate in rows a second, and what is plausible around it."""

    central: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """One step on one card."""

    step: str
    fit: Fit
    rate: Interval | None  # of its processes with the card to themselves; None where it does not fit
    on_card_s: Interval | None  # seconds a row on the card: `low` is the least
    assumption: str  # what widens the interval most


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """A card, and the run on it."""

    card: str
    steps: Sequence[StepEstimate]
    together: Together | None
    rate: Interval | None
    limit: str  # which step sets the pace
    why_not: str = ""  # why there is no rate


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Everything that is said of an output."""

    source: str  # the card that it was measured on
    tested: Mapping[str, Tested]
    run_error: float | None  # of the run's own rate on its own card, predicted from the calibration; signed
    not_shown: Mapping[str, str] = field(default_factory=dict)  # steps, and why
    later: Sequence[str] = ()  # steps of the second pass
    cards: Sequence[RunEstimate] = ()


def predict(source: Source, calibration: Calibration, here: Card, targets: Mapping[str, Card]) -> Prediction:
    """Estimates for some cards.

    Args:
        source: the run.
        calibration: of the card that it ran on.
        here: that card's data sheet.
        targets: cards by name.

    Raises:
        ConfigError: run and calibration are of different cards, or nothing could be back-tested.
    """
    if (asked := sum(step.gpus for step in source.on_card)) > 1 + _SLACK:
        raise ConfigError(
            f"The run asked for {asked:g} GPUs, and predictions are of runs on one; give the output of such a run."
        )
    figures, not_shown = _known(source, calibration)
    tested: dict[str, Tested] = {}
    for step in source.on_card:
        if step.name in figures:
            result = backtest(figures[step.name], step)
            if isinstance(result, Tested):
                tested[step.name] = result
            else:
                not_shown[step.name] = result
    if not tested:
        said = "; ".join(f"{name}: {why}" for name, why in not_shown.items())
        raise ConfigError(f"Nothing is predicted, since no prediction could be back-tested ({said}).")
    error = None if not_shown or source.waves > 1 else _own_rate(source, figures) / source.rows_per_s - 1
    context = calibration.context_gb or CONTEXT_GB
    made = []
    for name, card in targets.items():
        estimates = [
            _step(step, figures[step.name], tested[step.name], context, here, card)
            for step in source.on_card
            if step.name in tested
        ]
        made.append(_run(name, card, source, figures, estimates, error))
    return Prediction(
        source=calibration.device, tested=tested, run_error=error, not_shown=not_shown, later=source.later, cards=made
    )


def _known(source: Source, calibration: Calibration) -> tuple[dict[str, StepFigures], dict[str, str]]:
    """Figures of the run's steps; of those that have none, why."""
    if source.devices and slug(calibration.device) not in map(slug, source.devices):
        raise ConfigError(
            f"The calibration is of {calibration.device!r} and the run of {source.devices[0]!r}; give --calibration "
            "the file of that card."
        )
    known: dict[str, StepFigures] = {}
    lacking: dict[str, str] = {}
    for step in source.on_card:
        found = calibration.steps.get(step.name)
        if found is None:
            lacking[step.name] = "the calibration does not have it"
        elif (found.settings, found.precision, found.compile) != (step.settings, step.precision, step.compile):
            lacking[step.name] = "the calibration has it with other settings, precision or compilation"
        else:
            known[step.name] = found
    return known, lacking


def _step(
    step: StepTimes, figures: StepFigures, tested: Tested, context_gb: float, here: Card, card: Card
) -> StepEstimate:
    fits = fit(figures, step, context_gb, tested.memory, card)
    scale = scaling(figures, step.batch, step.model_s, here, card)
    if fits.batch is None:
        return StepEstimate(step=step.name, fit=fits, rate=None, on_card_s=None, assumption=scale.words)
    smaller = _slower_by(figures, step, fits.batch)
    bus = here.pcie.gb_s / card.pcie.gb_s
    wide = 1 + tested.rate
    central, quick, slow = (
        smaller * step.model_s * by + step.copies_s * bus for by in (scale.central, scale.quick, scale.slow)
    )
    busy = Interval(central=central, low=quick / wide, high=slow * wide)
    ends = [min(step.workers / (step.host_s + on_card), 1 / on_card) for on_card in (busy.central, busy.high, busy.low)]
    return StepEstimate(
        step=step.name,
        fit=fits,
        rate=Interval(central=ends[0], low=ends[1], high=ends[2]),
        on_card_s=busy,
        assumption=_unseen(figures) or _assumption(step, scale, tested),
    )


def _unseen(figures: StepFigures) -> str:
    """What the memory of a step rests on whose items were in no row of its calibration; empty otherwise."""
    kinds = " and ".join(figures.unseen)
    return kinds and f"there were no {kinds} where it was calibrated, so its memory is that of rows without"


def _slower_by(figures: StepFigures, step: StepTimes, batch: int) -> float:
    """By what a row's time on the card grows with a smaller batch, by the calibration."""
    if batch == step.batch:
        return 1.0
    now, then = (predicted(figures.trials, on_card_s, count, step.megapixels) / count for count in (step.batch, batch))
    return then / now


def _assumption(step: StepTimes, scale: Scaling, tested: Tested) -> str:
    """What the interval owes most of its width to."""
    on_card = step.model_s * scale.central + step.copies_s
    whole = step.host_s + on_card
    parts = {
        scale.words: (scale.slow / scale.quick - 1) * step.model_s * scale.central / whole,
        f"back-tests are off by {tested.rate:.0%}": 2 * tested.rate * on_card / whole,
    }
    widest = max(parts, key=lambda words: parts[words])
    if step.host_s > on_card:
        return f"the host's part, {step.host_s / whole:.0%} of the time, stays as it is; then {widest}"
    return widest


def _own_rate(source: Source, figures: Mapping[str, StepFigures]) -> float:
    """The run's rate on the card that it ran on, from the calibration, where each step was alone."""
    on_card = {
        step.name: predicted(figures[step.name].trials, on_card_s, step.batch, step.megapixels) / step.batch
        for step in source.on_card
    }
    return _pace(source.steps, on_card)[0]


def _pace(steps: Sequence[StepTimes], on_card: Mapping[str, float]) -> tuple[float, str]:
    """Rows a second of steps at once, and what sets the pace: their time on the card adds up, all else is beside it.

    Args:
        steps: whose seconds on the host are taken as they are.
        on_card: seconds a row on the card, by step.
    """
    rates = {"the card": 1 / sum(on_card.values())}
    for process in dict.fromkeys(step.process for step in steps):
        members = [step for step in steps if step.process == process]
        taken = sum(step.host_s + (on_card[step.name] if step.on_card else step.model_s) for step in members)
        rates["+".join(step.name for step in members)] = members[0].workers / max(taken, 1e-9)
    limit = min(rates, key=lambda name: rates[name])
    return rates[limit], limit


def _untested(source: Source) -> str:
    if source.waves > 1:
        return f"it went over the media in {source.waves} waves, and the back-test needs all of its steps at once"
    return "not all of its steps, and so not the run, were back-tested"


def _over(waves: Sequence[Sequence[str]], source: Source, on_card: Mapping[str, float]) -> tuple[float, str]:
    """Rows a second through all waves: each decodes again, and steps without a model run in the first."""
    paces = []
    for number, names in enumerate(waves):
        steps = [step for step in source.steps if _takes_part(step, names, first=number == 0)]
        paces.append(_pace(steps, {name: on_card[name] for name in names}))
    return 1 / sum(1 / rate for rate, _ in paces), ", then ".join(limit for _, limit in paces)


def _takes_part(step: StepTimes, names: Sequence[str], *, first: bool) -> bool:
    return step.name in names if step.on_card else first or step.name == DECODE


def _run(
    name: str,
    card: Card,
    source: Source,
    figures: Mapping[str, StepFigures],
    steps: Sequence[StepEstimate],
    error: float | None,
) -> RunEstimate:
    lost = [one.step for one in steps if one.on_card_s is None]
    if error is None or lost:
        why = f"{', '.join(lost)} does not fit" if lost else _untested(source)
        return RunEstimate(card=name, steps=steps, together=None, rate=None, limit="", why_not=why)
    all_ = together(source.on_card, {one.step: one.fit for one in steps}, figures, card, source.planned)
    if not all_.waves:
        why = "it takes several passes over the media, and which cannot be told from its run.json"
        return RunEstimate(card=name, steps=steps, together=all_, rate=None, limit="", why_not=why)
    taken = {one.step: one.on_card_s for one in steps if one.on_card_s is not None}
    rate, limit = _over(all_.waves, source, {step: each.central for step, each in taken.items()})
    low = _over(all_.waves, source, {step: each.high for step, each in taken.items()})[0] / (1 + abs(error))
    high = _over(all_.waves, source, {step: each.low for step, each in taken.items()})[0] * (1 + abs(error))
    return RunEstimate(
        card=name, steps=steps, together=all_, rate=Interval(central=rate, low=low, high=high), limit=limit
    )
