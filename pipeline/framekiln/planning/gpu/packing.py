"""Layouts of steps in waves within a GPU's memory; all of them are tried while there are few steps.

If the rates of all steps are known, the layout that is fastest by the estimate is best. Otherwise, and among equally
fast ones, it is the layout with the fewest waves, since each wave decodes everything again. The next criterion is the
likeness to the profile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from framekiln.planning.gpu.co_location import GpuCapacity, Processes, WaveLayout, lay_out, total
from framekiln.planning.gpu.requirements import Requirement
from framekiln.planning.lineage import ordered
from framekiln.planning.processes.waves import processes
from framekiln.planning.step import Step

_EQUAL = 1.03  # ratio of estimates below which their difference means nothing
_MOST_TRIED = 7  # steps: their 877 partitions take 0.1 s; more steps are laid out one after the other


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Waves in their order."""

    waves: tuple[WaveLayout, ...]
    departures: int  # waves with other processes than the profile's

    def seconds(self, capacity: GpuCapacity) -> float | None:
        """Return the seconds of all waves; None if a step was not measured."""
        return total([wave.seconds(capacity) for wave in self.waves])

    def rate(self, capacity: GpuCapacity) -> float | None:
        """Return the rows a second through all waves; None if a step was not measured."""
        seconds = self.seconds(capacity)
        return capacity.rows / seconds if seconds else None


def layouts(requirements: Sequence[Requirement], steps: Sequence[Step], capacity: GpuCapacity) -> list[Layout]:
    """Return all layouts that fit, the best first.

    The steps with requirements are on the GPU, producers before readers. Others of the first pass run on the CPU, and
    may have to run between them.
    """
    if len(requirements) > _MOST_TRIED:
        ways = [_fill_in_order(requirements, capacity)]
    else:
        ways = [order for blocks in _partition(list(requirements)) if (order := _order(blocks)) is not None]
    tried = (layout(blocks, steps, capacity) for blocks in ways)
    fitting = sorted((each for each in tried if each is not None), key=_rank)
    if not fitting or not all(each.measured for each in requirements):
        return fitting
    seconds = {id(each): each.seconds(capacity) or 0.0 for each in fitting}
    enough = _EQUAL * min(seconds.values())
    fitting.sort(key=lambda each: seconds[id(each)])
    best = min((each for each in fitting if seconds[id(each)] <= enough), key=_rank)
    return [best, *(each for each in fitting if each is not best)]


def _rank(candidate: Layout) -> tuple[int, int]:
    return len(candidate.waves), candidate.departures


def layout(blocks: Sequence[Sequence[Requirement]], steps: Sequence[Step], capacity: GpuCapacity) -> Layout | None:
    """Return the waves of given steps, each in its best processes; None if one does not fit."""
    waves = [wave for block in blocks if (wave := _choose_wave(block, steps, capacity)) is not None]
    if len(waves) < len(blocks):
        return None
    departures = sum(wave.processes != _group_as_stated(block) for wave, block in zip(waves, blocks, strict=True))
    return Layout(waves=tuple(waves), departures=departures)


def _choose_wave(block: Sequence[Requirement], steps: Sequence[Step], capacity: GpuCapacity) -> WaveLayout | None:
    """Return the best of three: processes as the profile groups them, one for each step, or one for all."""
    names = tuple(each.name for each in block)
    ways: list[Processes] = [_group_as_stated(block), tuple((name,) for name in names)]
    if len({each.workers for each in block}) == 1 and _can_share(names, steps):
        ways.append((names,))
    fitting = [wave for way in dict.fromkeys(ways) if (wave := lay_out(block, way, capacity)) is not None]
    if all(each.measured for each in block):
        return min(fitting, key=lambda wave: wave.seconds(capacity) or 0.0, default=None)
    return fitting[0] if fitting else None


def _group_as_stated(block: Sequence[Requirement]) -> Processes:
    return tuple(tuple(step.name for step in members) for members in processes(each.step for each in block).values())


def _can_share(names: Sequence[str], steps: Sequence[Step]) -> bool:
    """Return whether the named steps can share a process: no other step must run between them."""
    members = set(names)
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
    """Return blocks filled in order: a step joins the last one if that fits, else it starts another."""
    blocks: list[list[Requirement]] = []
    for each in requirements:
        if blocks and lay_out([*blocks[-1], each], _group_as_stated([*blocks[-1], each]), capacity) is not None:
            blocks[-1].append(each)
        else:
            blocks.append([each])
    return blocks
