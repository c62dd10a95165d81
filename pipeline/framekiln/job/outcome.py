"""The result of a run, with the run.json and the report that it leaves in its output."""

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from framekiln.contract.errors import OutputError
from framekiln.contract.row_errors import PASSED_OVER
from framekiln.job.tables_so_far import count_rows
from framekiln.output.object_store import Store
from framekiln.profiling.run_profile import RunProfile, profile_of
from framekiln.profiling.stats.totals import RunTotals
from framekiln.runtime.run.record import write_run_record
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload


def make_result(
    work: Workload, counted: tuple[int, Counter[str]], figures: RunTotals, started: float, profile: RunProfile | None
) -> RunResult:
    """Return the result of a run so far, with the numbers of its frames and of its errors by kind."""
    frames, kinds = counted
    return RunResult(
        work=work,
        frames=frames,
        passed_over=kinds.pop(PASSED_OVER, 0),
        errors=kinds,
        started=started,
        seconds=time.time() - started,
        figures=figures,
        profile=profile,
    )


def conclude(store: Store, request: RunRequest, work: Workload, figures: RunTotals, started: float) -> RunResult:
    """Write run.json and the report of a run that holds the output's lease, and return its result.

    Args:
        store: the output, opened for this run.
        request: of the run.
        work: that it found.
        figures: of its steps.
        started: seconds since the epoch.

    Raises:
        DamagedError: a table is damaged.
        OutputError: the output cannot be written.
    """
    from framekiln.reporting.html import NAME, write_report  # templates and charts, which no worker needs

    result = make_result(work, count_rows(store, {}), figures, started, recorded_profile(store, request, work))
    is_new = write_run_record(store, request, result)
    recordings = tuple(request.profilers.report(store)) if work.left else ()
    report = None
    with suppress(FileNotFoundError):  # a shard replaces tables
        report = write_report(store) if is_new or not store.exists(NAME) else store.url(NAME)
    return replace(result, recordings=recordings, report=report)


def recorded_profile(store: Store, request: RunRequest, work: Workload) -> RunProfile | None:
    """Return the profile of the run's records; None if it cannot be read, which is no reason to lose a run."""
    with suppress(OutputError, OSError):
        return profile_of(store, store.run, request.profile.targets, work.saturated)
    return None
