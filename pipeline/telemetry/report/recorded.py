"""What a report draws of a run's records: the time line and the machines; an output without records has neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import DamagedError, OutputError
from pipeline.storage import Store
from pipeline.telemetry.compare.calls import run_of
from pipeline.telemetry.profiles import chosen_run
from pipeline.telemetry.report.activity import activity
from pipeline.telemetry.report.lanes import Lanes, lanes
from pipeline.telemetry.report.machines import Machines, machines


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Both, and a sentence in their place."""

    lanes: Lanes | None = None
    machines: Machines | None = None
    note: str = ""


def recorded(store: Store, record: Mapping[str, Any]) -> Recorded:
    """Of the run that a run.json is of; where that left no records, of the last one that has some."""
    missing = Recorded(note="No records of what processes did are there, so there is no time line.")
    try:
        own = run_of(store, record)
        run = own or chosen_run(store, None)
        found = activity(store, run)
        if found is None:
            return missing
        why = "kept no records" if record.get("figures") else "had nothing to do"
        note = "" if own else f"The last run {why}; this is run {run}."
        return Recorded(lanes=lanes(found), machines=machines(store, run, found), note=note)
    except DamagedError as error:
        return Recorded(note=f"No time line: {error}")
    except (OutputError, OSError, ValueError, KeyError):  # gone, or of another version
        return missing
