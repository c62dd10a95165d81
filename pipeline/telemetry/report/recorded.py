"""What a report draws of a run's records: the time line and the machines; an output without records has neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import DamagedError, OutputError
from pipeline.storage import Store
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


def recorded(store: Store, told: Mapping[str, Any]) -> Recorded:
    """Of the run that the figures are of; where it had nothing to do, of the last one that has records."""
    missing = Recorded(note="No records of what processes did are there, so there is no time line.")
    try:
        run = chosen_run(store, told.get("run"))
        found = activity(store, run)
        if found is None:
            return missing
        note = "" if told else f"The last run had nothing to do; this is run {run}."
        return Recorded(lanes=lanes(found), machines=machines(store, run, found), note=note)
    except DamagedError as error:
        return Recorded(note=f"No time line: {error}")
    except (OutputError, OSError, ValueError, KeyError):  # gone, or of another version
        return missing
