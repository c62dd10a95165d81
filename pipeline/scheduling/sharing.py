"""Steps that are on a card at one time: in which processes, at which batches, what they take, and how fast they are.

A card works for one process after the other, so that its seconds add up; what a process does on its own cores goes on
beside that. A wave is as slow as the slowest of three: the card, one process, the loaders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.scheduling.asks import Ask, Option

Processes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is."""

    limit_gb: float  # of one card, for all workers together
    context_gb: float  # that a process takes before it allocates anything
    decode_s: float | None = None  # seconds a row, by all loaders together; None: nobody has measured
    rows: int = 10_000  # that the cost of a wave is spread over
    cpus: float = 0.0  # cores that further workers may take


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A step as it runs there."""

    ask: Ask
    option: Option
    workers: int

    @property
    def held_gb(self) -> float:
        """What it keeps between calls."""
        return min(self.ask.held_gb, self.option.gb)

    @property
    def turns_gb(self) -> float:
        """What its calls take besides."""
        return self.option.gb - self.held_gb


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """One wave."""

    seats: tuple[Seat, ...]
    processes: Processes  # names of steps
    gb: float  # with contexts

    @property
    def names(self) -> tuple[str, ...]:
        """Of its steps."""
        return tuple(seat.ask.name for seat in self.seats)

    @property
    def card_s(self) -> float | None:
        """Seconds of the card a row; None where nobody has measured."""
        return _sum([seat.option.card_s for seat in self.seats])

    def budgets(self) -> dict[str, float]:
        """GB that each step may have in its process; together what that may hold besides its context."""
        found = {}
        for members in self.processes:
            mine = [seat for seat in self.seats if seat.ask.name in members]
            for seat in mine:
                found[seat.ask.name] = seat.held_gb + max(one.turns_gb for one in mine) / len(mine)
        return found

    def limits(self, room: Room) -> dict[str, float] | None:
        """Seconds a row by what could hold it up; None where nobody has measured."""
        seats, card = {seat.ask.name: seat for seat in self.seats}, self.card_s
        if card is None:
            return None
        found = {"the card": card}
        for members in self.processes:
            own = [(seats[name].option.own_s or 0.0) / seats[name].workers for name in members]
            found["+".join(members)] = sum(own)
        return found | ({"decoding": room.decode_s} if room.decode_s is not None else {})

    def seconds(self, room: Room) -> float | None:
        """Of the whole wave; None where nobody has measured."""
        limits = self.limits(room)
        if limits is None:
            return None
        return room.rows * max(limits.values()) + max(seat.ask.set_up_s for seat in self.seats)


def share(asks: Sequence[Ask], processes: Processes, room: Room) -> Sharing | None:
    """Some steps together, as fast as the card's memory allows; None where they do not fit it at all.

    From the fastest batches on, the one is made smaller that gives most memory for the least time.
    """
    seats = {ask.name: Seat(ask=ask, option=ask.options[0], workers=ask.workers) for ask in asks}
    while _gb(seats, processes, room) > room.limit_gb + 1e-9:
        smaller = [found for seat in seats.values() if (found := _smaller(seat)) is not None]
        if not smaller:
            return None
        seat = min(smaller, key=lambda one: _price(seats[one.ask.name], one))
        seats[seat.ask.name] = seat
    return _helped(_made(seats, processes, room), room)


def _made(seats: Mapping[str, Seat], processes: Processes, room: Room) -> Sharing:
    return Sharing(seats=tuple(seats.values()), processes=processes, gb=_gb(seats, processes, room))


def _gb(seats: Mapping[str, Seat], processes: Processes, room: Room) -> float:
    """Of all processes: members of one hold their weights together, and share the rest, since they take turns."""
    total = 0.0
    for members in processes:
        mine = [seats[name] for name in members]
        held, turns = sum(seat.held_gb for seat in mine), max(seat.turns_gb for seat in mine)
        total += max(seat.workers for seat in mine) * (held + turns + room.context_gb)
    return total


def _smaller(seat: Seat) -> Seat | None:
    """Its next way to run, that takes less."""
    at = seat.ask.options.index(seat.option) + 1
    if at == len(seat.ask.options):
        return None
    return Seat(ask=seat.ask, option=seat.ask.options[at], workers=seat.workers)


def _price(before: Seat, after: Seat) -> float:
    """Seconds a row for each GB that it gives."""
    lost = (after.option.own_s or 0.0) - (before.option.own_s or 0.0)
    return lost / max(1e-9, before.option.gb - after.option.gb)


def _helped(found: Sharing, room: Room) -> Sharing:
    """With further workers for the slowest process, as long as that is what holds all up, and there is room."""
    cpus = room.cpus
    while (limits := found.limits(room)) is not None:
        slowest = max(limits, key=lambda name: limits[name])
        seat = next((seat for seat in found.seats if seat.ask.name == slowest), None)
        if seat is None or seat.ask.fixed_workers or seat.ask.step.placement.cpus > cpus:
            return found
        more = Seat(ask=seat.ask, option=seat.option, workers=seat.workers + 1)
        seats = {one.ask.name: more if one is seat else one for one in found.seats}
        if _gb(seats, found.processes, room) > room.limit_gb + 1e-9:
            return found
        found, cpus = _made(seats, found.processes, room), cpus - seat.ask.step.placement.cpus
    return found


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
