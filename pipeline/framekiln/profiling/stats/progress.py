"""A run's totals, its progress over its files, and the remaining time: that of the slowest step.

Decoding reports the finished bytes of the files. A step's progress is that of the last packet that passed it. Packets
that an earlier run finished pass without an event, so a step's own rows would show too little.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from framekiln.contract.row_errors import DECODE
from framekiln.media.units import Unit
from framekiln.profiling.records import SET_UP, Death, Event, Reading, StepEvent
from framekiln.profiling.stats.live import LiveWindow
from framekiln.profiling.stats.speed import StepTotals

_WHOLE = 1 - 1e-6  # shares of a unit are floats that add up to 1


@dataclass
class _Place:
    wave: int = 1  # wave of the step, from 1
    rows: int = 0  # rows that it computed
    passed: int = 0  # decoded rows of its wave, up to the last packet that passed it
    begun: tuple[float, float] | None = None  # end of its first packet, and its share at that time
    reached: float = 0.0  # the largest share shown so far


class Progress:
    """The progress of each step of the first pass."""

    def __init__(self, units: Iterable[Unit] = (), waves: int = 1) -> None:
        """Start at zero, for a run that decodes each of these units this many times."""
        self._waves, units = waves, list(units)
        self._bytes = {unit.name: sum(media.size for media in unit.media) or 1 for unit in units}
        self._files = {unit.name: len(unit.media) for unit in units}
        self._all_bytes = sum(self._bytes.values())
        self._done_files = 0.0
        self._wave_bytes = [0.0] * (waves + 1)  # decoded completely, by wave from 1
        self._wave_rows = [0] * (waves + 1)
        self._decoded: dict[int, tuple[int, int]] = {}  # by hash of a packet: its last wave, and its rows up to its end
        self._steps: dict[str, _Place] = defaultdict(_Place)

    def add(self, event: StepEvent) -> StepEvent:
        """Count a packet. Return its event, with only the time if it was decoded before in this wave."""
        key, place = hash((event.unit, event.start)), self._steps[event.step]
        wave, rows = self._decoded.get(key, (0, 0))
        if event.step != DECODE:  # the packet, and all before it, passed the step
            if wave > place.wave:
                place.wave, place.passed = wave, 0
            place.rows += event.rows
            place.passed = max(place.passed, place.rows, rows)
        elif wave == self._waves:  # after a death it is decoded again
            event = replace(event, rows=0, failures=0, share=0.0)
        else:
            wave += 1
            self._wave_rows[wave] += event.rows
            self._wave_bytes[wave] += event.share * self._bytes.get(event.unit, 0)
            self._done_files += event.share * self._files.get(event.unit, 0)
            self._decoded[key] = wave, self._wave_rows[wave]
        if place.begun is None:
            place.begun = event.ended, self._share(event.step, place.wave, place.passed)
        return event

    def files(self, steps: Sequence[str]) -> tuple[int, int]:
        """Count the files that all steps have finished, and all files of the run; with several waves, see `done`."""
        decoded = self._share(DECODE, 1, 0)
        share = self.done(steps) / decoded if decoded else 0.0
        return int(share * self._done_files / self._waves + 1e-6), sum(self._files.values())

    def shares(self, steps: Sequence[str]) -> dict[str, float]:
        """Return the share of the files' bytes that each step has finished, 0 to 1; no share ever falls.

        `steps` are in the plan's order, decoding first: an earlier step is at least as far as a later one.
        """
        wave, far = self._waves, 0
        for step in reversed(steps):
            place = self._steps[step]
            if place.begun is not None:
                far = max(far, place.passed) if place.wave == wave else place.passed
                wave = place.wave
            place.reached = max(place.reached, self._share(step, wave, far))
        return {step: self._steps[step].reached for step in steps}

    def _share(self, step: str, wave: int, passed: int) -> float:
        if not self._all_bytes:  # only tables remain to be written
            return 1.0
        if step == DECODE:
            share = sum(self._wave_bytes) / (self._all_bytes * self._waves)
        else:
            share = min(1.0, passed / max(1, self._wave_rows[wave])) * self._wave_bytes[wave] / self._all_bytes
        return 1.0 if share > _WHOLE else share

    def done(self, steps: Sequence[str]) -> float:
        """Return the share of the files' bytes that all steps have finished; with several waves, that of decoding."""
        shares = self.shares(steps)
        return min(shares.values(), default=0.0) if self._waves == 1 else shares[DECODE]

    def left(self, steps: Sequence[str], now: float) -> dict[str, float]:
        """Return each step's remaining seconds at its own pace; steps without a pace yet are left out.

        `now` is a moment of the epoch. The first packet does not count for the pace: it is slower than others.
        """
        seconds: dict[str, float] = {}
        for step, share in self.shares(steps).items():
            since, before = self._steps[step].begun or (now, share)
            if share == 1.0:
                seconds[step] = 0.0
            elif share > before:
                seconds[step] = max(0.0, now - since) * (1 - share) / (share - before)
        return seconds

    def slowest(self, steps: Sequence[str], now: float) -> tuple[str, float] | None:
        """Return the step with the most remaining time, and its seconds; None until each step has a pace.

        A step without events is skipped if a later step has events: its results exist already. With several waves,
        steps of later waves have no events yet. Then steps with a pace decide, and decoding's pace covers all waves.
        """
        left = self.left(steps, now)
        begun = [self._steps[step].begun is not None for step in steps]
        last = max((number for number, one in enumerate(begun) if one), default=-1)
        waiting = [step for number, step in enumerate(steps) if begun[number] or number > last]
        if self._waves == 1 and not left.keys() >= set(waiting):
            return None
        return max(left.items(), key=lambda pair: pair[1], default=None)


class RunTotals:
    """Totals of all steps, and the progress of the run."""

    def __init__(self, units: Iterable[Unit] = (), waves: int = 1) -> None:
        """Start at zero, for a run that processes each of these units this many times."""
        self.steps: dict[str, StepTotals] = defaultdict(StepTotals)
        self.live = LiveWindow()
        self.progress = Progress(units, waves)
        self.engine = ""  # owner of the processes; empty if nothing was computed
        self.dead: set[str] = set()  # worker processes that died; others repeated their work
        self.notes: dict[str, str] = {}  # by step, why its model ran uncompiled in some process
        self._unread: set[int] = set()  # hashes of packets with failures of decoding: each reading reports them

    def begin(self, units: Iterable[Unit], waves: int) -> None:
        """Reset the progress for a further pass; totals of earlier passes stay."""
        self.progress = Progress(units, waves)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Reading):
                self.live.read(event)
                continue
            if isinstance(event, Death):
                self.dead.add(event.worker)
                continue
            if event.note:
                self.notes.setdefault(event.step, event.note)
            if event.kind == SET_UP:
                step = self.steps[event.step]
                step.set_up = max(step.set_up, event.seconds)
                continue
            new = self.progress.add(self._count_once(event))
            self.steps[event.step].add(new)
            self.live.add(new)

    def _count_once(self, event: StepEvent) -> StepEvent:
        """Return an event without failures of decoding that an earlier reading of the packet reported."""
        if event.step != DECODE or not event.failures:
            return event
        key = hash((event.unit, event.start))
        known = key in self._unread
        self._unread.add(key)
        return replace(event, failures=0) if known else event

    def to_dict(self) -> Mapping[str, Any]:
        """Return the totals of each step as run.json stores them."""
        return {name: step.to_dict() for name, step in self.steps.items()}
