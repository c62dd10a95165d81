"""Tables, run.json and the report of an unfinished run: while it computes, and after it was stopped or killed.

A thread looks from time to time which units every first-pass step has finished. A child process writes their tables
under the same names as the run's end would, so that no work is done twice. It writes the report too. So neither memory
nor a stage's drawing code can harm the run. A failure here is tried again later, or at the end.
"""

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

from framekiln.contract.errors import FramekilnError, OutputError
from framekiln.contract.output_names import FRAMES
from framekiln.job.outcome import RunSoFar, TablesSoFar, count_rows
from framekiln.output.kept_tables import KeptTables
from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from framekiln.profiling.run_profile import RunProfile
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess
from framekiln.runtime.run.progress import INTERRUPTED, RunProgress
from framekiln.runtime.run.record import read_earlier, write_progress
from framekiln.runtime.second_pass.second_pass import Assembly, SecondPass, UnitRows, sweep

FIRST_S = 20.0  # s; a run of a minute has tables then
EVERY_S = 30.0  # s or more: see `SHARE`
FIRST_REPORT_S = 120.0  # s; a report takes 2 s of a core, mostly to load the code
SHARE = 0.01  # share of the time for listings, run.json and the report; tables are work that the end is spared
_LOST = "FK-OUTPUT-LOST"  # the error of a run that must not write any more
_MOMENT_S = 0.1  # s between two checks whether a publication has ended
_TIMEOUT_S = 600.0  # s for the tables of a unit, or the report


@dataclass(frozen=True)
class _Writer:
    """The object in the child process. It writes as a process of the run, so that a lost lease fences it too."""

    store: Store
    assembly: Assembly

    def assemble(self, unit: UnitRows) -> None:
        self.assembly((unit,))

    def report(self) -> None:
        from framekiln.reporting.html import write_report

        with KeptTables(self.store.root, self.store.run) as tables:
            write_report(tables)


class Interim:
    """A writer of tables, run.json and the report while a run computes; it begins at `start`."""

    def __init__(self, run: RunSoFar, owners: Sequence[SecondPass], lease: Lease, *, tables: bool = True) -> None:
        """Look at earlier runs' tables; write nothing yet. Without `tables`, only run.json will be written."""
        self._run, self._store, self._work, self._lease = run, run.store, run.work, lease
        self._tables = TablesSoFar(run.store, run.work, owners, read_earlier(run.store))
        self._writes_tables = self._assembles = tables
        if not tables:  # tables of an earlier run stay, whatever these steps are
            self._tables.held = bool(run.store.names(FRAMES))
        self._busy = threading.Lock()  # held during a publication
        self._child: ChildProcess | None = None  # the last publication, which may have ended
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="interim")

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Write run.json and begin to watch: an engine is ready."""
        self._tables.due()
        self._write_record(count=False)
        self._thread.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread.ident is None:
            return
        self._ended.set()
        while self._thread.is_alive():
            self._halt()
            self._thread.join(_MOMENT_S)
        if error is None:
            if self._writes_tables:  # an interruption before the final run.json and report finds all tables named
                with suppress(Exception):  # the final run.json and report show what is wrong with the output
                    self._tables.files_done = len(self._work.media)
                    self._write_record(count=False)
            return
        if (reason := self._find_reason(error)) == _LOST:
            return
        self._assembles = self._writes_tables
        report = self._writes_tables and not isinstance(error, OutputError)
        with suppress(Exception, KeyboardInterrupt):  # a second Ctrl-C ends only this
            self._publish(report=report, reason=reason, profile=self._run.profile())

    @property
    def extent(self) -> str:
        """Return a sentence on the tables that an interrupted run has written."""
        if self._thread.ident is None:
            return "What is finished is kept"
        if self._tables.held:
            return "The tables are still those of the run before"
        files = len(self._work.media)
        return f"Tables of {min(files, self._tables.files_done):,} of {files:,} files are written"

    def make_way(self, owners: Sequence[SecondPass], deletable: Collection[str] | None) -> list[UnitRows]:
        """Write no further tables, remove those of earlier files, and return the units whose rows are to be written.

        Raises OutputError: results were removed during the run.
        """
        work = self._work
        rows = work.finished(self._store)
        if missing := len(work.units) - len(rows):
            raise OutputError(
                f"Results of {missing} of {len(work.units)} units of files were removed from {self._store.root!r} "
                "during the run, or a bucket's listing lags. Run the same command again to continue; if they are gone "
                "again, find out what removes them.",
                code="FK-OUTPUT-GONE",
            )
        sweep(self._store, owners, rows, deletable)  # no table may have a file's rows twice
        while not self._busy.acquire(timeout=_MOMENT_S):
            self._halt()
        try:
            self._assembles = False
            self._tables.release()
            self._tables.due()
            self._write_record(count=False)
        finally:
            self._busy.release()
        return rows

    def _halt(self) -> None:
        self._assembles = False
        if (child := self._child) is not None:
            child.kill()

    def _find_reason(self, error: BaseException) -> str:
        try:
            self._lease.check()  # other threads end the run in the same way
        except FramekilnError as fatal:
            return fatal.code
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        return error.code if isinstance(error, FramekilnError) else type(error).__name__

    def _watch(self) -> None:
        wait, report_at = FIRST_S, time.monotonic() + FIRST_REPORT_S
        while not self._ended.wait(wait):
            wait, report = EVERY_S, self._writes_tables and time.monotonic() >= report_at
            with suppress(Exception):  # the run itself notices what is wrong with its output
                spent, reporting = self._publish(report=report)
                wait = max(EVERY_S, spent / SHARE)
                report_at = time.monotonic() + max(FIRST_REPORT_S, reporting / SHARE) if report else report_at

    def _publish(self, *, report: bool, reason: str = "", profile: RunProfile | None = None) -> tuple[float, float]:
        """Write due tables, run.json and the report; return the seconds without tables, and those of the report."""
        with self._busy, ExitStack() as stack:
            began, due = time.monotonic(), self._tables.due()
            child = None
            if (due and self._assembles) or report:
                child = self._child = stack.enter_context(ChildProcess(_Writer(self._store, self._tables.assembly)))
            ready = time.monotonic()
            for unit in due:
                if child is None or not self._assembles:
                    break
                result = child.call("assemble", unit, timeout_s=_TIMEOUT_S)
                if isinstance(result, ChildDied):
                    break
                if result is None:  # a unit that fails is left for the end
                    self._tables.done(unit)
            assembled = time.monotonic()
            self._write_record(reason, profile)
            written = time.monotonic()
            if child is not None and report:
                child.call("report", timeout_s=_TIMEOUT_S)
            return ready - began + written - assembled, time.monotonic() - written

    def _write_record(self, reason: str = "", profile: RunProfile | None = None, *, count: bool = True) -> None:
        result = self._run.result(count_rows(self._store, self._tables.counts, anew=count), profile)
        files_done = min(len(self._work.media), self._tables.files_done)
        state = RunProgress(
            state="stopped" if reason else "running", run=self._store.run, files_done=files_done, reason=reason
        )
        write_progress(self._store, self._run.request, result, state, later=self._tables.held)
