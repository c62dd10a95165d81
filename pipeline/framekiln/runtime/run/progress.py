"""The progress of a run in run.json, from the start of the computing on.

A run rewrites its state again and again, for the last time when it is finished or stopped. A killed run says "running"
for ever: only its lease shows that it has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from framekiln.output.lease import active_runs
from framekiln.output.object_store import Store

FINISHED = "finished"
INTERRUPTED = "interrupted"
"""Reason of a run stopped by Ctrl-C or a signal; other reasons are error codes."""

LATER = "unfinished"
"""Key of run.json for a later run with other steps; the other keys describe the run that wrote the tables."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The state of a run and of its tables."""

    state: Literal["running", "stopped", "finished"]
    run: str  # its name in its lease and records
    files_done: int  # files with rows or errors in the tables, or ready for them: see `LATER`
    reason: str = ""  # why it was stopped

    def to_record(self) -> dict[str, Any]:
        """Return the keys of run.json."""
        return {**vars(self), "written": datetime.now(UTC).isoformat(timespec="seconds")}


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A run that has not finished."""

    record: Mapping[str, Any]  # record of this run
    runs: bool  # it may still be running
    later: bool  # the tables belong to an earlier run, with other steps or settings

    @property
    def files_done(self) -> int:
        """The files with rows or errors in the tables, or ready for them."""
        return int(self.record.get("files_done") or 0)

    @property
    def files(self) -> int:
        return int(self.record.get("files") or 0)

    @property
    def sentence(self) -> str:
        reason = self.record.get("reason")
        end = f"was {reason}" if reason == INTERRUPTED else f"was stopped [{reason}]" if reason else "was killed"
        how, extent = "is at work" if self.runs else end, f"{self.files_done:,} of {self.files:,} files"
        if self.later:
            return (
                f"A later run with other steps or settings {how}; it has finished {extent}, and the tables are those "
                "of the run before it."
            )
        if self.files_done < self.files:
            return f"The run {how}; the tables hold {extent}."
        return f"The run {how}; all {self.files:,} files are in `frames/`, and other tables are not finished."


def unfinished(store: Store, record: Mapping[str, Any]) -> Unfinished | None:
    """Return the unfinished run of an output, by its run.json; None if all have finished."""
    later = record.get(LATER)
    own: Mapping[str, Any] = record if later is None else later
    if own.get("state", FINISHED) == FINISHED:
        return None
    runs = own["state"] == "running" and own.get("run") in active_runs(store)
    return Unfinished(record=own, runs=runs, later=later is not None)
