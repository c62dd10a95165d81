"""The best layout of a plan's steps on a GPU, as placements, with the reasons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from framekiln.contract.errors import ResourceError
from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.gpu.co_location import GpuCapacity, MemoryNeeds, Requirement, WaveLayout, measured, stated
from framekiln.planning.gpu.packing import Layout, layout, layouts, reasons, too_large
from framekiln.planning.processes.resources import Node
from framekiln.planning.processes.waves import combined_placement, processes, wave_numbers
from framekiln.planning.step import DecodeStep, Step

CONTEXT_GB = 0.4  # GB, CUDA context of a process without a calibration: some 0.3 to 0.5 on GPUs of 2026
_GROUP = "card"  # name of the steps that the layout puts into one process; profiles use the same name
_LEAST_GB = 2.7  # of a limit: nine tenths of 3 GB, with which the largest shipped model has room for small calls
_USABLE = 0.9  # share of a calibrated GPU's memory: the display and fragmentation take the rest


@dataclass(frozen=True, kw_only=True)
class GpuSettings:
    """Settings for the GPU from the profile and the command line."""

    gpu_vram_gb: float | None = None  # for all workers on one GPU together; None: not set
    cap_gb: float | None = None  # --vram-cap: as if the GPU had only this
    waves: Sequence[Sequence[str]] | None = None  # None: chosen here
    pinned: Mapping[str, frozenset[str]]  # keys of a step's placement set by --set for this run
    calibration: Calibration | None = None

    @property
    def limit_gb(self) -> float | None:
        """Memory for all workers on one GPU; None: no limit."""
        size = self.calibration.gpu_vram_gb if self.calibration else None
        limit = self.gpu_vram_gb if self.gpu_vram_gb is not None or size is None else _USABLE * size
        return min((gb for gb in (limit, self.cap_gb) if gb is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """First-pass steps with their placements and waves."""

    steps: tuple[Step, ...]
    numbers: Mapping[str, int]
    reasons: tuple[str, ...] = ()


def schedule(steps: Sequence[Step], decode: DecodeStep, nodes: Sequence[Node], settings: GpuSettings) -> Schedule:
    """Lay first-pass steps out on GPUs: producers before readers, in the profile's placement.

    Workers are spread evenly over the GPUs of all nodes.

    Raises ResourceError: a wave in the profile does not fit, or the GPU has no room for any process. Raises
    ConfigError: waves are wrong; see `framekiln.planning.processes.waves`.
    """
    waves, limit = settings.waves or (), settings.limit_gb
    on_gpu = [step for step in steps if step.placement.device == "cuda"]
    if limit is None or not on_gpu:
        return Schedule(steps=tuple(steps), numbers=wave_numbers(steps, waves))
    gpus = max(1, round(sum(node.gpus for node in nodes)))
    capacity = _measure_capacity(steps, decode, nodes, settings, limit)
    wanted = [_make_requirement(step, gpus, capacity, settings) for step in on_gpu]
    limited = [_limit_options(each, capacity) for each in wanted]
    if settings.waves is None:
        candidates = layouts(limited, steps, capacity)
    else:
        numbers = wave_numbers(steps, waves)
        blocks = [[each for each in limited if numbers[each.name] == i] for i in sorted(set(numbers.values()))]
        candidates = [*filter(None, [layout([block for block in blocks if block], steps, capacity)])]
    if not candidates:
        raise _explain_refusal(limited, capacity, waves)
    _check_room(candidates[0], capacity)
    best = replace(candidates[0], waves=tuple(_raise(wave, capacity, settings) for wave in candidates[0].waves))
    placed = {member.name: _place(member, wave, gpus) for wave in best.waves for member in wave.members}
    return Schedule(
        steps=tuple(placed.get(step.name, step) for step in steps),
        numbers=wave_numbers(steps, waves or [wave.names for wave in best.waves]),
        reasons=(*too_large(wanted, capacity), *reasons(best, capacity, settings.calibration, on_gpu)),
    )


def _measure_capacity(
    steps: Sequence[Step], decode: DecodeStep, nodes: Sequence[Node], settings: GpuSettings, limit: float
) -> GpuCapacity:
    calibration = settings.calibration
    models = processes(step for step in steps if step.keeps_model).values()
    busy = sum(place.cpus * place.workers for place in map(combined_placement, models))
    free = sum(node.cpus for node in nodes) - busy
    decoders = max(1, min(decode.workers, int(free / decode.cpus)))  # more would not run, whatever the profile says
    rate = calibration.decode_rows_per_s if calibration else None
    return GpuCapacity(
        limit_gb=limit,
        context_gb=(calibration.context_gb if calibration else 0.0) or CONTEXT_GB,
        decode_s=1 / (rate * decoders) if rate else None,
        cpus=max(0.0, free - decode.cpus * decoders),
    )


def _make_requirement(step: Step, gpus: int, capacity: GpuCapacity, settings: GpuSettings) -> Requirement:
    workers = math.ceil(step.placement.workers / gpus)
    pinned = settings.pinned.get(step.name, frozenset())
    figures = settings.calibration.of(step) if settings.calibration else None
    if figures is not None and "vram_gb" not in pinned:
        return measured(step, figures, workers, pinned)
    gb = step.placement.vram_gb
    if not gb and settings.cap_gb is not None:  # unknown need: limited to the available memory
        gb = capacity.limit_gb - capacity.context_gb
    return stated(step, workers, gb)


def _limit_options(requirement: Requirement, capacity: GpuCapacity) -> Requirement:
    """Return the options that fit; a step that does not fit alone in a process gets all memory."""
    fitting = tuple(each for each in requirement.options if each.gb + capacity.context_gb <= capacity.limit_gb)
    if fitting and requirement.workers * (fitting[-1].gb + capacity.context_gb) <= capacity.limit_gb:
        return replace(requirement, options=fitting)
    if fitting:
        return replace(requirement, options=fitting, workers=1)
    most = max(0.0, capacity.limit_gb - capacity.context_gb)
    option = replace(requirement.options[-1], gb=most)
    return replace(requirement, options=(option,), workers=1, held_gb=min(requirement.held_gb, most))


def _raise(wave: WaveLayout, capacity: GpuCapacity, settings: GpuSettings) -> WaveLayout:
    """Return a wave with limits raised to its models' needs by arithmetic, as far as the GPU allows.

    A profile's limits are for all its steps in one process. A step alone would have only its own part, and too little
    for its packets in work.
    """
    needs = MemoryNeeds.of(wave, capacity)
    is_set = any(each.measured or "vram_gb" in settings.pinned.get(each.name, ()) for each in wave.members)
    if needs is None or is_set or (limit := wave.gb - needs.contexts_gb) <= 0:
        return wave
    factor = max(1.0, (min(needs.gb, capacity.limit_gb) - needs.contexts_gb) / limit)

    def raised(each: Requirement) -> Requirement:
        option = replace(each.option, gb=factor * each.option.gb)
        return replace(each, options=(option,), used=0, held_gb=factor * each.held_gb)

    processes = tuple(tuple(map(raised, sharing)) for sharing in wave.processes)
    return replace(wave, processes=processes, gb=needs.contexts_gb + factor * limit)


def _check_room(best: Layout, capacity: GpuCapacity) -> None:
    """Raise ResourceError if smaller calls cannot help on a small GPU: weights and packets in work do not fit."""
    alone = [(each, WaveLayout(processes=((each,),), gb=0.0)) for wave in best.waves for each in wave.members]
    needs = {
        each.name: needs for each, wave in alone if (needs := MemoryNeeds.of(wave, capacity)) and not each.measured
    }
    least = {name: each.gb - each.call_gb for name, each in needs.items()}
    short = {name: gb for name, gb in least.items() if gb > capacity.limit_gb}
    if short and capacity.limit_gb < _LEAST_GB:
        raise ResourceError(
            f"{', '.join(f'{name} {gb:.2g} GB' for name, gb in short.items())}: weights, packets in work and a context "
            f"do not fit {capacity.limit_gb:.3g} GB of the GPU, by arithmetic; take `--profile cpu-only`.",
            code="FK-GPU-TOO-SMALL",
        )


def _explain_refusal(
    requirements: Sequence[Requirement], capacity: GpuCapacity, waves: Sequence[Sequence[str]]
) -> ResourceError:
    needs = ", ".join(f"{each.name} {each.options[-1].gb:.3g} GB" for each in requirements)
    needs = f"({needs}, and {capacity.context_gb:.2g} GB for each process)"
    if not waves:
        return ResourceError(
            f"No model fits {capacity.limit_gb:.3g} GB of the GPU {needs}; allow more by `vram_gb` or --vram-cap.",
            code="FK-GPU-TOO-SMALL",
        )
    return ResourceError(
        f"The waves {' | '.join(', '.join(wave) for wave in waves)} do not fit {capacity.limit_gb:.3g} GB of the GPU "
        f"{needs}; leave `waves` out of the profile to have them chosen.",
        code="FK-WAVES-DO-NOT-FIT",
    )


def _place(member: Requirement, wave: WaveLayout, gpus: int) -> Step:
    step, place, gb = member.step, member.step.placement, wave.budgets()[member.name]
    together = any(len(sharing) > 1 for sharing in wave.processes if member in sharing)
    changes: dict[str, Any] = {
        "group": (place.group or _GROUP) if together else "",
        "vram_gb": math.ceil(1000 * gb) / 1000 if gb else 0.0,
    }
    if member.workers != math.ceil(place.workers / gpus):
        changes["workers"] = member.workers * gpus
    if member.measured:
        changes["batch"] = member.option.batch
    if wave.gpu_s:
        share = (member.option.gpu_s or 0.0) / wave.gpu_s / member.workers
        changes["gpus"] = max(0.01, math.floor(100 * share) / 100)
    elif gpus > 1 and (booked := _count_booked(wave)):  # Ray puts two processes on one GPU if their shares fit it
        changes["gpus"] = max(0.01, math.floor(100 * place.gpus / booked) / 100)
    return step.placed(**changes)


def _count_booked(wave: WaveLayout) -> float:
    """Return the share of each GPU that all its processes book."""
    return sum(
        max(each.workers for each in sharing) * min(1.0, sum(each.step.placement.gpus for each in sharing))
        for sharing in wave.processes
    )
