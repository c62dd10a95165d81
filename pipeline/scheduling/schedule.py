"""The best layout of a plan's steps on a card, as placements, and why it is the best in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.calibration.figures import Calibration
from pipeline.errors import ResourceError
from pipeline.machines import Node
from pipeline.scheduling.asks import Ask, measured, stated
from pipeline.scheduling.layouts import Layout, layout, layouts
from pipeline.scheduling.reasons import reasons, too_large
from pipeline.scheduling.sharing import Room, Seat, Sharing
from pipeline.step import DecodeStep, Step
from pipeline.waves import numbered

CONTEXT_GB = 0.4  # that CUDA takes for each process, where no calibration tells: some 0.3 to 0.5 on cards of today
_GROUP = "card"
_USABLE = 0.9  # of a card that only its calibration tells of: the rest is left to the display and to fragmentation


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the profile and the command line say of the card."""

    vram_gb: float | None = None  # for all workers on one card together; None: nobody says
    cap_gb: float | None = None  # as if the card had no more
    waves: Sequence[Sequence[str]] | None = None  # None: to be chosen
    pinned: Mapping[str, frozenset[str]]  # by step, keys of its placement that somebody said for this run
    calibration: Calibration | None = None

    @property
    def limit_gb(self) -> float | None:
        """Of all workers on one card."""
        card = self.calibration.vram_gb if self.calibration else None
        said = self.vram_gb if self.vram_gb is not None or card is None else _USABLE * card
        return min((gb for gb in (said, self.cap_gb) if gb is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """First-pass steps as they are placed, and the wave of each."""

    steps: tuple[Step, ...]
    numbers: Mapping[str, int]
    reasons: tuple[str, ...] = ()


def schedule(steps: Sequence[Step], decode: DecodeStep, nodes: Sequence[Node], wishes: Wishes) -> Schedule:
    """Lay first-pass steps out on a card.

    Args:
        steps: producers before readers, placed as the profile says.
        decode: the loaders.
        nodes: the machines; workers are spread evenly over their cards.
        wishes: what else is said.

    Raises:
        ResourceError: a wave that the profile asks for does not fit.
        ConfigError: waves are wrong; see `pipeline.waves`.
    """
    said, limit = wishes.waves or (), wishes.limit_gb
    mine = [step for step in steps if step.placement.device == "cuda"]
    if limit is None or not mine:
        return Schedule(steps=tuple(steps), numbers=numbered(steps, said))
    cards = max(1, round(sum(node.gpus for node in nodes)))
    room = _room(steps, decode, nodes, wishes, limit)
    wanted = [_ask(step, cards, room, wishes) for step in mine]
    asks = [_clamped(ask, room) for ask in wanted]
    found = _asked(asks, steps, room, said) if wishes.waves is not None else layouts(asks, steps, room)
    if not found:
        raise ResourceError(_no_layout(asks, room, said))
    best = found[0]
    placed = {step.name: step for wave in best.waves for step in _placed(wave, cards)}
    numbers = numbered(steps, said or [wave.names for wave in best.waves])
    told = [*too_large(wanted, room), *reasons(found, room, wishes.calibration, mine)]
    return Schedule(steps=tuple(placed.get(step.name, step) for step in steps), numbers=numbers, reasons=tuple(told))


def _room(steps: Sequence[Step], decode: DecodeStep, nodes: Sequence[Node], wishes: Wishes, limit: float) -> Room:
    known = wishes.calibration
    busy = sum(step.placement.cpus * step.placement.workers for step in steps if step.keeps_model)
    free = sum(node.cpus for node in nodes) - busy
    loaders = max(1, min(decode.workers, int(free / decode.cpus)))  # no more run, whatever the profile asks for
    decoding = known.decode_rows_per_s if known else None
    return Room(
        limit_gb=limit,
        context_gb=(known.context_gb if known else 0.0) or CONTEXT_GB,
        decode_s=1 / (decoding * loaders) if decoding else None,
        cpus=max(0.0, free - decode.cpus * loaders),
    )


def _ask(step: Step, cards: int, room: Room, wishes: Wishes) -> Ask:
    workers, pinned = math.ceil(step.placement.workers / cards), wishes.pinned.get(step.name, frozenset())
    found = wishes.calibration.of(step) if wishes.calibration else None
    if found is not None and "vram_gb" not in pinned:
        return measured(step, found, workers, pinned)
    gb = step.placement.vram_gb
    if not gb and wishes.cap_gb is not None:  # nobody knows: it must not take more than there is
        gb = room.limit_gb - room.context_gb
    return stated(step, workers, gb)


def _clamped(ask: Ask, room: Room) -> Ask:
    """What does not fit alone, in one process, gets all there is."""
    fitting = tuple(one for one in ask.options if one.gb + room.context_gb <= room.limit_gb)
    if fitting and ask.workers * (fitting[-1].gb + room.context_gb) <= room.limit_gb:
        return replace(ask, options=fitting)
    if fitting:
        return replace(ask, options=fitting, workers=1)
    alone = max(0.0, room.limit_gb - room.context_gb)
    return replace(ask, options=(replace(ask.options[-1], gb=alone),), workers=1, held_gb=min(ask.held_gb, alone))


def _asked(asks: Sequence[Ask], steps: Sequence[Step], room: Room, said: Sequence[Sequence[str]]) -> list[Layout]:
    """The waves that the profile asks for."""
    numbers = numbered(steps, said)
    blocks = [[ask for ask in asks if numbers[ask.name] == i] for i in sorted(set(numbers.values()))]
    found = layout([block for block in blocks if block], steps, room)
    return [found] if found is not None else []


def _placed(wave: Sharing, cards: int) -> list[Step]:
    """A wave's steps, at the batches, in the processes and with the shares of the card that were chosen."""
    of = {name: members for members in wave.processes for name in members}
    gb = wave.budgets()
    return [_seated(seat, wave, gb[seat.ask.name], len(of[seat.ask.name]) > 1, cards) for seat in wave.seats]


def _seated(seat: Seat, wave: Sharing, gb: float, together: bool, cards: int) -> Step:
    step, place = seat.ask.step, seat.ask.step.placement
    group = (place.group or _GROUP) if together else ""
    if seat.workers != math.ceil(place.workers / cards):
        place = replace(place, workers=seat.workers * cards)
    if seat.ask.measured:
        place = replace(place, batch_rows=seat.option.batch)
    if wave.card_s:
        share = (seat.option.card_s or 0.0) / wave.card_s / seat.workers
        place = replace(place, gpus=max(0.01, math.floor(100 * share) / 100))
    return replace(step, placement=replace(place, vram_gb=math.ceil(1000 * gb) / 1000 if gb else 0.0, group=group))


def _no_layout(asks: Sequence[Ask], room: Room, said: Sequence[Sequence[str]]) -> str:
    needs = ", ".join(f"{ask.name} {ask.options[-1].gb:.3g} GB" for ask in asks)
    return (
        f"The waves {' | '.join(', '.join(wave) for wave in said)} do not fit {room.limit_gb:.3g} GB of the card "
        f"({needs}, and {room.context_gb:.2g} GB for each process); leave `waves` out of the profile to have them "
        "chosen."
    )
