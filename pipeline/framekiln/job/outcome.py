"""The result of a run, with the run.json and the report that it leaves in its output."""

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from framekiln.contract.errors import GoneError, OutputError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.contract.row_errors import PASSED_OVER
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.output.object_store import Store
from framekiln.profiling.run_profile import RunProfile, profile_of
from framekiln.profiling.stats.totals import RunTotals
from framekiln.runtime.run.record import write_run_record
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload


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
    frames, kinds = _count_rows(store)
    result = RunResult(
        work=work,
        frames=frames,
        passed_over=kinds.pop(PASSED_OVER, 0),
        errors=kinds,
        started=started,
        seconds=time.time() - started,
        figures=figures,
        profile=recorded_profile(store, request, work),
    )
    is_new = write_run_record(store, request, result)
    recordings = tuple(request.profilers.report(store)) if work.left else ()
    return replace(result, recordings=recordings, report=_write_report(store, is_new=is_new))


def _count_rows(store: Store) -> tuple[int, Counter[str]]:
    kinds: Counter[str] = Counter()
    frames = 0
    for name in store.names(ERRORS):
        with suppress(GoneError):  # another shard may have replaced it
            kinds.update(store.read_table(f"{ERRORS}/{name}", ["kind"], expected=FAILURES)["kind"].to_pylist())
    for name in store.names(FRAMES):
        with suppress(GoneError):
            frames += store.count_rows(f"{FRAMES}/{name}")
    return frames, kinds


def recorded_profile(store: Store, request: RunRequest, work: Workload) -> RunProfile | None:
    """Return the profile of the run's records; None if it cannot be read, which is no reason to lose a run."""
    with suppress(OutputError, OSError):
        return profile_of(store, store.run, request.profile.targets, work.saturated)
    return None


def _write_report(store: Store, *, is_new: bool) -> str | None:
    """Write the report if something is new or it is missing; return its URL, None while a shard replaces tables."""
    from framekiln.reporting.html import NAME, write_report  # templates and charts, which no worker needs

    with suppress(FileNotFoundError):
        return write_report(store) if is_new or not store.exists(NAME) else store.url(NAME)
    return None
