"""The time line: a lane for each process, what it did in each slice of the run, and its longest stalls in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from pipeline.telemetry.report.activity import HELD, IDLE, KINDS, SETTING_UP, SLICES, STARVED, WORK, Activity, Worker
from pipeline.telemetry.report.words import duration, moment, share

MOST_LANES = 40
STALLS = 8  # told, the longest
LEAST_STALL = 0.02  # of the run: shorter ones are no stall that one would look for
_TICKS = 5
_HEIGHT = 12.0
_PLACES = {SETTING_UP: (3.0, 6.0), STARVED: (9.0, 3.0), HELD: (0.0, 3.0)}
"""From the top, and how high: so that what is no work is known without colours too."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One process."""

    name: str
    steps: str
    drawing: Markup
    shares: tuple[str, ...]  # of the run, by the kinds of `Lanes`
    summary: str


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A long time without work."""

    who: str
    begin: str
    length: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The time line of a run."""

    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]  # that occur, in the order of `KINDS`
    ticks: tuple[str, ...]
    stalls: tuple[Stall, ...]
    slice: str
    left_out: int  # processes


def lanes(found: Activity | None) -> Lanes | None:
    """The time line; None where there are no records."""
    if found is None or not found.workers:
        return None
    shown = _shown(found)
    totals = np.sum([one.seconds.sum(axis=1) for one in found.workers], axis=0)
    kinds = tuple(kind for kind, seconds in zip(KINDS, totals, strict=True) if seconds > 0)
    return Lanes(
        lanes=tuple(_lane(one, kinds) for one in shown),
        kinds=kinds,
        ticks=tuple(moment(_whole(found.seconds * i / (_TICKS - 1), found.seconds)) for i in range(_TICKS)),
        stalls=tuple(_stalls(found)),
        slice=duration(found.seconds / SLICES),
        left_out=len(found.workers) - len(shown) + found.left_out,
    )


def look(kind: str) -> str:
    """The name of a kind's look in the style sheet."""
    return f"do-{kind.replace(' ', '-')}"


def _whole(seconds: float, length: float) -> float:
    """To whole seconds where the axis is so long that a part of one is not seen."""
    return float(round(seconds)) if length > 4 * _TICKS else seconds


def _shown(found: Activity) -> Sequence[Worker]:
    """All processes, or of each set of steps some, so that none is without a lane."""
    if len(found.workers) <= MOST_LANES:
        return found.workers
    alike: dict[tuple[str, ...], list[Worker]] = {}
    for one in found.workers:
        alike.setdefault(one.steps, []).append(one)
    ranked = sorted((place, number) for number, group in enumerate(alike.values()) for place in range(len(group)))
    groups = list(alike.values())
    chosen = {groups[number][place].name for place, number in ranked[:MOST_LANES]}
    return [one for one in found.workers if one.name in chosen]


def _lane(worker: Worker, kinds: Sequence[str]) -> Lane:
    working = sum(worker.share(kind) for kind in WORK)
    said = [f"working {share(working, 1.0)}"]
    said += [f"{kind} {share(worker.share(kind), 1.0)}" for kind in kinds if kind not in WORK]
    return Lane(
        name=worker.name,
        steps=worker.said,
        drawing=_drawing(worker),
        shares=tuple(share(worker.share(kind), 1.0) for kind in kinds),
        summary=", ".join(said),
    )


def _drawing(worker: Worker) -> Markup:
    """A path for each kind, of a rectangle for each stretch in which it took most of the time."""
    paths: dict[str, list[str]] = {}
    for kind, start, stop in stretches(worker):
        if kind != IDLE:
            top, height = _PLACES.get(kind, (0.0, _HEIGHT))
            paths.setdefault(kind, []).append(f"M{start} {top:g}h{stop - start}v{height:g}h-{stop - start}z")
    template = Markup('<path class="{}" d="{}"><title>{}</title></path>')
    return Markup("").join(template.format(look(kind), "".join(path), kind) for kind, path in paths.items())


def stretches(worker: Worker) -> Iterator[tuple[str, int, int]]:
    """What a process mostly did, from which slice to which: the kind that took most of each, neighbours joined."""
    most = worker.seconds.argmax(axis=0)
    edges = [0, *(np.flatnonzero(np.diff(most)) + 1).tolist(), SLICES]
    for start, stop in pairwise(edges):
        yield KINDS[int(most[start])], start, stop


def _stalls(found: Activity) -> Iterator[Stall]:
    width = found.seconds / SLICES
    known = []
    for worker in found.workers:
        mine = list(stretches(worker))
        busy = [i for i, (kind, _, _) in enumerate(mine) if kind in WORK]
        for i, (kind, start, stop) in enumerate(mine):
            between = bool(busy) and busy[0] < i < busy[-1]
            if (kind in (STARVED, HELD) or (kind == IDLE and between)) and stop - start >= LEAST_STALL * SLICES:
                known.append((stop - start, start, kind, worker))
    known.sort(key=lambda one: (-one[0], one[1], one[3].name))
    for length, start, kind, worker in known[:STALLS]:
        yield Stall(
            who=f"{worker.said} ({worker.name})",
            begin=moment(start * width),
            length=duration(length * width),
            reason=_reason(kind, worker, found.steps),
        )


def _reason(kind: str, worker: Worker, steps: Sequence[str]) -> str:
    """Why a process did not work; of the second pass a step's input is written before it begins."""
    first, last = (steps.index(worker.steps[i]) for i in (0, -1))
    if kind == STARVED:
        return f"it waited for input from {steps[first - 1]}" if first else "it waited for files to be handed out"
    if kind == HELD:
        after = steps[last + 1] if last + 1 < len(steps) else ""
        taker = f", which {after} takes up" if after else ""
        return f"it handed a packet on{taker}: it packed and stored it, and waited until there was room"
    return "it was idle: between two packets its records say nothing"
