"""A run on GPUs that one need not own: what fits, the bound, an estimate, its cost, and the best improvement.

The host's part is measured in a run on any machine. It has the seconds a row of decoding, of steps without a model, and
of the host's work in other steps. The GPU's part is counted (`work`), and corrected by measurements (`reached`).
Workers and packets in work are settings of a profile, and change no GPU's speed. So the host's part fills the cores,
equally on each GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from framekiln.contract.errors import ResourceError
from framekiln.contract.row_errors import DECODE
from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.lab.predict.measured import time_spread
from framekiln.lab.predict.pace import GPU, OTHER_END, Interval
from framekiln.lab.predict.reached import MeasuredStep, guess
from framekiln.lab.predict.source_run import SourceRun, SourceStep
from framekiln.lab.predict.work import GpuWork, WorkCounter
from framekiln.planning.gpu.calibration_file import settings_of
from framekiln.planning.machine import USABLE, fitting_profile
from framekiln.planning.manifest import PipelineFile, ProfileFile, read_profile
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.planning.sample import COPIES, MODEL
from framekiln.planning.step import Step

ONE_MORE, MORE_CORES = "a second GPU", "twice the cores"
_NAMED = 0.1  # share of the cores' time from which a step is named as filling them


@dataclass(frozen=True, kw_only=True)
class StepChoice:
    """One step on one GPU."""

    step: str
    batch: int
    gb: float  # its share of the GPU's memory; 0 if neither profile nor calibration states it
    flops: float  # of a row
    bound: float | None  # rows a second that no run can exceed, of the step alone; None if its model had no row
    seconds: Interval | None  # time of a row on the GPU; None as the bound
    measured: bool  # on some GPU with these settings; otherwise from other models' shares
    items: Mapping[str, float] = field(default_factory=dict)  # the numbers of faces, ... of a row that its work follows
    after: Sequence[str] = ()  # steps before it that had other settings in the run, and may find more or less here


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """A run on one GPU."""

    gpu: str
    profile: str
    memory_gb: float = 0.0  # as its maker prints it
    waves: Sequence[Sequence[str]] = ()  # steps on the GPU together; empty if they do not fit
    steps: Sequence[StepChoice] = ()
    bound: float | None = None  # rows a second that no run on this GPU can exceed; None if no step is on the GPU
    rate: Interval | None = None  # the run's rows a second, from the host's measured seconds
    limit: str = ""  # what sets the pace of each wave
    helps: Mapping[str, float] = field(default_factory=dict)  # factor of the rate, largest first
    hours: Interval | None = None
    kwh: Interval | None = None  # energy at the board's maximum power, without the host
    money: Interval | None = None
    why_not: str = ""  # the reason for a missing estimate


def are_idle(choices: Sequence[GpuChoice]) -> bool:
    """Return whether no step uses a GPU, so that all are alike."""
    planned = [choice.waves for choice in choices if choice.waves]
    return bool(planned) and not any(map(any, planned))


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency."""

    per_hour: Mapping[str, float] = field(default_factory=dict)  # price of the machine, by GPU
    per_kwh: float | None = None

    def of(self, gpu: str, hours: Interval, kwh: Interval) -> Interval | None:
        """Return the cost of hours on a GPU; None without prices, or if only other GPUs have one."""
        by_hour, by_kwh = self.per_hour.get(gpu), self.per_kwh
        if by_hour is None and (by_kwh is None or self.per_hour):
            return None
        return Interval.each(lambda end: getattr(hours, end) * (by_hour or 0) + getattr(kwh, end) * (by_kwh or 0))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A collection on GPUs, from a run's measurements."""

    output: str  # of the run
    cores: float  # cores beside the GPU
    rows: Interval  # of the collection
    prices: Prices
    gpus: Sequence[GpuChoice]
    notes: Sequence[str]  # sentences on the figures' gaps


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """A run, a collection and prices, with which GPUs are judged."""

    source: SourceRun
    pipeline: PipelineFile
    profile: ProfileFile  # the run's own, kept if it is for a GPU that is no larger
    options: PlanOptions
    cores: float
    rows: Interval
    prices: Prices
    counter: WorkCounter
    measured: Mapping[str, tuple[str, MeasuredStep]]  # by step, with the fingerprint of its settings

    def judge(self, name: str, gpu: GpuSpecs) -> GpuChoice:
        """Return the run on a GPU, with its own profile or the largest shipped one that fits."""
        own_gb = self.profile.gpu_vram_gb if self.source.gpu_steps else None
        profile_name, cap_gb = fitting_profile(gpu.driver_gb)
        profile = read_profile(profile_name)
        if own_gb is not None and own_gb <= USABLE * gpu.driver_gb:
            profile_name, profile = "of the run", self.profile
        try:
            plan = make_plan(
                self.pipeline,
                profile,
                replace(self.options, vram_cap=cap_gb),
                [Node(name=name, cpus=self.cores, gpus=1)],
                check_weights=False,
                calibrated=self.options.calibration is not None,
                refuse_idle=False,
            )
        except ResourceError as error:
            return GpuChoice(gpu=name, profile="", memory_gb=gpu.memory_gb, why_not=str(error))
        on_gpu = [[step for step in wave.own if step.placement.device != "cpu"] for wave in plan.waves]
        works, unknown = self.counter.count(plan)
        settings = {name: step.settings for name, step in self._ran.items()}
        changed = [one.name for one in plan.first if settings_of(one.facts) != settings.get(one.name)]
        known = [step for wave in on_gpu for step in wave if step.name in works]
        steps = [self._choose_step(step, works[step.name], gpu, changed) for step in known]
        bounds = [works[step.step].bound(gpu, step.batch) * self._ran[step.step].chosen for step in steps]
        bound = float(sum(bounds, np.zeros(3)).max())
        choice = GpuChoice(
            gpu=name,
            profile=profile_name,
            memory_gb=gpu.memory_gb,
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

    def _choose_step(self, step: Step, work: GpuWork, gpu: GpuSpecs, changed: Sequence[str]) -> StepChoice:
        batch, settings = step.placement.batch, settings_of(step.facts)
        known_settings, known = self.measured.get(step.name, ("", None))
        is_known = known is not None and known_settings == settings
        least = float(work.bound(gpu, batch).max())
        seconds = None  # the run's rows gave the model nothing, such as no mask
        if least and known is not None and is_known:
            seconds = known.on(gpu, work, batch)
        elif least:
            seconds = guess(work, batch, gpu, compiled=step.placement.compile)
        return StepChoice(
            step=step.name,
            batch=batch,
            gb=step.placement.vram_gb,
            flops=work.flops,
            bound=1 / least if least else None,
            seconds=seconds,
            measured=is_known,
            items=work.items,
            after=sorted(name for name in step.depends if work.items and name in changed),
        )

    def _estimate(self, choice: GpuChoice, plan: Plan, gpu: GpuSpecs) -> GpuChoice:
        waves = {end: self._time_waves(choice, plan, end) for end in OTHER_END}
        rate = Interval.each(lambda end: _compute_rate(waves[OTHER_END[end]], self.cores))
        hours = Interval.each(lambda end: getattr(self.rows, end) / getattr(rate, OTHER_END[end]) / 3600)
        kwh = hours.by(gpu.watts / 1000)
        return replace(
            choice,
            rate=rate,
            limit=", then ".join(wave.limit(self.cores) for wave in waves["central"]),
            helps=_find_help(waves["central"], self.cores),
            hours=hours,
            kwh=kwh,
            money=self.prices.of(choice.gpu, hours, kwh),
        )

    def _time_waves(self, choice: GpuChoice, plan: Plan, end: str) -> list[WaveSeconds]:
        """Return the seconds of a row in each wave, at one end of their intervals; conditions choose as in the run."""
        ran = self._ran
        on_gpu = {step.step: ran[step.step].chosen * getattr(step.seconds, end, 0.0) for step in choice.steps}

        def host_s(name: str) -> float:
            left_out = (MODEL, *COPIES) if name in on_gpu else ()
            taken = sum(s for phase, s in ran[name].sample.phases.items() if phase not in left_out)
            return ran[name].chosen * taken * float(getattr(time_spread(ran[name]), end))

        members = [[DECODE, *(step.name for step in wave.own if step.name in ran)] for wave in plan.waves]
        return [
            WaveSeconds(
                host={name: host_s(name) for name in names},
                on_gpu={name: on_gpu[name] for name in names if name in on_gpu},
            )
            for names in members
        ]


@dataclass(frozen=True, kw_only=True)
class WaveSeconds:
    """Seconds of a row in one reading of the media, by step."""

    host: Mapping[str, float]  # on one core, decoding included
    on_gpu: Mapping[str, float]

    def seconds(self, cores: float, gpus: int = 1) -> float:
        """Return the seconds of a row: GPU and cores work at the same time."""
        return max(sum(self.on_gpu.values()) / gpus, sum(self.host.values()) / cores, 1e-9)

    def filling(self, cores: float) -> Mapping[str, float]:
        """Return the seconds by step of the slower side: the GPU or the cores."""
        is_gpu = sum(self.on_gpu.values()) > sum(self.host.values()) / cores
        return self.on_gpu if is_gpu else self.host

    def limit(self, cores: float) -> str:
        """Return the limit in words: the GPU, or the cores with the steps that fill them."""
        filling = self.filling(cores)
        if filling is self.on_gpu:
            return GPU
        whole = sum(filling.values())
        return f"the cores ({', '.join(name for name, seconds in filling.items() if seconds >= _NAMED * whole)})"


def _compute_rate(waves: Sequence[WaveSeconds], cores: float, gpus: int = 1) -> float:
    return 1 / sum(wave.seconds(cores, gpus) for wave in waves)


def _find_help(waves: Sequence[WaveSeconds], cores: float) -> dict[str, float]:
    """Return the rate's factors for a second GPU, twice the cores, and half the rows of costly steps."""
    rate = _compute_rate(waves, cores)
    factors = {MORE_CORES: _compute_rate(waves, 2 * cores) / rate}
    if any(wave.on_gpu for wave in waves):
        factors[ONE_MORE] = _compute_rate(waves, cores, gpus=2) / rate
    for filling in (wave.filling(cores) for wave in waves):
        name = max(filling, key=lambda step: filling[step])
        if name != DECODE:
            sides = [({**wave.host}, {**wave.on_gpu}) for wave in waves]
            for side in (side for both in sides for side in both if name in side):
                side[name] /= 2
            fewer = [WaveSeconds(host=host, on_gpu=on_gpu) for host, on_gpu in sides]
            factors[f"`where:` for half the rows of {name}"] = _compute_rate(fewer, cores) / rate
    return dict(sorted(factors.items(), key=lambda pair: -pair[1]))
