"""Why there are no figures of a run: what is no output, what has just begun, and what made nothing are told apart."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from pipeline.lease import at_work
from pipeline.ledger import COLUMNS
from pipeline.reasons import FACTS
from pipeline.second import ERRORS
from pipeline.storage import Store
from pipeline.telemetry.records import PACKET, to_table
from pipeline.telemetry.streams import CALLS, batches, runs

_NAMED = 3  # of earlier runs


def no_records(store: Store) -> str:
    """Why an output has records of no run."""
    if "://" not in store.root and not Path(store.root).is_dir():
        return f"There is no folder {store.root!r}; give the output of a run."
    if at_work(store):
        return (
            f"The run into {store.root!r} has just begun, and no process has done anything yet (Ray takes some seconds "
            "to start); look again soon."
        )
    if not {COLUMNS, FACTS} & set(store.folders()):
        return f"There is no output of Framemill in {store.root!r}; give the folder that --output named."
    return (
        f"There are no records of a run in {store.root!r}: it was stopped before its first packet, or its folder "
        "`profile` was removed; run something into it first."
    )


def no_rows(store: Store, run: str) -> str:
    """Why a run that has records has no figures, and which others have some."""
    if run in at_work(store):
        return f"No packet has gone through a step of run {run} in {store.root!r} yet; look again later."
    said = f"Run {run} in {store.root!r} is over, and no row came out of it"
    said += f" ({store.url(ERRORS)} says what failed)" if store.names(ERRORS) else ""
    others = [other for other in runs(store) if other != run and _made_rows(store, other)]
    if not others:
        return f"{said}; nor did one come out of another run."
    return f"{said}; look at another one by {', '.join(f'--run {other}' for other in others[:_NAMED])}."


def _made_rows(store: Store, run: str) -> bool:
    pieces = batches(store, CALLS, run, to_table, columns=("kind", "rows"))
    return any(pc.any(pc.and_(pc.equal(one["kind"], PACKET), pc.greater(one["rows"], 0))).as_py() for one in pieces)
