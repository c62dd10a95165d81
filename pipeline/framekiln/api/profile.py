"""The profile of a run, from the records in its output."""

from collections.abc import Callable, Mapping
from typing import Any

from framekiln.output.object_store import Store
from framekiln.planning.manifest import Targets
from framekiln.profiling.run_profile import (
    RunProfile,
    choose_run,
    missing_rows,
    profile_of,
    stored_saturated,
    targets_of,
)
from framekiln.runtime.run.record import read_run_record


def read_profile(
    store: Store, run: str | None, warn: Callable[[str], None] = lambda _: None, targets: Targets | None = None
) -> RunProfile:
    """Return the profile of a run, of the last one where none is named; it may still go on.

    `warn` gets a sentence for each run that is left out as its records are damaged. `targets` take the place of those
    in the run's profile.

    Raises:
        OutputError: there are no records of that run, or none of its rows has passed a step.
    """
    name = choose_run(store.check_folder(), run, warn)
    record = last_record(store)
    profile = profile_of(store, name, targets or targets_of(record), stored_saturated(record, name))
    if profile is None:
        raise missing_rows(store, name)
    return profile


def last_record(store: Store) -> Mapping[str, Any]:
    """Return the run.json of the output; empty where the first run has not begun to compute."""
    try:
        return read_run_record(store)
    except FileNotFoundError:
        return {}
