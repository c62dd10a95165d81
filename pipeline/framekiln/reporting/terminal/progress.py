"""Progress of a run: on a terminal a line a step, elsewhere a short line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from framekiln.contract.row_errors import DECODE
from framekiln.device.machine_facts import missing_build_tools
from framekiln.planning.processes.placement import Room
from framekiln.planning.step import Step
from framekiln.profiling.advice import live_advice
from framekiln.profiling.records import GpuSample, now
from framekiln.profiling.stats.progress import RunTotals
from framekiln.profiling.stats.steps import StepStatistics
from framekiln.reporting.kit.texts import count, elapsed
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.run.result import Workload

if TYPE_CHECKING:
    from framekiln.profiling.export.live_metrics import Scalars

LINE_SECONDS = (10.0, 300.0)  # s between the first two lines, and the longest; doubled from line to line
ADVICE_SECONDS = 2.0  # s between two evaluations of the advice rules
_ALL = "all files"
_LONGEST_NAME, _SHORT_NAME = 20, 12  # characters of a step's name; the second on a narrow terminal
_BARS = (8, 40)  # least and greatest width of a bar; with less room a percentage replaces it
_OTHERS = 84  # width of everything except name and bar: rows, rate, shares, GPU, errors, time left, and gaps
_PERCENT = "{task.percentage:>3.0f}%"


class ProgressView:
    """A display of changing figures during a run; this one shows nothing."""

    def show(self, figures: RunTotals) -> None:
        """Update the display."""

    def say(self, sentence: str) -> None:
        """Print a message once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ends: object) -> None:
        """End the display."""


class ProgressBars(ProgressView):
    """A line for all files, then one a step: rows, rate and shares of the last seconds, errors, time left.

    The time left for all files is that of the slowest step.
    """

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        width = min(_LONGEST_NAME, max(map(len, (*steps, _ALL))))
        room = console.width - width - _OTHERS
        self._narrow = room < _BARS[0]
        width = min(width, _SHORT_NAME) if self._narrow else width
        texts = ("{task.fields[rows]:>9}", "{task.fields[rate]:>10}", "{task.fields[load]}")
        self._progress = Progress(
            TextColumn(f"{{task.description:<{width}.{width}}}", markup=False),
            TextColumn(_PERCENT) if self._narrow else BarColumn(bar_width=min(_BARS[1], room)),
            *(TextColumn(text) for text in texts),
            TextColumn("[red]{task.fields[errors]}"),
            TextColumn("[cyan]{task.fields[left]:>7}"),
            console=console,
        )
        empty: dict[str, Any] = {"rows": "", "rate": "", "load": "", "errors": "", "left": ""}
        self._steps = tuple(steps)
        self._tasks = [self._progress.add_task(name, total=1.0, **empty) for name in (_ALL, *steps)]

    def show(self, figures: RunTotals) -> None:
        sign = "" if self._narrow else "%"
        for task, row in zip(self._tasks, progress_rows(figures, self._steps, now()), strict=True):
            load = f"busy {100 * row.now.busy:>3.0f}{sign} waits {100 * row.now.starved:>3.0f}{sign}" if row.now else ""
            if row.gpu:
                use, memory, total = (row.gpu.get(name) for name in ("use_percent", "memory_gb", "total_gb"))
                load += " GPU" if use is None else f" GPU {use:.0f}%"
                load += "" if self._narrow or memory is None or total is None else f" {memory:.1f}/{total:.0f} GB"
            fields: dict[str, Any] = {**row._asdict(), "load": load}
            self._progress.update(task, completed=row.share, **fields)

    def say(self, sentence: str) -> None:
        """See `ProgressView`; the message appears above the bars."""
        print_line(self._progress.console, sentence)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class ProgressRow(NamedTuple):
    """The progress of a step, or of all files, as texts."""

    name: str
    share: float  # done, 0 to 1
    rows: str
    rate: str
    errors: str
    left: str  # time
    now: StepStatistics | None = None
    gpu: GpuSample | None = None


def progress_rows(figures: RunTotals, steps: Sequence[str], moment: float) -> Iterator[ProgressRow]:
    """Yield a row for all files, then one for each step."""
    progress = figures.progress
    shares, left, slowest = progress.shares(steps), progress.left(steps, moment), progress.slowest(steps, moment)
    done, files = progress.files(steps)
    time_left = elapsed(round(slowest[1])) if slowest else ""
    yield ProgressRow(_ALL, progress.done(steps), f"{done:,}", f"of {files:,}", "", time_left)
    for name in steps:
        step, now = figures.steps[name], figures.live.step(name, moment)
        rate = f"{now.rows_per_s:,.1f}/s" if now else ""
        errors = count(step.failures, "error") if step.failures else ""
        time_left = elapsed(round(left[name])) if name in left else ""
        gpu = figures.live.gpu(now, moment) if now else None
        yield ProgressRow(name, shares[name], f"{step.rows:,}", rate, errors, time_left, now, gpu)


