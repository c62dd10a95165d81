"""How far a run is, and what its last seconds were like: a line a step on a terminal, one in ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pipeline.failure import DECODE
from pipeline.plan import Plan
from pipeline.sample import Card
from pipeline.telemetry.advice import Placed, advice
from pipeline.telemetry.amounts import counted
from pipeline.telemetry.figures import Figures
from pipeline.telemetry.live import StepNow

LINE_SECONDS = 10.0  # short enough to see that it lives, long enough for a log file
ADVICE_SECONDS = 2.0  # between two looks for something to say
_LONGEST_NAME, _SHORT_NAME = 20, 12  # of a step; longer ones are cut, and on a narrow terminal these too
_BARS = (8, 40)  # columns of a bar, at least and at most; where there is less room a percentage stands for it
_OTHERS = 84  # columns beside name and bar: rows, rate, shares, card, errors, time left, and what is between them
_PERCENT = "{task.percentage:>3.0f}%"


class View(Protocol):
    """Something that shows figures as they change."""

    def show(self, figures: Figures) -> None:
        """Bring it up to date."""

    def say(self, sentence: str) -> None:
        """Tell people something, once."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Bars:
    """A line for each step: rows, rows a second and shares of the last seconds, errors, time left."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        width = min(_LONGEST_NAME, max(map(len, steps), default=0))
        room = console.width - width - _OTHERS
        self._narrow = room < _BARS[0]
        width = min(width, _SHORT_NAME) if self._narrow else width
        texts = ("{task.completed:>9,.0f}", "{task.fields[rate]:>10}", "{task.fields[doing]}")
        self._progress = Progress(
            TextColumn(f"{{task.description:<{width}.{width}}}", markup=False),
            TextColumn(_PERCENT) if self._narrow else BarColumn(bar_width=min(_BARS[1], room)),
            *(TextColumn(text) for text in texts),
            TextColumn("[red]{task.fields[errors]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task(name, total=None, rate="", doing="", errors="") for name in steps
        }

    def show(self, figures: Figures) -> None:
        """Move the bars."""
        moment = time.time()
        for name, task in self._tasks.items():
            step, now = figures.steps[name], figures.live.step(name, moment)
            told: dict[str, Any] = {"rate": f"{now.rows_per_s:,.1f}/s" if now else ""}
            told["doing"] = _doing(now, narrow=self._narrow) if now else ""
            told["errors"] = counted(step.failures, "error") if step.failures else ""
            self._progress.update(task, completed=step.rows, total=figures.expected_rows, **told)

    def say(self, sentence: str) -> None:
        """See `View`: above the bars."""
        self._progress.console.print(sentence, highlight=False, soft_wrap=True, markup=False)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Lines:
    """One line every ten seconds."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        self._console, self._steps = console, steps
        self._next = time.monotonic() + LINE_SECONDS

    def show(self, figures: Figures) -> None:
        """Print a line when it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        total, moment = figures.expected_rows, time.time()
        parts = [_line(name, figures.steps[name].rows, figures.live.step(name, moment)) for name in self._steps]
        errors = sum(step.failures for step in figures.steps.values())
        of = f" of about {total} rows" if total else ""
        self.say(f"{', '.join(parts)}{of}, {counted(errors, 'error')}")

    def say(self, sentence: str) -> None:
        """See `View`."""
        self._console.print(sentence, highlight=False, soft_wrap=True, markup=False)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Silent:
    """Nothing."""

    def show(self, figures: Figures) -> None:
        """Show nothing."""

    def say(self, sentence: str) -> None:
        """Say nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Both:
    """Several at once."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views, self._stack = views, ExitStack()

    def show(self, figures: Figures) -> None:
        """See `View`."""
        for one in self._views:
            one.show(figures)

    def say(self, sentence: str) -> None:
        """See `View`."""
        for one in self._views:
            one.say(sentence)

    def __enter__(self) -> Both:
        for one in self._views:
            self._stack.enter_context(one)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Advised:
    """A view that is given one sentence too, once, where the first batches show that a GPU or models stand idle."""

    def __init__(self, shown: View, plan: Plan, full: Collection[str] = ()) -> None:
        """Begin.

        Args:
            shown: what is given it.
            plan: of the run.
            full: steps for another of whose workers no core is left, decoding too.
        """
        self._shown, self._said, self._next = shown, False, 0.0
        self._steps = [Placed.of(step, full=step.name in full) for step in plan.first]
        self._decode_full = DECODE in full

    def show(self, figures: Figures) -> None:
        """See `View`."""
        self._shown.show(figures)
        if self._said or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ADVICE_SECONDS
        if told := self._advice(figures):
            self._said = True
            self._shown.say(told)

    def _advice(self, figures: Figures) -> str:
        moment = time.time()
        names = (DECODE, *(step.name for step in self._steps))
        now = {name: known for name in names if (known := figures.live.step(name, moment))}
        return advice(self._steps, now, decode_full=self._decode_full)

    def say(self, sentence: str) -> None:
        """See `View`."""
        self._shown.say(sentence)

    def __enter__(self) -> Advised:
        self._shown.__enter__()
        return self

    def __exit__(self, *ends: Any) -> None:
        self._shown.__exit__(*ends)


def view(console: Console, steps: Sequence[str], *, quiet: bool) -> View:
    """What suits the console."""
    if quiet:
        return Silent()
    return Bars(console, steps) if console.is_terminal else Lines(console, steps)


def _doing(now: StepNow, *, narrow: bool) -> str:
    """What a step does with its time, and the card it runs on."""
    sign = "" if narrow else "%"
    said = f"busy {100 * now.busy:>3.0f}{sign} waits {100 * now.waiting:>3.0f}{sign}"
    return f"{said} {_card(now.card, narrow=narrow)}" if now.card else said


def _line(name: str, rows: int, now: StepNow | None) -> str:
    if now is None:
        return f"{name} {rows}"
    said = f"{now.rows_per_s:.1f}/s, busy {100 * now.busy:.0f}%, waits {100 * now.waiting:.0f}%"
    return f"{name} {rows} ({said}, {_card(now.card)})" if now.card else f"{name} {rows} ({said})"


def _card(card: Card, *, narrow: bool = False) -> str:
    use, memory, total = (card.get(name) for name in ("use_percent", "memory_gb", "total_gb"))
    said = "GPU" if use is None else f"GPU {use:.0f}%"
    return said if narrow or memory is None or total is None else f"{said} {memory:.1f}/{total:.0f} GB"
