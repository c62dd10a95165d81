"""The timeline and the machines of a run, from its records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framekiln.contract.errors import DamagedError, OutputError
from framekiln.output.object_store import Store
from framekiln.profiling.run_profile import choose_run
from framekiln.reporting.html.recorded.activity import read_activity
from framekiln.reporting.html.recorded.machines import MachineCharts, machine_charts
from framekiln.reporting.html.recorded.timeline import Timeline, timeline


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """The drawings, or a sentence in their place."""

    timeline: Timeline | None = None
    machines: MachineCharts | None = None
    note: str = ""


def recorded_run(store: Store, record: Mapping[str, Any], own: str | None) -> RecordedRun:
    """Return the drawings of a run, or of the last one with records if run.json's own kept none."""
    missing = RecordedRun(note="There are no records of the processes, so there is no timeline.")
    try:
        run = own or choose_run(store, None)
        activity = read_activity(store, run)
        if activity is None:
            return missing
        why = "kept no records" if record.get("figures") else "had nothing to do"
        note = "" if own else f"The last run {why}; this is run {run}."
        return RecordedRun(timeline=timeline(activity), machines=machine_charts(store, run, activity), note=note)
    except DamagedError as error:
        return RecordedRun(note=f"No timeline: {error}")
    except (OutputError, OSError, ValueError, KeyError):  # gone, or of another version
        return missing
