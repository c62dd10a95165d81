"""One timing loop for the bench, calibration and benchmarks, and the settings of a bench's cells.

Warm-up lasts for a number of calls and of seconds, whichever ends later. Then calls are timed until there are enough.
On a GPU a pair of events surrounds each call. They are read after the loop, so that the loop never waits for them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from framekiln.contract.errors import ConfigError
from framekiln.device import torch
from framekiln.device.timing import GpuEvent

Clock = Callable[[], float]
_LONGEST = 10
"""Most length of a loop, as a multiple of its calls' seconds: emptying the caches takes longer than most calls."""
USUAL_CALLS = 100  # enough for a p95


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """The length of a warm-up and of a timed loop."""

    warmup: int = 1  # calls; the first loads kernels and chooses algorithms
    warmup_s: float = 0.0  # a GPU's clocks rise within about a second of work
    least: int = 3  # calls; a median of three tolerates one disturbed call
    seconds: float = 2.0  # s of timed calls
    wanted: int = 3  # calls, unless they take longer than `patience_s`
    patience_s: float = 10.0
    most: int | None = None  # calls, however short they are
    slow_s: float = 30.0  # a longer call ends the loop: more of them would take too long

    def is_enough(self, count: int, timed_s: float, elapsed_s: float, slowest_s: float) -> bool:
        """Return whether a loop ends after `count` calls of `timed_s` in all, and `elapsed_s` of the loop."""
        if count < 1:
            return False
        if slowest_s > self.slow_s or (self.most is not None and count >= self.most):
            return True
        reached = count >= self.wanted or elapsed_s >= self.patience_s
        is_long = timed_s >= self.seconds or elapsed_s >= _LONGEST * self.seconds
        return reached and count >= self.least and is_long


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Raw times of a loop, in the order of its calls."""

    seconds: tuple[float, ...]  # until a call had returned and, with `wait_each`, the device was idle
    enqueue_s: tuple[float, ...]  # until a call had returned
    gpu_s: tuple[float, ...] = ()  # times between two events in the GPU's stream; empty without events
    wall_s: float = 0.0  # duration of the loop, until the device was idle
    warmup: int = 0  # calls
    warmup_s: float = 0.0

    @property
    def calls(self) -> int:
        return len(self.seconds)

    def rate(self, items: int) -> float:
        """Return items a second over the whole loop, for calls of `items` each."""
        return items * self.calls / self.wall_s if self.wall_s > 0 else 0.0


def timed(
    call: Callable[[], object],
    wait: Callable[[], None],
    limits: TimeLimits,
    *,
    wait_each: bool = False,
    before: Callable[[int], None] = lambda _: None,
    event: Callable[[], GpuEvent] | None = None,
    clock: Clock = time.perf_counter,
) -> Samples:
    """Repeat a call and time each repetition; exceptions pass through.

    `wait` waits until the device is idle. With `wait_each` each call ends with this wait, as for a client that needs
    the result. `before` gets the number of each timed call before it; its time counts for the loop's length only.
    `event` makes a GPU event; None: no event times.
    """
    warmup, warmup_s = _warm_up(call, wait, limits, clock)
    taken, enqueued, events = list[float](), list[float](), list[tuple[GpuEvent, GpuEvent]]()
    began, calls_s = clock(), 0.0
    while not limits.is_enough(len(taken), calls_s, clock() - began, max(taken, default=0.0)):
        before(len(taken))
        asked = clock()
        if event is not None:
            events.append((event(), event()))
            events[-1][0].record()
        start = clock()
        call()
        enqueued.append(clock() - start)
        if event is not None:
            events[-1][1].record()
        if wait_each:
            wait()
        taken.append(clock() - start if wait_each else enqueued[-1])
        calls_s += clock() - asked
    wait()
    wall_s, gpu_s = clock() - began, tuple(begin.elapsed_time(end) / 1000 for begin, end in events)
    return Samples(
        seconds=tuple(taken), enqueue_s=tuple(enqueued), gpu_s=gpu_s, wall_s=wall_s, warmup=warmup, warmup_s=warmup_s
    )


def _warm_up(
    call: Callable[[], object], wait: Callable[[], None], limits: TimeLimits, clock: Clock
) -> tuple[int, float]:
    began, done = clock(), 0
    while done < limits.warmup or clock() - began < limits.warmup_s:
        call()
        wait()
        done += 1
    return done, clock() - began


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """The options of all cells of a bench."""

    device: str = "cpu"
    iterations: int | None = None  # exact number of timed calls; None: `seconds` decides
    seconds: float | None = None  # s of timed calls; None: `iterations`, or enough calls for p95
    least: int = 0  # calls for a requested percentile, if neither is given
    warmup: int = 5  # timm's and trtexec's defaults lie between 1 and 10
    warmup_s: float = 0.5  # trtexec warms up for 0.2 s
    layers: bool = False
    depth: int = 2  # levels of modules: a part of the model and its blocks
    leak: int = 0  # calls; 0: no test
    cold_cache: bool = False  # a model called repeatedly finds its weights in the caches, as in our own loop
    memory_cap_gb: float | None = None  # limit, as on a smaller device

    @property
    def limits(self) -> TimeLimits:
        usual = TimeLimits(warmup=self.warmup, warmup_s=self.warmup_s)
        if (count := self.iterations) is not None:
            return replace(usual, least=count, most=count, wanted=count, seconds=0.0)
        if self.seconds is not None:  # emptying the caches may take all the time
            return replace(usual, seconds=self.seconds, least=TimeLimits.least if self.cold_cache else 1, wanted=1)
        least, wanted = max(5, self.least), max(USUAL_CALLS, self.least)
        return replace(usual, least=least, wanted=wanted, seconds=1.0, patience_s=15.0)


def default_device() -> str:
    """Return cuda if there is a GPU, else cpu."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def check_device(device: str | None) -> None:
    """Check that the requested device exists. Raises ConfigError: it is a GPU, and torch sees none."""
    if device == "cuda" and default_device() != "cuda":
        raise ConfigError("device cuda: torch sees no GPU here; leave it out, or give cpu.", code="FK-BENCH-NO-GPU")
