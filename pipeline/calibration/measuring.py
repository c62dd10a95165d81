"""One step measured alone: the search in this process, the calls in a child of its own.

A child that runs out of memory says so and goes on. One that crashes or hangs is followed by another one, and what
killed it counts as a batch that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.calibration.child import Child
from pipeline.calibration.figures import StepFigures, Trial, settings_of
from pipeline.calibration.fit import memory_line
from pipeline.calibration.probe import Probe, Ready, for_batch
from pipeline.calibration.search import Full, Limits, Searched, fastest, search
from pipeline.device import Meter, Seen
from pipeline.isolation import anew
from pipeline.raised import Raised
from pipeline.step import Step
from pipeline.trial import Died

_SET_UP_S = 1800.0  # imports, weights, and a model that is compiled; on a busy machine
_IDLE = (
    "its model had nothing to do, since these rows hold no masks, faces or whatever it works on (random weights find "
    "none): nothing is kept of it; take real weights, or an input that has them"
)
_DEATHS = 4  # of one step's children: one that keeps dying is told, and the next step has its turn


class GaveUpError(Exception):
    """A step cannot be measured any further, and why."""


@dataclass
class Measured:
    """What became of one step."""

    step: str
    figures: StepFigures | None = None  # None where no call of it returned
    seen: Seen | None = None
    notes: list[str] = field(default_factory=list)  # what was cut short or went wrong, a sentence each


def measure(
    step: Step, sizes: Sequence[Path], limits: Limits, *, dummy: bool = False, meter: Meter | None = None
) -> Measured:
    """Batches of a step, tried until they do not fit.

    Args:
        step: with a stage that need not have been set up.
        sizes: files of rows (`pipeline.calibration.probe.written`), of the smallest pictures first.
        limits: how far to go.
        dummy: whether its weights are random.
        meter: of memory; None for its device's own.
    """
    found = Measured(step.name)
    with _Bench(step, sizes, limits, meter) as bench:
        searched = Searched(trials=[])
        try:
            largest = len(sizes) - 1  # what fits of the largest pictures fits of all
            searched = search(lambda batch: bench.attempt(largest, batch), limits)
            for size in range(largest):
                bench.again(size, searched)
        except GaveUpError as error:
            found.notes.append(str(error))
            searched = searched if searched.trials else replace(searched, trials=list(bench.trials))
        if bench.trials and all(trial.phases and not trial.phases.get("infer") for trial in bench.trials):
            found.notes.append(_IDLE)
        elif bench.trials:
            found.figures = _figures(step, bench, searched, dummy=dummy)
            found.seen = bench.device
        if searched.full is not None:
            found.notes.append(f"a batch of {searched.largest + 1} did not run: {searched.full.why}")
            if not searched.largest and step.chunks:
                found.notes.append(f"smaller `chunks` in the profile ({dict(step.chunks)}) take less memory")
        elif searched.cut_short and found.figures is not None:
            found.notes.append(f"nothing larger was tried: {searched.cut_short}")
    return found


def _figures(step: Step, bench: _Bench, searched: Searched, *, dummy: bool) -> StepFigures | None:
    if bench.ready is None:
        return None
    flops, chunks = bench.flops(), bench.look()
    return StepFigures(
        use=step.use,
        settings=settings_of(step.facts),
        precision=step.placement.precision,
        compile=step.placement.compile,
        dummy=dummy,
        set_up_s=bench.ready.seconds,
        weights_gb=bench.ready.weights_gb,
        trials=sorted(bench.trials, key=lambda trial: (trial.megapixels, trial.batch)),
        memory=memory_line(bench.trials),
        largest_batch=searched.largest,
        largest_is_limit=searched.full is not None,
        fastest_batch=fastest(bench.trials),
        chunks=chunks,
        flops_per_row=flops,
        weights_bytes=bench.ready.weights_bytes,
    )


class _Bench:
    """A step's child, and the next one when it has died."""

    def __init__(self, step: Step, sizes: Sequence[Path], limits: Limits, meter: Meter | None) -> None:
        self._step, self._sizes, self._limits, self._meter = step, sizes, limits, meter
        self._stack = ExitStack()
        self._child: Child | None = None
        self._batch = 0  # that the child was set up for
        self._deaths = 0
        self.ready: Ready | None = None  # the first child's set-up
        self.device: Seen | None = None
        self.trials: list[Trial] = []  # all that ran

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self._stack.close()

    def attempt(self, size: int, count: int) -> Trial | Full:
        """Calls of so many rows.

        Raises:
            GaveUpError: the step raises something else than that memory ran out, or its children keep dying.
        """
        child = self._for(count)
        answer = child.ask("trial", size, count, seconds=self._limits.hang_s)
        if isinstance(answer, Raised) and not answer.broken_gpu:
            raise GaveUpError(f"a batch of {count} raised {answer.kind}: {answer.message}")
        if isinstance(answer, Died | Raised):
            return self._lost(count, answer)
        if isinstance(answer, Trial):
            self.trials.append(answer)
        result: Trial | Full = answer
        return result

    def again(self, size: int, searched: Searched) -> None:
        """Pictures of another size, in batches of powers of two up to the largest that ran."""
        for count in (trial.batch for trial in searched.trials):
            odd = count & (count - 1) and count != searched.largest
            if not odd and isinstance(self.attempt(size, count), Full):
                return

    def flops(self) -> float | None:
        """Of a row, counted without compiling; None where none are seen or counting fails."""
        step = self._step
        if step.placement.compile:
            self._end()
            self._step = replace(step, placement=replace(step.placement, compile=False))
        try:
            answer = self._for(1).ask("flops", len(self._sizes) - 1, seconds=self._limits.hang_s)
        except GaveUpError:
            return None
        finally:
            self._step = step
        return answer if isinstance(answer, float) else None

    def look(self) -> dict[str, int]:
        """Chunks of the last calls, and meanwhile the device; nothing where the child has died."""
        answer: Any = self._child.ask("seen", seconds=self._limits.hang_s) if self._child else None
        if not isinstance(answer, tuple):
            return {}
        self.device = answer[0]
        return dict(answer[1])

    def _for(self, count: int) -> Child:
        """The child, set up; of a compiled step, for this batch."""
        if self._child is not None and (not self._step.placement.compile or self._batch == count):
            return self._child
        self._end()
        step = anew(for_batch(self._step, count) if self._step.placement.compile else self._step)
        threads = str(max(1, int(step.placement.cpus)))  # as many as Ray gives to a worker's process
        held = Probe(step, self._sizes, self._limits, self._meter)
        child = self._stack.enter_context(Child(held, {"OMP_NUM_THREADS": threads}))
        answer = child.ask("set_up", seconds=_SET_UP_S)
        if not isinstance(answer, Ready):
            raise GaveUpError(f"it could not be set up: {_told(answer)}")
        self._child, self._batch, self.ready = child, count, self.ready or answer
        return child

    def _lost(self, count: int, answer: Died | Raised) -> Full:
        self._end()
        self._deaths += 1
        if self._deaths >= _DEATHS:
            raise GaveUpError(f"its process died {self._deaths} times, last at a batch of {count}: {_told(answer)}")
        return Full(why=f"its process died ({_told(answer)})")

    def _end(self) -> None:
        self._child = None
        self._stack.close()


def _told(answer: Died | Raised) -> str:
    """In one line."""
    if isinstance(answer, Raised):
        return answer.message or answer.kind
    last = answer.said.splitlines()[-1:] if answer.how.startswith("exit") else []
    return ": ".join([answer.how, *last])
