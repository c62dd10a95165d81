"""Why steps are laid out on the card as they are, in sentences for `framemill plan`."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.calibration.figures import Calibration
from pipeline.scheduling.asks import Ask
from pipeline.scheduling.layouts import Layout
from pipeline.scheduling.sharing import Room, Seat, Sharing
from pipeline.step import Step

_OTHERS = 3  # layouts that are named beside the chosen one
_TIMES = {1: "once", 2: "twice"}


def too_large(asks: Sequence[Ask], room: Room) -> list[str]:
    """Steps that take more than there is."""
    alone = max(0.0, room.limit_gb - room.context_gb)
    return [
        f"{ask.name} asks for {ask.options[-1].gb:.3g} GB, and {alone:.3g} of {room.limit_gb:.3g} GB is all that one "
        "process can have: calls that do not fit are made smaller, and a row that does not fit alone is set aside."
        for ask in asks
        if ask.options[-1].gb > alone + 1e-9
    ]


def reasons(found: Sequence[Layout], room: Room, known: Calibration | None, steps: Sequence[Step]) -> list[str]:
    """Why the first of some layouts is taken."""
    best, *others = found
    return [*_source(known, steps), _chosen(best, room), *_steps(best, room), *_beside(best, others, room)]


def _source(known: Calibration | None, steps: Sequence[Step]) -> list[str]:
    if known is None:
        return []
    lacks = [step.name for step in steps if known.of(step) is None]
    said = [f"By the calibration of {known.device}, {known.made[:10]}; rates are estimates."]
    if lacks:
        said.append(f"It has no figures of {', '.join(lacks)} with these settings, so rates are not compared.")
    return [*said, *(_unseen(step, known) for step in steps if (found := known.of(step)) and found.unseen)]


def _unseen(step: Step, known: Calibration) -> str:
    figures, gb = known.of(step), step.placement.vram_gb
    kinds = " and ".join(figures.unseen if figures else ())
    memory = f"gets the profile's {gb:.3g} GB" if gb else "gets what it took without"
    return f"There were no {kinds} where {step.name} was calibrated: it {memory}, and the rate is of rows without."


def _chosen(best: Layout, room: Room) -> str:
    count = len(best.waves)
    waves = " | ".join(_wave(wave, room) for wave in best.waves)
    rate = best.rate(room)
    estimate = f"; an estimate of {rate:.3g} rows/s for {room.rows:,} rows" if rate else ""
    if count == 1:
        return f"The card holds all its models together: {waves}{estimate}."
    return f"The first pass goes over the media {_TIMES.get(count, f'{count} times')}: {waves}{estimate}."


def _wave(wave: Sharing, room: Room) -> str:
    processes = " and ".join(" + ".join(members) for members in wave.processes)
    contexts = sum(max(seat.workers for seat in wave.seats if seat.ask.name in members) for members in wave.processes)
    own = "1 process" if contexts == 1 else f"{contexts} processes"
    return f"{processes} ({wave.gb:.3g} of {room.limit_gb:.3g} GB, {room.context_gb * contexts:.2g} of it for {own})"


def _steps(best: Layout, room: Room) -> list[str]:
    """Of each wave what holds it up, and the batches that were chosen."""
    said = []
    for wave in best.waves:
        if (limits := wave.limits(room)) is None:
            continue
        slowest = max(limits, key=lambda name: limits[name])
        batches = ", ".join(_seat(seat) for seat in wave.seats)
        said.append(f"{batches}: {slowest} holds this wave to {1 / max(limits[slowest], 1e-12):.3g} rows/s.")
    return said


def _seat(seat: Seat) -> str:
    workers = f", {seat.workers} workers" if seat.workers > 1 else ""
    fastest = seat.ask.options[0]
    less = f" instead of {fastest.batch}" if fastest.batch != seat.option.batch else ""
    return f"{seat.ask.name} in batches of {seat.option.batch}{less} ({seat.option.gb:.3g} GB{workers})"


def _beside(best: Layout, others: Sequence[Layout], room: Room) -> list[str]:
    """Other layouts, by their estimates; where rates are not known, why there is not one wave."""
    rate = best.rate(room)
    if rate is not None:
        first = {len(one.waves): one for one in reversed(others)}  # the best with so many waves
        rates = [(_shape(first[count]), first[count].rate(room) or 0.0) for count in sorted(first)[:_OTHERS]]
        changes = [(shape, other, round(100 * other / rate - 100)) for shape, other in rates]
        return [f"Instead, {shape}: {other:.3g} rows/s ({change:+} %)." for shape, other, change in changes]
    if best.departures:
        return ["Processes are others than the profile's, which would not fit; each process has a context of its own."]
    return []


def _shape(layout: Layout) -> str:
    return " | ".join(" and ".join(" + ".join(members) for members in wave.processes) for wave in layout.waves)
