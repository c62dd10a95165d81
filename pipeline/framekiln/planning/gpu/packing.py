"""Layouts of steps in waves within a GPU's memory, and the reasons for the best one, for `framekiln plan`.

All layouts are tried while there are few steps.

If all steps' rates are known, the layout with the fastest estimate is best. Otherwise, and among equally fast ones, the
layout with the fewest waves is best, since each wave decodes everything again. The next criterion is the similarity to
the profile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.gpu.co_location import (
    GpuCapacity,
    MemoryNeeds,
    Processes,
    Requirement,
    WaveLayout,
    lay_out,
    total,
)
from framekiln.planning.lineage import ordered
from framekiln.planning.processes.waves import process_name
from framekiln.planning.step import Step

_EQUAL = 1.03  # ratio of estimates below which they count as equal
_MOST_TRIED = 7  # steps: their 877 partitions take 0.1 s; more steps are laid out one after the other


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Waves in order."""

    waves: tuple[WaveLayout, ...]

    @property
    def rank(self) -> tuple[int, int]:
        """The number of waves, and of those unlike the profile: among equally fast layouts the least wins."""
        return len(self.waves), sum(wave.departs for wave in self.waves)

    def seconds(self, capacity: GpuCapacity) -> float | None:
        return total([wave.seconds(capacity) for wave in self.waves])

    def rate(self, capacity: GpuCapacity) -> float | None:
        """Return the rows a second through all waves; None if a step was not measured."""
        seconds = self.seconds(capacity)
        return capacity.rows / seconds if seconds else None


def layouts(requirements: Sequence[Requirement], steps: Sequence[Step], capacity: GpuCapacity) -> list[Layout]:
    """Return all layouts that fit, best first.

    Steps with requirements run on the GPU, producers before readers. Other first-pass steps run on the CPU, perhaps
    between them.
    """
    if len(requirements) > _MOST_TRIED:
        ways = [_fill_in_order(requirements, capacity)]
    else:
        ways = [order for blocks in _partition(list(requirements)) if (order := _order(blocks)) is not None]
    tried = (layout(blocks, steps, capacity) for blocks in ways)
    fitting = sorted((each for each in tried if each is not None), key=lambda each: each.rank)
    if not fitting or not all(each.measured for each in requirements):
        return fitting
    seconds = {id(each): each.seconds(capacity) or 0.0 for each in fitting}
    enough = _EQUAL * min(seconds.values())
    fitting.sort(key=lambda each: seconds[id(each)])
    best = min((each for each in fitting if seconds[id(each)] <= enough), key=lambda each: each.rank)
    return [best, *(each for each in fitting if each is not best)]


def layout(blocks: Sequence[Sequence[Requirement]], steps: Sequence[Step], capacity: GpuCapacity) -> Layout | None:
    """Return the waves of given steps, each in its best processes; None if one does not fit."""
    waves = [wave for block in blocks if (wave := _choose_wave(block, steps, capacity)) is not None]
    return Layout(waves=tuple(waves)) if len(waves) == len(blocks) else None


def _choose_wave(block: Sequence[Requirement], steps: Sequence[Step], capacity: GpuCapacity) -> WaveLayout | None:
    """Return the best of three: processes as the profile groups them, one for each step, or one for all."""
    as_stated, ways = _group_as_stated(block), list[Processes]([tuple((each,) for each in block)])
    if len({each.workers for each in block}) == 1 and _can_share({each.name for each in block}, steps):
        ways.append((tuple(block),))
    ways = [as_stated, *(way for way in ways if way != as_stated)]
    found = ((way, lay_out(way, capacity)) for way in ways)
    fitting = [replace(wave, departs=way is not as_stated) for way, wave in found if wave is not None]
    if all(each.measured for each in block):
        return min(fitting, key=lambda wave: wave.seconds(capacity) or 0.0, default=None)
    return fitting[0] if fitting else None


def _group_as_stated(block: Sequence[Requirement]) -> Processes:
    groups: dict[str, list[Requirement]] = {}
    for each in block:
        groups.setdefault(process_name(each.step), []).append(each)
    return tuple(map(tuple, groups.values()))


def _can_share(members: set[str], steps: Sequence[Step]) -> bool:
    """Return whether steps can share a process: no other step must run between them."""
    between = {step.name for step in steps if step.name not in members and step.depends & members}
    return not any(step.depends & between for step in steps if step.name in members)


def _partition(requirements: list[Requirement]) -> Iterator[list[list[Requirement]]]:
    if not requirements:
        yield []
        return
    *rest, last = requirements
    for blocks in _partition(rest):
        for i, block in enumerate(blocks):
            yield [*blocks[:i], [*block, last], *blocks[i + 1 :]]
        yield [*blocks, [last]]


def _order(blocks: list[list[Requirement]]) -> list[list[Requirement]] | None:
    """Return blocks with producers before readers; None if two blocks read each other."""
    home = {each.name: number for number, block in enumerate(blocks) for each in block}
    needs = [{home[name] for each in block for name in each.step.depends & home.keys()} for block in blocks]
    order, waiting = ordered({number: others - {number} for number, others in enumerate(needs)})
    return None if waiting else [blocks[number] for number in order]