class ProgressLines(ProgressView):
    """A line at the start, and further ones at growing intervals: a log of hours stays short."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        self._console, self._steps = console, steps
        self._next, self._interval = time.monotonic(), LINE_SECONDS[0]

    def show(self, figures: RunTotals) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval
        self._interval = min(2 * self._interval, LINE_SECONDS[1])
        self.say(progress_line(figures, self._steps, now()))

    def say(self, sentence: str) -> None:
        print_line(self._console, sentence)


def progress_line(figures: RunTotals, steps: Sequence[str], moment: float) -> str:
    """Return the state of a run in a line, as in "14:03:25  12%  51 of 429 files, 11:49 left (faces 2.1/s), 3 errors".

    The time of day is this machine's. After the time left comes the deciding step with its rate. While some step has no
    pace, the line shows the rows that the last of the other steps has finished.
    """
    progress = figures.progress
    done, (read, files) = progress.done(steps), progress.files(steps)
    parts = [f"{read:,} of {files:,} files"] if files else []
    if done == 1.0:
        later = [name for name in figures.steps if name not in steps and figures.steps[name].rows]
        parts.append(f"tables: {', '.join(later) or 'begun'}")
    elif slowest := progress.slowest(steps, moment):
        name, seconds = slowest
        now = figures.live.step(name, moment)
        parts.append(f"{elapsed(round(seconds))} left ({name}{f' {now.rows_per_s:,.1f}/s' if now else ''})")
    elif begun := [name for name in steps if figures.steps[name].rows]:
        parts.append(f"{count(figures.steps[begun[-1]].rows, 'row')} through {begun[-1]}")
    if errors := sum(step.failures for step in figures.steps.values()):
        parts.append(count(errors, "error"))
    if figures.dead:
        parts.append(f"{count(len(figures.dead), 'process', 'processes')} died")
    return f"{time.strftime('%H:%M:%S', time.localtime(moment))} {int(100 * done):>3}%  {', '.join(parts)}"


class AdvisingView(ProgressView):
    """Several views as one, with a line for each compiled model and for the first death, and one piece of advice.

    The advice comes once, when the first batches show an idle GPU or idle models.
    """

    def __init__(
        self, views: Sequence[ProgressView | Scalars], steps: Sequence[Step], rooms: Mapping[str, Room]
    ) -> None:
        """Prepare the rules for steps that compute; `rooms`: each step's, decoding included."""
        self._views, self._stack, self._advised, self._next = views, ExitStack(), False, 0.0
        self._is_death_said, self._steps, self._rooms = False, steps, rooms
        compiled = [] if missing_build_tools() else [step.name for step in steps if step.placement.compile]
        self._compiled = set(compiled)  # not compiled yet

    def show(self, figures: RunTotals) -> None:
        for view in self._views:
            view.show(figures)
        for name in [name for name in self._compiled if name in figures.steps and figures.steps[name].set_up]:
            self._compiled.remove(name)
            others = f"; next: {', '.join(sorted(self._compiled))}" if self._compiled else ""
            self.say(f"{name} is compiled, {elapsed(round(figures.steps[name].set_up))}{others}.")
        if figures.dead and not self._is_death_said:
            self._is_death_said = True
            self.say("A process died, and another one repeats its work. A row that kills processes becomes an error.")
        if self._advised or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ADVICE_SECONDS
        names = (DECODE, *(step.name for step in self._steps))
        live = {name: state for name in names if (state := figures.live.step(name, now()))}
        if advice := live_advice(self._steps, live, self._rooms):
            self._advised = True
            self.say(f"{advice.reason}; {advice.change}.")

    def say(self, sentence: str) -> None:
        for view in self._views:
            view.say(sentence)

    def __enter__(self) -> Self:
        for view in self._views:
            self._stack.enter_context(view)
        if self._compiled:
            self.say(
                f"Beside decoding, torch compiles {', '.join(sorted(self._compiled))}: minutes the first time, seconds "
                "later."
            )
        return self

    def __exit__(self, *ends: object) -> None:
        self._stack.close()


def working_steps(work: Workload) -> list[str]:
    """Return decoding and the first-pass steps with work."""
    idle = {outlook.step for outlook in work.outlook if not outlook.todo}
    return [DECODE, *(step.name for step in work.plan.first if step.name not in idle)]


def make_view(console: Console, steps: Sequence[str], *, quiet: bool) -> ProgressView:
    """Return the view for the console."""
    if quiet:
        return ProgressView()
    return ProgressBars(console, steps) if console.is_terminal else ProgressLines(console, steps)
