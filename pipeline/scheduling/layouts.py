"""Ways to lay steps out in waves that keep to a card's memory; all of them are tried while there are few steps.

Of steps whose rates are known, the way that is fastest by the estimate is best. Where that does not decide, it is the
one with the fewest waves, since each decodes everything again, and then the one that is most like the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.grouping import process_of
from pipeline.scheduling.asks import Ask
from pipeline.scheduling.sharing import Processes, Room, Sharing, share
from pipeline.step import Step

_EQUAL = 1.03  # estimates that differ by less say nothing
_MOST_TRIED = 7  # steps, whose 877 partitions take a tenth of a second; more are laid out one after the other


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Waves in their order."""

    waves: tuple[Sharing, ...]
    departures: int  # waves whose processes are others than the profile's

    def seconds(self, room: Room) -> float | None:
        """Of all waves; None where nobody has measured."""
        each = [wave.seconds(room) for wave in self.waves]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None

    def rate(self, room: Room) -> float | None:
        """Rows a second through all waves."""
        seconds = self.seconds(room)
        return room.rows / seconds if seconds else None


def layouts(asks: Sequence[Ask], steps: Sequence[Step], room: Room) -> list[Layout]:
    """All that fit, the best first.

    Args:
        asks: of steps on the card, producers before readers.
        steps: all of the first pass, which stand between them.
        room: what there is.
    """
    found = [one for blocks in _partitions(asks, room) if (one := layout(blocks, steps, room)) is not None]
    found.sort(key=lambda one: (len(one.waves), one.departures))
    if not found or not all(ask.measured for ask in asks):
        return found
    seconds = {id(one): one.seconds(room) or 0.0 for one in found}
    enough = _EQUAL * min(seconds.values())
    found.sort(key=lambda one: seconds[id(one)])
    best = min((one for one in found if seconds[id(one)] <= enough), key=lambda one: (len(one.waves), one.departures))
    return [best, *(one for one in found if one is not best)]


def layout(blocks: Sequence[Sequence[Ask]], steps: Sequence[Step], room: Room) -> Layout | None:
    """Waves of given steps, each in the processes that suit best; None where one does not fit."""
    waves = [wave for block in blocks if (wave := _best(block, steps, room)) is not None]
    if len(waves) < len(blocks):
        return None
    departures = sum(wave.processes != _stated(block) for wave, block in zip(waves, blocks, strict=True))
    return Layout(waves=tuple(waves), departures=departures)


def _best(block: Sequence[Ask], steps: Sequence[Step], room: Room) -> Sharing | None:
    """A wave of some steps in the processes that suit best; None where they do not fit in any."""
    names = tuple(ask.name for ask in block)
    ways: list[Processes] = [_stated(block), tuple((name,) for name in names)]
    if len({ask.workers for ask in block}) == 1 and _can_share(names, steps):
        ways.append((names,))
    fitting = [found for way in dict.fromkeys(ways) if (found := share(block, way, room)) is not None]
    if all(ask.measured for ask in block):
        return min(fitting, key=lambda one: one.seconds(room) or 0.0, default=None)
    return fitting[0] if fitting else None


def _stated(block: Sequence[Ask]) -> Processes:
    """As the profile groups them."""
    groups: dict[str, list[str]] = {}
    for ask in block:
        groups.setdefault(process_of(ask.step), []).append(ask.name)
    return tuple(tuple(members) for members in groups.values())


def _can_share(names: Sequence[str], steps: Sequence[Step]) -> bool:
    """Whether no other step must run between them."""
    members = set(names)
    between = [step.name for step in steps if step.name not in members and step.depends & members]
    return not any(step.depends & set(between) for step in steps if step.name in members)


def _partitions(asks: Sequence[Ask], room: Room) -> Iterator[list[list[Ask]]]:
    """Ways to put steps into waves, each in an order in which producers come first."""
    if len(asks) > _MOST_TRIED:
        yield _one_by_one(asks, room)
        return
    for blocks in _set_partitions(list(asks)):
        ordered = _ordered(blocks)
        if ordered is not None:
            yield ordered


def _set_partitions(asks: list[Ask]) -> Iterator[list[list[Ask]]]:
    if not asks:
        yield []
        return
    *rest, last = asks
    for blocks in _set_partitions(rest):
        for i, block in enumerate(blocks):
            yield [*blocks[:i], [*block, last], *blocks[i + 1 :]]
        yield [*blocks, [last]]


def _ordered(blocks: list[list[Ask]]) -> list[list[Ask]] | None:
    """Blocks so that nobody reads what a later one makes; None where two read each other."""
    left, done = list(blocks), set[str]()
    everybody = {ask.name for block in blocks for ask in block}
    result: list[list[Ask]] = []
    while left:
        for block in left:
            own = {ask.name for ask in block}
            if all((ask.step.depends & everybody) - own <= done for ask in block):
                break
        else:
            return None
        left.remove(block)
        result.append(block)
        done |= {ask.name for ask in block}
    return result


def _one_by_one(asks: Sequence[Ask], room: Room) -> list[list[Ask]]:
    """Each step into the last wave while that fits, at its smallest; else into a new one."""
    blocks: list[list[Ask]] = []
    for ask in asks:
        if blocks and share([*blocks[-1], ask], _stated([*blocks[-1], ask]), room) is not None:
            blocks[-1].append(ask)
        else:
            blocks.append([ask])
    return blocks
