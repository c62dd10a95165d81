"""Steps on a GPU at the same time: their needs, processes and batches, and the resulting memory and speed.

The needs of a step at each batch come from a calibration, or from its profile.

The GPU serves one process after the other, so GPU seconds add up. A process's work on its own cores overlaps with this.
A wave is as slow as the slowest of three: the GPU, one process, decoding.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from framekiln.contract.stage import Scope
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.step import Step

FRAGMENTS = 1.15  # memory held by torch's allocator for each allocated byte, as a rule
IN_FLIGHT_GB = 0.4  # for each further packet in work: 128 MB of pixels, and four times 64 MB as float32
_ON_GPU = ("upload", "infer", "download")


@dataclass(frozen=True, kw_only=True)
class BatchOption:
    """One batch of a step in one process, with its cost."""

    batch: int
    gb: float  # peak GPU memory, without the process's context
    gpu_s: float | None = None  # GPU seconds a row; None: not measured
    own_s: float | None = None  # process seconds a row, GPU seconds included


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A step with its Pareto-optimal batches: none needs more memory than a faster one. One is in use."""

    step: Step
    options: tuple[BatchOption, ...]  # fastest first
    workers: int  # processes on one GPU, by the profile
    fixed_workers: bool = False  # set by --set for this run
    set_up_s: float = 0.0
    held_gb: float = 0.0  # part of `gb` kept between calls: its weights
    used: int = 0  # index of the option in use

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def measured(self) -> bool:
        return self.options[0].own_s is not None

    @property
    def option(self) -> BatchOption:
        return self.options[self.used]

    @property
    def kept_gb(self) -> float:
        """Memory kept between calls."""
        return min(self.held_gb, self.option.gb)

    @property
    def call_gb(self) -> float:
        """Further memory of calls."""
        return self.option.gb - self.kept_gb

    @property
    def process_s(self) -> float:
        """A process's seconds a row; with several packets in work, its own work overlaps with the GPU's."""
        return max(self.option.gpu_s or 0.0, (self.option.own_s or 0.0) / self.step.placement.in_flight)


def stated(step: Step, workers: int, gb: float) -> Requirement:
    """Return the requirement stated by the profile: one batch with an unknown rate."""
    option = BatchOption(batch=step.placement.batch, gb=gb)
    return Requirement(step=step, options=(option,), workers=workers, held_gb=gb)


def measured(step: Step, figures: StepFigures, workers: int, pinned: Collection[str]) -> Requirement:
    """Return the requirement from a calibration.

    If the calibration's rows had none of the step's items, the profile's memory is the minimum. `pinned`: keys of the
    placement set by --set for this run.
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
    """Return the memory that torch holds at a batch: the fitted line at the largest images, plus its error."""
    ratios = [each.reserved_gb / each.peak_gb for each in figures.trials if each.peak_gb and each.reserved_gb]
    held = max(1.0, min(max(ratios, default=1.0), FRAGMENTS * FRAGMENTS))  # weights stay in the allocator
    if figures.memory is None:
        return figures.weights_gb * held
    largest = max(trial.megapixels for trial in figures.trials)
    return (figures.memory.at(batch, largest) + figures.memory.error_gb) * held


Processes = tuple[tuple[Requirement, ...], ...]
"""Steps grouped by process."""


@dataclass(frozen=True, kw_only=True)
class GpuCapacity:
    """The resources of one wave."""

    limit_gb: float  # memory of one GPU, for all workers together
    context_gb: float  # memory of each process before it allocates anything
    decode_s: float | None = None  # seconds a row, all decode workers together; None: not measured
    rows: int = 10_000  # rows that share the set-up times
    cpus: float = 0.0  # free cores for further workers

    def holds(self, gb: float) -> bool:
        return gb <= self.limit_gb + 1e-9


@dataclass(frozen=True, kw_only=True)
class WaveLayout:
    """One wave."""

    processes: Processes
    gb: float  # contexts included
    departs: bool = False  # its processes differ from the profile's

    @property
    def members(self) -> tuple[Requirement, ...]:
        return tuple(chain.from_iterable(self.processes))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def title(self) -> str:
        return " and ".join(" + ".join(member.name for member in sharing) for sharing in self.processes)

    @property
    def gpu_s(self) -> float | None:
        """GPU seconds a row; None if a step was not measured."""
        return total([member.option.gpu_s for member in self.members])

    def budgets(self) -> dict[str, float]:
        """Return each step's memory limit in GB; their sum over a process is its limit without the context."""
        limits: dict[str, float] = {}
        for sharing in self.processes:
            share = max(member.call_gb for member in sharing) / len(sharing)
            limits |= {member.name: member.kept_gb + share for member in sharing}
        return limits

    def limits(self, capacity: GpuCapacity) -> dict[str, float] | None:
        """Return the seconds a row of each possible bottleneck; None if a step was not measured."""
        if (gpu_s := self.gpu_s) is None:
            return None
        limits = {"the GPU": gpu_s}
        for sharing in self.processes:
            limits["+".join(each.name for each in sharing)] = sum(each.process_s / each.workers for each in sharing)
        return limits | ({"decoding": capacity.decode_s} if capacity.decode_s is not None else {})

    def seconds(self, capacity: GpuCapacity) -> float | None:
        """Return the seconds of the whole wave; None if a step was not measured."""
        limits = self.limits(capacity)
        if limits is None:
            return None
        return capacity.rows * max(limits.values()) + max(member.set_up_s for member in self.members)


