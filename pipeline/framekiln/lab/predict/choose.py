"""A run on GPUs that nobody has to own: what fits, the bound, an estimate, what it costs, and what would help most.

The host's part is measured: seconds a row of decoding, of steps without a model, and of the host's work in the others,
from a run on any machine. The GPU's part is counted (`work`), and corrected by measurements (`reached`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from framekiln.contract.errors import ResourceError
from framekiln.contract.row_errors import DECODE
from framekiln.lab.predict.costs import place_steps
from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.lab.predict.measured import time_spread
from framekiln.lab.predict.pace import GPU, HOST, Interval, pace
from framekiln.lab.predict.reached import MeasuredStep, guess
from framekiln.lab.predict.source_run import SourceRun, SourceStep
from framekiln.lab.predict.work import Bound, StepWork, WorkCounter
from framekiln.planning.gpu.calibration_file import settings_of
from framekiln.planning.manifest import PipelineFile, ProfileFile, profile_names, read_profile
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.planning.sample import COPIES, MODEL
from framekiln.planning.step import Step

ONE_MORE, CORES = "a second GPU", "twice the cores"


@dataclass(frozen=True, kw_only=True)
class StepChoice:
    """One step on one GPU."""

    step: str
    batch: int
    gb: float  # its share of the GPU's memory; 0 where neither profile nor calibration tells
    flops: float  # of a row
    bound: float  # rows a second that no run can exceed, of the step alone
    seconds: Interval  # on the GPU, of a row
    measured: bool  # on some GPU with these settings; else by what other models reach


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """A run on one GPU."""

    gpu: str
    profile: str
    waves: Sequence[Sequence[str]] = ()  # steps that are on the GPU together; empty if they do not fit
    steps: Sequence[StepChoice] = ()
    bound: float | None = None  # rows a second that no run on this GPU can exceed; None if no step is on the GPU
    rate: Interval | None = None  # the run's rows a second, by the host's measured seconds
    limit: str = ""  # what sets the pace of each wave
    helps: Mapping[str, float] = field(default_factory=dict)  # factor of the rate, the largest first
    hours: Interval | None = None
    kwh: Interval | None = None  # at the board's most power, without the host
    money: Interval | None = None
    why_not: str = ""  # the reason without an estimate


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency."""

    per_hour: Mapping[str, float] = field(default_factory=dict)  # of the machine, by GPU
    per_kwh: float | None = None

    def of(self, gpu: str, hours: Interval, kwh: Interval) -> Interval | None:
        """Return what hours on a GPU cost; None without a price, or where others have one and this GPU has none."""
        by_hour, by_kwh = self.per_hour.get(gpu), self.per_kwh
        if by_hour is None and (by_kwh is None or self.per_hour):
            return None
        both = [(getattr(hours, end), getattr(kwh, end)) for end in ("central", "low", "high")]
        central, low, high = (time * (by_hour or 0) + energy * (by_kwh or 0) for time, energy in both)
        return Interval(central=central, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """A run, a collection and prices, by which GPUs are judged."""

    source: SourceRun
    pipeline: PipelineFile
    profile: ProfileFile  # the run's own, which is kept where it is for a GPU that is no larger
    options: PlanOptions
    cores: float
    rows: Interval
    prices: Prices
    counter: WorkCounter
    measured: Mapping[str, tuple[str, MeasuredStep]]  # by step, with the fingerprint of its settings

    def judge(self, name: str, gpu: GpuSpecs) -> GpuChoice:
        """Return the run on a GPU, by its own profile or the largest shipped one that fits."""
        own_gb = self.profile.gpu_vram_gb if self.source.gpu_steps else None
        try:
            profile_name, profile = "of the run", self.profile
            if own_gb is None or own_gb > gpu.memory_gb:
                profile_name, profile = profile_for(gpu)
            plan = make_plan(
                self.pipeline,
                profile,
                self.options,
                [Node(name=name, cpus=self.cores, gpus=1)],
                check_weights=False,
                calibrated=self.options.calibration is not None,
                refuse_idle=False,
            )
        except ResourceError as error:
            return GpuChoice(gpu=name, profile="", why_not=str(error))
        on_gpu = [[step for step in wave.own if step.placement.device != "cpu"] for wave in plan.waves]
        works, unknown = self.counter.count(plan)
        steps = [self._step(step, works[step.name], gpu) for wave in on_gpu for step in wave if step.name in works]
        bounds = [works[step.step].bound(gpu, step.batch).by(self._ran[step.step].chosen) for step in steps]
        bound = sum(bounds, Bound()).seconds
        choice = GpuChoice(
            gpu=name,
            profile=profile_name,
            waves=[[step.name for step in wave] for wave in on_gpu],
            steps=steps,
            bound=1 / bound if bound else None,
        )
        if unknown:
            reasons = [f"{name} cannot be counted ({why})" for name, why in unknown.items()]
            return replace(choice, why_not="; ".join(reasons))
        return self._estimate(choice, plan, gpu)

    @property
    def _ran(self) -> dict[str, SourceStep]:
        return {step.name: step for step in self.source.steps}

    def _step(self, step: Step, work: StepWork, gpu: GpuSpecs) -> StepChoice:
        batch, settings = step.placement.batch, settings_of(step.facts)
        known_settings, known = self.measured.get(step.name, ("", None))
        is_known = known is not None and known_settings == settings
        return StepChoice(
            step=step.name,
            batch=batch,
            gb=step.placement.vram_gb,
            flops=work.flops,
            bound=1 / work.bound(gpu, batch).seconds,
            seconds=known.on(gpu, work, batch) if known is not None and is_known else guess(work, batch, gpu),
            measured=is_known,
        )

    def _estimate(self, choice: GpuChoice, plan: Plan, gpu: GpuSpecs) -> GpuChoice:
        seconds = {step.step: step.seconds.by(self._ran[step.step].chosen) for step in choice.steps}
        placed = {step.name: _place(self._ran[step.name], step) for step in plan.first}
        placed[DECODE] = self._ran[DECODE]
        spreads = {name: time_spread(step) for name, step in placed.items()}
        ends = []
        for end in ("central", "high", "low"):
            scaled = {name: _scale(step, getattr(spreads[name], end)) for name, step in placed.items()}
            on_gpu = {name: getattr(each, end) for name, each in seconds.items()}
            ends.append((place_steps(plan, scaled, local=False), on_gpu, self.cores))
        (central, limits), (low, _), (high, _) = (_through(*end) for end in ends)
        rate = Interval(central=central, low=low, high=high)
        hours = Interval(
            central=self.rows.central / central / 3600,
            low=self.rows.low / high / 3600,
            high=self.rows.high / low / 3600,
        )
        kwh = hours.by(gpu.watts / 1000)
        return replace(
            choice,
            rate=rate,
            limit=", then ".join(limits),
            helps=_what_helps(*ends[0], central, limits),
            hours=hours,
            kwh=kwh,
            money=self.prices.of(choice.gpu, hours, kwh),
        )


def profile_for(gpu: GpuSpecs) -> tuple[str, ProfileFile]:
    """Return the shipped profile that uses most of a GPU's memory.

    Raises ResourceError: the GPU has less than all of them ask for.
    """
    profiles = {name: read_profile(name) for name in profile_names()}
    sizes = {name: profile.gpu_vram_gb for name, profile in profiles.items()}
    fitting = {name: size for name, size in sizes.items() if size is not None and size <= gpu.memory_gb}
    if not fitting:
        raise ResourceError(
            f"A GPU of {gpu.memory_gb:g} GB is smaller than any shipped profile asks for; write one of your own.",
            code="FK-GPU-TOO-SMALL",
        )
    best = max(fitting, key=lambda name: fitting[name])
    return best, profiles[best]


def _place(ran: SourceStep, step: Step) -> SourceStep:
    """Return a measured step where a plan places it, by rows chosen or not; on a GPU only its host's part stays."""
    on_gpu = step.placement.device != "cpu"
    left_out = (MODEL, *COPIES) if on_gpu else ()
    phases = {name: seconds * ran.chosen for name, seconds in ran.sample.phases.items() if name not in left_out}
    sample = ran.sample.model_copy(update={"phases": phases})
    return replace(ran, device="cuda" if on_gpu else "cpu", sample=sample)


def _through(
    waves: Sequence[Sequence[SourceStep]], on_gpu: Mapping[str, float], cores: float, gpus: int = 1
) -> tuple[float, list[str]]:
    """Return the rate through all waves, one after the other, and what limits each."""
    paces = [pace(wave, {step.name: on_gpu[step.name] for step in wave if step.on_gpu}, cores, gpus) for wave in waves]
    return 1 / sum(1 / rate for rate, _ in paces), [limit for _, limit in paces]


def _what_helps(
    waves: Sequence[Sequence[SourceStep]],
    on_gpu: Mapping[str, float],
    cores: float,
    rate: float,
    limits: Sequence[str],
) -> dict[str, float]:
    """Return the factor of the rate by a second GPU, twice the cores, half the rows of the costliest step."""
    more_gpus = [[_times(step, 2) if step.on_gpu else step for step in wave] for wave in waves]
    more_cores = [[step if step.on_gpu else _times(step, 2) for step in wave] for wave in waves]
    factors = {CORES: _through(more_cores, on_gpu, 2 * cores)[0] / rate}
    if on_gpu:
        factors[ONE_MORE] = _through(more_gpus, on_gpu, cores, gpus=2)[0] / rate
    for name in _costliest(waves, on_gpu, limits):
        fewer = [[_scale(step, 0.5) if step.name == name else step for step in wave] for wave in waves]
        less = {other: seconds / 2 if other == name else seconds for other, seconds in on_gpu.items()}
        factors[f"`where:` for half the rows of {name}"] = _through(fewer, less, cores)[0] / rate
    return dict(sorted(factors.items(), key=lambda pair: -pair[1]))


def _times(step: SourceStep, factor: int) -> SourceStep:
    return replace(step, workers=step.workers * factor)


def _scale(step: SourceStep, factor: float) -> SourceStep:
    phases = {name: seconds * factor for name, seconds in step.sample.phases.items()}
    return replace(step, sample=step.sample.model_copy(update={"phases": phases}))


def _costliest(waves: Sequence[Sequence[SourceStep]], on_gpu: Mapping[str, float], limits: Sequence[str]) -> list[str]:
    """Return for each wave the step that takes most of what limits it; none where that is decoding."""
    found = []
    for wave, limit in zip(waves, limits, strict=True):
        cost = {step.name: on_gpu.get(step.name, 0.0) for step in wave if step.on_gpu}
        if limit != GPU:
            members = limit.removeprefix(HOST).split("+")
            cost = {step.name: sum(step.sample.phases.values()) for step in wave if step.name in members}
        name = max(cost, key=lambda name: cost[name])
        found += [name] if name != DECODE else []
    return list(dict.fromkeys(found))
