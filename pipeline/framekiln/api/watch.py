"""The display of a run in progress: a notebook, a terminal, or none."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from html import escape

from framekiln.job import Job
from framekiln.profiling.export.live_metrics import Scalars
from framekiln.profiling.records import now
from framekiln.profiling.stats.progress import RunTotals
from framekiln.reporting.terminal.console import print_line, stderr_console
from framekiln.reporting.terminal.progress import AdvisingView, ProgressView, make_view, progress_rows, working_steps
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload

_LOG = logging.getLogger("framekiln")
_SECONDS = 0.5  # s between two updates of a cell


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Listeners of a run in progress; by default nothing is shown."""

    say: Callable[[str], None] = lambda _: None  # gets sentences about the start, which are logged too
    found: Callable[[Workload, RunRequest], None] = lambda *_: None  # gets the work before the run starts
    view: Callable[[Sequence[str]], ProgressView] = lambda _: ProgressView()  # displays steps while they run


class WatchedRun:
    """A run that reports its progress to a `Watch`."""

    def __init__(self, request: RunRequest, watch: Watch, tensorboard: str | None) -> None:
        """Prepare the run; `tensorboard` is a folder for scalars.

        Raises ConfigError: the request has no input or no output.
        """
        self._request, self._watch, self._tensorboard = request, watch, tensorboard
        self._view, self._stack = ProgressView(), ExitStack()
        self.job = Job(request, self._show, self._on_plan, self._say)

    def result(self) -> RunResult:
        """Run it, and return its result. Raises FramekilnError: see `Job.run`."""
        with self._stack:
            return self.job.run()

    def _say(self, sentence: str) -> None:
        _LOG.info(sentence)
        self._watch.say(sentence)

    def _show(self, figures: RunTotals) -> None:
        self._view.show(figures)

    def _on_plan(self, work: Workload) -> None:
        self._stack.close()  # ends the display of earlier steps
        self._watch.found(work, self._request)
        if not work.left:
            return
        steps = working_steps(work)
        at_work = [step for step in work.plan.first if step.name in steps]
        views: list[ProgressView | Scalars] = [self._watch.view(steps)]
        if self._tensorboard is not None:
            later = [step.name for step in work.plan.second]
            views.append(Scalars(self._tensorboard, self.job.store.run, [*steps, *later]))
        self._view = self._stack.enter_context(AdvisingView(views, at_work, work.rooms))


def make_watch(progress: bool | None) -> Watch:
    """Return a run's display: a table in a notebook, else lines on stderr; None: shown in notebooks only."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if progress is False or (progress is None and not hasattr(shell, "kernel")):  # a terminal's shell has none
        return Watch()
    if shell is None:
        console = stderr_console()
        return Watch(say=partial(print_line, console), view=partial(make_view, console, quiet=False))
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    view = partial(NotebookView, lambda text: handle.update(HTML(text)))
    return Watch(say=lambda sentence: handle.update(HTML(f"<p>{escape(sentence)}</p>")), view=view)


class NotebookView(ProgressView):
    """A bar for all files and one for each step; the last state stays visible."""

    def __init__(
        self, show: Callable[[str], None], steps: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._steps, self._clock = show, steps, clock
        self._next, self._last, self._sentences = 0.0, RunTotals(), list[str]()

    def show(self, figures: RunTotals) -> None:
        self._last = figures
        if self._clock() >= self._next:
            self._next = self._clock() + _SECONDS
            self._show(self._draw())

    def say(self, sentence: str) -> None:
        self._sentences.append(sentence)
        self._show(self._draw())

    def __exit__(self, *_: object) -> None:
        self._show(self._draw())

    def _draw(self) -> str:
        rows = ""
        for row in progress_rows(self._last, self._steps, now()):
            texts = row.rows, row.rate, f"{row.left} left" if row.left else "", row.errors
            cells = "".join(f'<td style="text-align:right">{escape(text)}</td>' for text in texts)
            bar = f'<progress value="{row.share:.3f}" max="1"></progress>'
            rows += f'<tr><td style="text-align:left">{escape(row.name)}</td><td>{bar}</td>{cells}</tr>'
        notes = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences)
        return f"<table>{rows}</table>{notes}"
