"""Estimates of a run on other GPUs: each step alone, then all steps on one GPU.

Only predictions that could be back-tested are made. For others the result holds the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from framekiln.contract.errors import ConfigError
from framekiln.contract.row_errors import DECODE
from framekiln.lab.predict.fit import BacktestErrors, CombinedFit, StepFit, backtest, fit, fit_together, on_gpu_row_s
from framekiln.lab.predict.gpu_specs import GpuSpecs, Scaling, scaling
from framekiln.lab.predict.source_run import SourceRun, SourceStep
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, slug
from framekiln.planning.gpu.scheduler import CONTEXT_GB

_SLACK = 0.01  # rounding error of shares of a GPU that add up to one


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its plausible interval: rows a second, or seconds a row."""

    central: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """One step on one GPU."""

    step: str
    fit: StepFit
    rate: Interval | None = None  # of its processes with the GPU to themselves; None if it does not fit
    on_gpu_s: Interval | None = None  # seconds a row on the GPU
    assumption: str  # the one that widens the interval most


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The run on one GPU."""

    gpu: str
    steps: Sequence[StepEstimate]
    combined: CombinedFit | None = None
    rate: Interval | None = None
    limit: str = ""  # the slowest step, or the GPU
    why_not: str = ""  # the reason without a rate


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """All estimates for an output, with their back-tests."""

    source: str  # the GPU of the run
    tested: Mapping[str, BacktestErrors]
    run_error: float | None  # signed, of the run's rate on its own GPU, predicted from the calibration
    not_shown: Mapping[str, str] = field(default_factory=dict)  # steps without a prediction, with the reason
    later: Sequence[str] = ()  # steps of the second pass
    gpus: Sequence[RunEstimate] = ()


def predict(source: SourceRun, calibration: Calibration, here: GpuSpecs, targets: Mapping[str, GpuSpecs]) -> Prediction:
    """Estimate a run on other GPUs, by the data sheets of its own GPU (`here`) and of the others (`targets`).

    Raises ConfigError: run and calibration are of different GPUs, or no prediction could be back-tested.
    """
    if (gpus := sum(step.gpus for step in source.gpu_steps)) > 1 + _SLACK:
        raise ConfigError(
            f"The run reserved {gpus:g} GPUs, and predictions are of runs on one; give the output of such a run.",
            code="FK-PREDICT-SEVERAL-GPUS",
        )
    if source.devices and slug(calibration.device) not in map(slug, source.devices):
        raise ConfigError(
            f"The calibration is of {calibration.device!r} and the run of {source.devices[0]!r}; give --calibration "
            "the file of that GPU.",
            code="FK-CALIBRATION-OTHER-GPU",
        )
    figures, tested, not_shown = _back_tests(source, calibration)
    alone = {one.name: on_gpu_row_s(figures[one.name], one.sample) for one in source.gpu_steps if one.name in figures}
    # by the calibration, where each step was alone
    error = None if not_shown or source.waves > 1 else pace(source.steps, alone)[0] / source.rows_per_s - 1
    context = calibration.context_gb or CONTEXT_GB
    shown = [step for step in source.gpu_steps if step.name in tested]
    estimates = []
    for name, gpu in targets.items():
        steps = [_step(step, figures[step.name], tested[step.name], context, here, gpu) for step in shown]
        estimates.append(_run(name, gpu, source, figures, steps, error))
    return Prediction(
        source=calibration.device,
        tested=tested,
        run_error=error,
        not_shown=not_shown,
        later=[step.name for step in source.later],
        gpus=estimates,
    )


def _back_tests(
    source: SourceRun, calibration: Calibration
) -> tuple[dict[str, StepFigures], dict[str, BacktestErrors], dict[str, str]]:
    figures: dict[str, StepFigures] = {}
    tested: dict[str, BacktestErrors] = {}
    not_shown: dict[str, str] = {}
    for step in source.gpu_steps:
        step_figures = calibration.steps.get(step.name)
        if step_figures is None:
            not_shown[step.name] = "the calibration does not have it"
        elif _settings(step_figures) != _settings(step):
            not_shown[step.name] = "the calibration has it with other settings, precision or compilation"
        else:
            figures[step.name] = step_figures
            result = backtest(step_figures, step)
            if isinstance(result, BacktestErrors):
                tested[step.name] = result
            else:
                not_shown[step.name] = result
    if not tested:
        reasons = "; ".join(f"{name}: {why}" for name, why in not_shown.items())
        raise ConfigError(
            f"Nothing is predicted, since no prediction could be back-tested ({reasons}); calibrate these steps with "
            "more batches.",
            code="FK-PREDICT-UNTESTED",
        )
    return figures, tested, not_shown


def _settings(step: StepFigures | SourceStep) -> tuple[str, str, bool]:
    return step.settings, step.precision, step.compile


def _step(
    step: SourceStep, figures: StepFigures, tested: BacktestErrors, context_gb: float, here: GpuSpecs, gpu: GpuSpecs
) -> StepEstimate:
    sample, fits = step.sample, fit(figures, step, context_gb, tested.memory, gpu)
    scale = scaling(figures, sample.batch, sample.model_s, here, gpu)
    if fits.batch is None:
        return StepEstimate(step=step.name, fit=fits, assumption=scale.assumption)
    smaller = 1.0  # factor of a row's time on the GPU with a smaller batch
    if fits.batch != sample.batch:
        smaller = on_gpu_row_s(figures, sample, fits.batch) / on_gpu_row_s(figures, sample)
    bus = here.pcie.gb_s / gpu.pcie.gb_s
    wide = 1 + tested.rate
    central, quick, slow = (
        smaller * sample.model_s * by + sample.copies_s * bus for by in (scale.central, scale.quick, scale.slow)
    )
    busy = Interval(central=central, low=quick / wide, high=slow * wide)
    packets = step.workers * step.in_flight
    ends = [min(packets / (sample.host_s + on_gpu), 1 / on_gpu) for on_gpu in (busy.central, busy.high, busy.low)]
    return StepEstimate(
        step=step.name,
        fit=fits,
        rate=Interval(central=ends[0], low=ends[1], high=ends[2]),
        on_gpu_s=busy,
        assumption=_assumption(figures, step, scale, tested),
    )


def _assumption(figures: StepFigures, step: SourceStep, scale: Scaling, tested: BacktestErrors) -> str:
    """Return the assumption of items that no calibrated row had, else the one that widens the interval most."""
    if kinds := " and ".join(figures.unseen):
        return f"there were no {kinds} where it was calibrated, so its memory is that of rows without"
    model_s, host_s = step.sample.model_s * scale.central, step.sample.host_s
    on_gpu = model_s + step.sample.copies_s
    whole = host_s + on_gpu
    parts = {
        scale.assumption: (scale.slow / scale.quick - 1) * model_s / whole,
        f"back-tests are off by {tested.rate:.0%}": 2 * tested.rate * on_gpu / whole,
    }
    widest = max(parts, key=lambda part: parts[part])
    if host_s > on_gpu:
        return f"the host's part, {host_s / whole:.0%} of the time, stays as it is; then {widest}"
    return widest


def pace(steps: Sequence[SourceStep], on_gpu: Mapping[str, float]) -> tuple[float, str]:
    """Return the rate of steps that run at once, and the limit: seconds a row `on_gpu` add up, all others overlap."""
    rates = {"the GPU": 1 / max(sum(on_gpu.values()), 1e-9)} if on_gpu else {}
    for process in dict.fromkeys(step.process for step in steps):
        members = [step for step in steps if step.process == process]
        taken = sum(
            each.sample.host_s + (on_gpu[each.name] if each.on_gpu else each.sample.model_s) for each in members
        )
        rates["+".join(step.name for step in members)] = members[0].workers * members[0].in_flight / max(taken, 1e-9)
    limit = min(rates, key=lambda name: rates[name])
    return rates[limit], limit


def _over(waves: Sequence[Sequence[str]], source: SourceRun, on_gpu: Mapping[str, float]) -> tuple[float, str]:
    """Return the rate through all waves, and their limits.

    Each wave decodes again, and steps without a model run in the first.
    """
    paces = []
    for number, names in enumerate(waves):
        steps = [
            step for step in source.steps if (step.name in names if step.on_gpu else number == 0 or step.name == DECODE)
        ]
        paces.append(pace(steps, {name: on_gpu[name] for name in names}))
    return 1 / sum(1 / rate for rate, _ in paces), ", then ".join(limit for _, limit in paces)


def _run(
    name: str,
    gpu: GpuSpecs,
    source: SourceRun,
    figures: Mapping[str, StepFigures],
    steps: Sequence[StepEstimate],
    error: float | None,
) -> RunEstimate:
    too_large = [step.step for step in steps if step.on_gpu_s is None]
    if error is None or too_large:
        why = "not all of its steps, and so not the run, were back-tested"
        if too_large:
            why = f"{', '.join(too_large)} does not fit"
        elif source.waves > 1:
            why = f"it went over the media in {source.waves} waves, and the back-test needs all of its steps at once"
        return RunEstimate(gpu=name, steps=steps, why_not=why)
    combined = fit_together(source.gpu_steps, {step.step: step.fit for step in steps}, figures, gpu, source.planned)
    if not combined.waves:
        why = "it takes several passes over the media, and its run.json does not determine which"
        return RunEstimate(gpu=name, steps=steps, combined=combined, why_not=why)
    taken = {step.step: step.on_gpu_s for step in steps if step.on_gpu_s is not None}
    (rate, limit), (low, _), (high, _) = (
        _over(combined.waves, source, {step: getattr(seconds, end) for step, seconds in taken.items()})
        for end in ("central", "high", "low")
    )
    interval = Interval(central=rate, low=low / (1 + abs(error)), high=high * (1 + abs(error)))
    return RunEstimate(gpu=name, steps=steps, combined=combined, rate=interval, limit=limit)