def _fill_in_order(requirements: Sequence[Requirement], capacity: GpuCapacity) -> list[list[Requirement]]:
    """Return blocks filled in order: a step joins the last one if it fits, or starts another."""
    blocks: list[list[Requirement]] = []
    for each in requirements:
        if blocks and lay_out(_group_as_stated([*blocks[-1], each]), capacity) is not None:
            blocks[-1].append(each)
        else:
            blocks.append([each])
    return blocks


_TIMES = {1: "once", 2: "twice"}


def too_large(requirements: Sequence[Requirement], capacity: GpuCapacity) -> list[str]:
    """Return a sentence for each step that needs more memory than available."""
    most = max(0.0, capacity.limit_gb - capacity.context_gb)
    return [
        f"{each.name} needs {each.options[-1].gb:.3g} GB, but a process can get {most:.3g} of {capacity.limit_gb:.3g} "
        "GB at most: calls that do not fit are made smaller, and a row that does not fit alone becomes an error."
        for each in requirements
        if each.options[-1].gb > most + 1e-9
    ]


def reasons(best: Layout, capacity: GpuCapacity, calibration: Calibration | None, steps: Sequence[Step]) -> list[str]:
    """Return the reasons for a layout."""
    departure = (
        "The profile's processes do not fit, so models are grouped differently; each process has its own context."
    )
    return [
        *_tell_source(calibration, steps),
        *_count_memory(best, capacity),
        _tell_layout(best, capacity),
        *_tell_bottlenecks(best, capacity),
        *([departure] if any(wave.departs for wave in best.waves) and best.rate(capacity) is None else []),
    ]


def _tell_source(calibration: Calibration | None, steps: Sequence[Step]) -> list[str]:
    if calibration is None:
        return []
    sentences = [
        f"By the calibration of {calibration.device}, {calibration.made[:10]}: memory is measured, except for packets "
        "in work; rates are estimates."
    ]
    found = [(step, calibration.of(step)) for step in steps]
    if missing := [step.name for step, figures in found if figures is None]:
        sentences.append(f"It lacks figures of {', '.join(missing)} with these settings, so rates are not compared.")
    for step, figures in found:
        if figures is not None and figures.unseen:
            kinds, gb = " and ".join(figures.unseen), step.placement.vram_gb
            got = f"it gets the profile's {gb:.3g} GB" if gb else "it gets its measured memory"
            sentences.append(
                f"{step.name} was calibrated without {kinds}: {got}, and its rate is for rows without them."
            )
    return sentences


def _tell_layout(best: Layout, capacity: GpuCapacity) -> str:
    count = len(best.waves)
    waves = " | ".join(_tell_wave(wave, capacity) for wave in best.waves)
    rate = best.rate(capacity)
    estimate = f"; an estimate of {rate:.3g} rows/s for {capacity.rows:,} rows" if rate else ""
    if count == 1:
        return f"The GPU holds all its models together: {waves}{estimate}."
    return f"The first pass reads the media {_TIMES.get(count, f'{count} times')}: {waves}{estimate}."


def _count_memory(best: Layout, capacity: GpuCapacity) -> list[str]:
    """Return a sentence for each wave on its models' needs by arithmetic, beside the limits in use."""
    sentences = []
    for wave in best.waves:
        needs = MemoryNeeds.of(wave, capacity)
        if needs is None:
            continue
        more = "" if needs.gb <= capacity.limit_gb else "; calls that do not fit are made smaller"
        names = f"{', '.join(wave.names)} need{'s' * (len(wave.names) == 1)}"
        sentences.append(
            f"By arithmetic, not measured, {names} some {needs.gb:.2g} of {capacity.limit_gb:.3g} GB: "
            f"weights {needs.weights_gb:.2g}, the largest call {needs.call_gb:.2g} ({needs.largest}), packets in "
            f"work {needs.packets_gb:.2g}, contexts {needs.contexts_gb:.2g}{more}."
        )
    return sentences


def _tell_wave(wave: WaveLayout, capacity: GpuCapacity) -> str:
    contexts = sum(max(each.workers for each in sharing) for sharing in wave.processes)
    shared = f"{capacity.context_gb * contexts:.2g} of it for {contexts} process{'es' if contexts > 1 else ''}"
    limits = "" if all(each.measured for each in wave.members) else "limits of the profile, "
    return f"{wave.title} ({limits}{wave.gb:.3g} of {capacity.limit_gb:.3g} GB, {shared})"


def _tell_bottlenecks(best: Layout, capacity: GpuCapacity) -> list[str]:
    sentences = []
    for wave in best.waves:
        if (limits := wave.limits(capacity)) is None:
            continue
        slowest = max(limits, key=lambda name: limits[name])
        batches = ", ".join(_tell_batch(member) for member in wave.members)
        sentences.append(f"{batches}: {slowest} holds this wave to {1 / max(limits[slowest], 1e-12):.3g} rows/s.")
    return sentences


def _tell_batch(member: Requirement) -> str:
    workers = f", {member.workers} workers" if member.workers > 1 else ""
    fastest = member.options[0]
    less = f" instead of {fastest.batch}" if fastest.batch != member.option.batch else ""
    return f"{member.name} in batches of {member.option.batch}{less} ({member.option.gb:.3g} GB{workers})"
