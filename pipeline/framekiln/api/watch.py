"""What a run tells while it goes on, to a terminal, a notebook or nobody."""

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack

from framekiln.job import Job
from framekiln.profiling.export.tensorboard import Scalars, check
from framekiln.profiling.stats.totals import RunTotals
from framekiln.reporting.terminal.progress import AdvisingView, ProgressView, working_steps
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload

_LOG = logging.getLogger("framekiln")


class Watch:
    """A listener to one run; this one shows nothing, and logs sentences."""

    def say(self, sentence: str) -> None:
        """Take a sentence about the run's start."""
        _LOG.info(sentence)

    def found(self, work: Workload, request: RunRequest) -> None:
        """Take the work before it starts."""

    def view(self, steps: Sequence[str]) -> ProgressView:  # noqa: ARG002
        """Return the display of these steps while they run."""
        return ProgressView()


def scalars_folder(place: str | os.PathLike[str] | None) -> str | None:
    """Return the folder for TensorBoard, None for none.

    Raises:
        ConfigError: the package is missing, or the folder cannot be written to.
    """
    if place is None:
        return None
    check(os.fspath(place))
    return os.fspath(place)


class WatchedRun:
    """A run that tells a `Watch` how it goes on."""

    def __init__(self, request: RunRequest, watch: Watch, tensorboard: str | None = None) -> None:
        """Prepare it; `tensorboard` is a folder for scalars.

        Raises:
            ConfigError: the request has no input or no output.
        """
        self._request, self._watch, self._tensorboard = request, watch, tensorboard
        self._view, self._stack = ProgressView(), ExitStack()
        self.job = Job(request, watch=self._show, on_plan=self._on_plan, on_wait=watch.say)

    def result(self) -> RunResult:
        """Run it, and return its result.

        Raises:
            FramekilnError: see `Job.run`.
        """
        with self._stack:
            return self.job.run()

    def _show(self, figures: RunTotals) -> None:
        self._view.show(figures)

    def _on_plan(self, work: Workload) -> None:
        self._watch.found(work, self._request)
        if not work.left:
            return
        steps = working_steps(work)
        views: list[ProgressView | Scalars] = [self._watch.view(steps)]
        if self._tensorboard is not None:
            later = [step.name for step in work.plan.second]
            views.append(Scalars(self._tensorboard, self.job.store.run, [*steps, *later]))
        self._view = self._stack.enter_context(AdvisingView(views, work.plan, work.saturated))
