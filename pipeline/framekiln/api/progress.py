"""The progress of a run in a notebook, or on the terminal of a script."""

import sys
import time
from collections.abc import Callable, Sequence
from html import escape

from framekiln.api.watch import Watch
from framekiln.profiling.stats.totals import RunTotals
from framekiln.reporting.formatting import count, elapsed
from framekiln.reporting.terminal.console import print_line, stderr_console
from framekiln.reporting.terminal.progress import ProgressView, make_view

_SECONDS = 0.5  # between two updates of a cell


def make_watch(progress: bool | None) -> Watch:
    """Return the display of a run: a table in a notebook, else lines on stderr; None shows it in notebooks only."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if progress is False or (progress is None and not hasattr(shell, "kernel")):  # a terminal has a shell without one
        return Watch()
    return _NotebookWatch(_open_cell()) if shell is not None else _TerminalWatch()


def _open_cell() -> Callable[[str], None]:
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    return lambda text: handle.update(HTML(text))


class _NotebookWatch(Watch):
    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def say(self, sentence: str) -> None:
        super().say(sentence)
        self._show(f"<p>{escape(sentence)}</p>")

    def view(self, steps: Sequence[str]) -> ProgressView:
        return NotebookView(self._show, steps)


class _TerminalWatch(Watch):
    def __init__(self) -> None:
        self._console = stderr_console()

    def say(self, sentence: str) -> None:
        super().say(sentence)
        print_line(self._console, sentence)

    def view(self, steps: Sequence[str]) -> ProgressView:
        return make_view(self._console, steps, quiet=False)


class NotebookView(ProgressView):
    """A bar for all files and one for each step; the last state stays."""

    def __init__(
        self,
        show: Callable[[str], None],
        steps: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show, self._steps, self._clock = show, steps, clock
        self._next, self._last, self._sentences = 0.0, RunTotals(), list[str]()

    def show(self, figures: RunTotals) -> None:
        """See `ProgressView`."""
        self._last = figures
        if self._clock() >= self._next:
            self._next = self._clock() + _SECONDS
            self._show(self._draw())

    def say(self, sentence: str) -> None:
        """See `ProgressView`."""
        self._sentences.append(sentence)
        self._show(self._draw())

    def __exit__(self, *_: object) -> None:
        self._show(self._draw())

    def _draw(self) -> str:
        figures, moment = self._last, time.time()
        progress, names = figures.progress, tuple(self._steps)
        shares, left, slowest = progress.shares(names), progress.left(names, moment), progress.slowest(names, moment)
        done, files = progress.files(names)
        time_left = f"{elapsed(round(slowest[1]))} left" if slowest else ""
        rows = [_draw_row("all files", progress.done(names), f"{done:,} of {files:,}", "", time_left, "")]
        for name in names:
            step, now = figures.steps[name], figures.live.step(name, moment)
            rate = f"{now.rows_per_s:,.1f}/s" if now else ""
            errors = count(step.failures, "error") if step.failures else ""
            time_left = f"{elapsed(round(left[name]))} left" if name in left else ""
            rows.append(_draw_row(name, shares[name], f"{step.rows:,}", rate, time_left, errors))
        notes = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences)
        return f"<table>{''.join(rows)}</table>{notes}"


def _draw_row(name: str, share: float, *texts: str) -> str:
    cells = "".join(f'<td style="text-align:right">{escape(text)}</td>' for text in texts)
    bar = f'<progress value="{share:.3f}" max="1"></progress>'
    return f'<tr><td style="text-align:left">{escape(name)}</td><td>{bar}</td>{cells}</tr>'
