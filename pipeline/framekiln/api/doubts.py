"""Doubts about an output's tables: what may be missing in them, as sentences for people."""

from collections.abc import Collection, Iterator

from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.output.object_store import Store
from framekiln.reporting.plan_facts import rebuild
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_earlier


def doubt(store: Store, tables: Collection[str]) -> Iterator[str]:
    """Yield sentences on tables that may lack rows: the run is unfinished, or its steps no longer write them."""
    if (record := read_earlier(store)) is None:
        return
    if (cut := unfinished(store, record)) is not None:
        yield cut.sentence
    stages = rebuild(record["steps"])
    written = {FRAMES, ERRORS, *(name for stage in stages.values() for name in stage.tables)}
    left = sorted(set(tables) - written) if len(stages) == len(record["steps"]) else ()
    if left:
        yield f"Of an earlier run, whose steps the last one lacks, so files may be missing: {', '.join(left)}."
