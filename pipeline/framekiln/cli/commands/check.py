"""`framekiln check`: read a whole output and name damaged files."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict

import pyarrow as pa
import typer
from rich.console import Console

from framekiln.cli.options import Json, Out
from framekiln.contract.errors import ConfigError, without_secrets
from framekiln.contract.output_names import FRAMES, RUN_RECORD
from framekiln.contract.row_errors import DECODE
from framekiln.contract.words import counted
from framekiln.output.object_store import Store
from framekiln.reporting.compare.runs import read_run
from framekiln.reporting.plan_facts import rebuild
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.check.check import DamagedFile, check_output
from framekiln.runtime.check.mending import expected_parts
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_run_record

_FOUND = 1  # exit code


def check(output: Out, json_: Json = False) -> None:
    """Read a whole output: find damaged tables, lost images and results, and duplicate rows.

    Exits with 1 if there are any. `framekiln run` with the same options computes the files again, except selections
    and records.
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
        fix = "`framekiln run` with the same options replaces all files but selections and records."
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
