"""`framekiln check` and `prune`: name damaged files of an output, and delete files that its tables do not use."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from typer import Option

from framekiln.api.output import Output
from framekiln.cli.options import Json, Out
from framekiln.contract.errors import ConfigError, OutputError, without_secrets
from framekiln.contract.output_names import FRAMES, RUN_RECORD
from framekiln.contract.row_errors import DECODE
from framekiln.contract.words import counted
from framekiln.output.lease import Lease
from framekiln.output.object_store import Store
from framekiln.output.recognise import later_tables
from framekiln.reporting.compare.runs import read_run
from framekiln.reporting.plan_facts import rebuild
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.check.check import DamagedFile, check_output
from framekiln.runtime.check.leftovers import find_leftovers
from framekiln.runtime.check.mending import expected_parts
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_run_record

_FOUND = 1  # exit code


def check(output: Out, json_: Json = False) -> None:
    """Read a whole output: find damaged tables, lost images and results, and duplicate rows.

    Exits with 1 if there are any. `framekiln run` with the same options computes the files again, except selections.
    """
    console, store, fingerprints, record = Console(stderr=json_), Store(output), dict[str, str](), list[DamagedFile]()
    try:
        fingerprints = read_run(output).fingerprints
    except ConfigError as error:
        if error.code != "FK-RUN-RECORD-DAMAGED":
            raise
        text = "damaged, and it names the columns of all tables: check again after a run"
        record = [DamagedFile(path=RUN_RECORD, text=text)]
    cut = None
    with suppress(ConfigError):  # missing work is neither lost nor damaged
        if (cut := unfinished(store, read_run_record(store))) is not None:
            print_line(console, f"Unfinished: {cut.sentence}")
    findings = [*record, *check_output(store, fingerprints, _find_expected(store, fingerprints))]
    if json_:
        told = {"output": without_secrets(store.root), "unfinished": "" if cut is None else cut.sentence}
        print(json.dumps({**told, "findings": [asdict(finding) for finding in findings]}, indent=2))
    for finding in findings:
        print_line(console, f"{finding.path}: {finding.text}.")
    if findings:
        fix = "`framekiln run` with the same options computes all files but selections again."
        print_line(console, f"{counted(len(findings), 'finding')}. {fix}")
        raise typer.Exit(_FOUND)
    print_line(console, f"{store.root}: nothing is damaged, lost or double.")


def _find_expected(store: Store, fingerprints: Mapping[str, str]) -> dict[str, pa.Schema]:
    """Return the columns of each table by the code of the last run's steps; empty if its record is damaged."""
    with suppress(ConfigError):
        steps = read_run_record(store)["steps"]
        stages = rebuild(steps)
        folders = {f"{name}-{fingerprints[name]}": stage for name, stage in stages.items() if name in fingerprints}
        expected = expected_parts(f"{DECODE}-{fingerprints.get(DECODE, '')}", folders)
        if stages.keys() != steps.keys():  # stages of a script or notebook: only it knows their columns
            expected[FRAMES] = expected[FRAMES].remove_metadata()
        return expected
    return {}


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
