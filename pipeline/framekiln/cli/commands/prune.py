"""`framekiln prune`: delete files of an output that its tables do not use."""

from typing import Annotated

from rich.console import Console
from typer import Option

from framekiln.api.output import Output
from framekiln.cli.options import Out
from framekiln.contract.errors import OutputError
from framekiln.contract.words import counted
from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from framekiln.output.recognise import later_tables
from framekiln.reporting.compare.runs import read_run
from framekiln.reporting.plan_facts import rebuild
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.check.leftovers import find_leftovers
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_run_record


def prune(
    output: Out,
    earlier_settings: Annotated[bool, Option("--earlier-settings", help="Also of earlier settings and steps.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be deleted.")] = False,
) -> None:
    """Delete results of files that are no longer in the tables, to free space or to forget a person.

    Runs keep such results, so that a file that comes back costs nothing. First run without the files.
    """
    store, console = Store(output).check_folder(), Console()
    if (cut := unfinished(store, read_run_record(store))) is not None:
        message = f"{cut.sentence} Finish it first: its tables are not known yet."
        raise OutputError(message, code="FK-PRUNE-UNFINISHED")
    run = read_run(output)
    folders = {f"{name}-{fingerprint}" for name, fingerprint in run.fingerprints.items()}
    steps = read_run_record(store)["steps"]
    stages = rebuild(steps)
    known = stages.keys() == steps.keys()  # only their script or notebook knows these stages
    written = {table for stage in stages.values() for table in stage.tables} if known else later_tables(store)
    with Lease(store, on_wait=lambda text: print_line(console, text)) as lease:
        store = store.of_run(lease.run)
        leftovers = find_leftovers(store, folders if earlier_settings else None, written)
        if not dry_run:
            leftovers.delete(store)
    if leftovers.files and not dry_run:
        Output(output).report(again=True)
    size, tables = sum(leftovers.files.values()) / 1e6, counted(len(leftovers.tables), "table")
    files = f"{counted(len(leftovers.files), 'file')} ({size:,.1f} MB) and the rows of such files in {tables}"
    print_line(console, f"{'This would delete' if dry_run else 'Deleted'} {files}.")