def lay_out(processes: Processes, capacity: GpuCapacity) -> WaveLayout | None:
    """Lay processes out in one wave, as fast as the GPU's memory allows; None if they do not fit.

    It starts from the fastest batches. Then it reduces the batch that frees most memory for the least time, until all
    fit. Then the slowest process gets workers while it is the bottleneck, and cores and memory allow.
    """
    while not capacity.holds(gb := _sum_gb(processes, capacity)):
        larger = [each for each in chain.from_iterable(processes) if each.used + 1 < len(each.options)]
        if not larger:
            return None
        best = min(larger, key=lambda each: _compute_price(each.option, each.options[each.used + 1]))
        processes = _exchange(processes, best, replace(best, used=best.used + 1))
    layout, cpus = WaveLayout(processes=processes, gb=gb), capacity.cpus
    while (limits := layout.limits(capacity)) is not None:
        slowest = max(limits, key=lambda name: limits[name])
        member = next((member for member in layout.members if member.name == slowest), None)
        if member is None or member.fixed_workers or member.step.placement.cpus > cpus:
            break
        more = _exchange(layout.processes, member, replace(member, workers=member.workers + 1))
        if not capacity.holds(gb := _sum_gb(more, capacity)):
            break
        layout = WaveLayout(processes=more, gb=gb)
        cpus -= member.step.placement.cpus
    return layout


def _exchange(processes: Processes, old: Requirement, new: Requirement) -> Processes:
    return tuple(tuple(new if each is old else each for each in sharing) for sharing in processes)


def _sum_gb(processes: Processes, capacity: GpuCapacity) -> float:
    """Return the memory of all processes: a process holds all its weights, and its steps take turns with the rest."""
    gb = 0.0
    for sharing in processes:
        held, call = sum(member.kept_gb for member in sharing), max(member.call_gb for member in sharing)
        gb += max(member.workers for member in sharing) * (held + call + capacity.context_gb)
    return gb


def _compute_price(before: BatchOption, after: BatchOption) -> float:
    return ((after.own_s or 0.0) - (before.own_s or 0.0)) / max(1e-9, before.gb - after.gb)


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of values; None if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(frozen=True, kw_only=True)
class MemoryNeeds:
    """The GB that a wave's models need by arithmetic, by cause; `plan` shows them beside a profile's limits.

    Each stage counts its model's weights and its largest call (`Stage.gpu_memory`), checked against torch's own counts.
    Packets in work and contexts are the same for all models. Memory that torch holds between calls is excluded.
    """

    weights_gb: float
    call_gb: float  # the largest call of each process
    largest: str  # the step with the largest of these
    packets_gb: float
    contexts_gb: float

    @property
    def gb(self) -> float:
        return self.weights_gb + self.call_gb + self.packets_gb + self.contexts_gb

    @classmethod
    def of(cls, wave: WaveLayout, capacity: GpuCapacity) -> "MemoryNeeds | None":
        """Return a wave's needs; None if a model was not counted in its precision."""
        counted = {each.name: each.step.stage.gpu_memory(each.step.placement) for each in wave.members}
        known = {name: memory for name, memory in counted.items() if memory is not None}
        if len(known) < len(counted) or not all(each.step.placement.is_16_bit for each in wave.members):
            return None
        weights = calls = packets = contexts = 0.0
        for sharing in wave.processes:
            workers = max(each.workers for each in sharing)
            copies = {}  # steps with the same weights and precision share one copy
            for each in sharing:
                place = each.step.placement
                copies[each.step.stage.weights, place.precision, place.compile] = known[each.name].weights_gb
            weights += workers * sum(copies.values())
            calls += workers * max(known[each.name].call_gb for each in sharing)
            packets += workers * IN_FLIGHT_GB * max(each.step.placement.in_flight for each in sharing)
            contexts += workers * capacity.context_gb
        largest = max(known, key=lambda name: known[name].call_gb)
        return cls(weights_gb=weights, call_gb=calls, largest=largest, packets_gb=packets, contexts_gb=contexts)
