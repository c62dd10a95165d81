"""Runs that stand still at a gate, so that tests can look at an output while they are at work, and end them there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from framekiln.contract.output_names import COLUMNS, FRAMES
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from tests.faults import chaos
from tests.support.machine.command_line import ROOT
from tests.support.runs.engine_factory import table

EAGER = """
import sys
import framekiln.job.interim as interim
interim.FIRST_S = interim.EVERY_S = interim.FIRST_REPORT_S = 0.05
interim.SHARE = 1.0
from framekiln.cli.app import main
main(sys.argv[1:])
"""
"""The command line, with tables as soon as they can be written; else the first would come after 20 s."""


@dataclass(frozen=True)
class Gated:
    """An output of runs that wait at a gate with some of their files."""

    source: Path
    out: Path
    gate: Path
    pipeline: Path
    runs: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, source: Path, held: str) -> Gated:
        """Write the pipeline file: checksums, the gate, and a table of each file."""
        gated = cls(source, folder / "out", folder / "gate", folder / "gated.yaml")
        gated.set(held)
        return gated

    def set(self, held: str, **settings: object) -> None:
        """Change the settings of the gate in the pipeline file."""
        settings = json.dumps({"held": [held], "gate": str(self.gate), **settings})
        uses = ("crc", "Checksum", "{}"), ("gate", "Gate", settings), ("count", "Count", "{}")
        lines = [f"  {name}: {{use: 'tests.toys:{kind}', with: {given}}}" for name, kind, given in uses]
        self.pipeline.write_text("\n".join(["steps:", *lines, ""]))

    def words(self, *more: object) -> list[str]:
        """The words of the command `run`."""
        return ["run", "--pipeline", *map(str, (self.pipeline, "-i", self.source, "-o", self.out, *more))]

    def start(self, *, eager: bool = True, words: list[str] | None = None) -> subprocess.Popen[str]:
        """A run in a process and a process group of its own."""
        run = subprocess.Popen(
            [sys.executable, *(("-c", EAGER) if eager else ("-m", "framekiln")), *(words or self.words())],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
            process_group=0,
        )
        self.runs.append(run)
        return run

    def end(self) -> None:
        """End all runs, as after a test that failed."""
        for run in self.runs:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()

    @property
    def record(self) -> dict:
        """The run.json; empty where there is none."""
        path = self.out / "run.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def wait(self, run: subprocess.Popen[str], files: int) -> None:
        """Wait until the tables, and the report behind them, have so many files."""
        self.wait_for_tables(run, files)
        since = time.time()
        report = self.out / "report.html"
        self._wait(run, lambda: report.exists() and report.stat().st_mtime > since)

    def wait_for_tables(self, run: subprocess.Popen[str], files: int, since: str = "") -> None:
        """Wait until the tables have so many files, as of a time after `since`."""
        self._wait(run, lambda: self.record.get("files_done") == files and self.record["written"] > since)

    def wait_for_parts(self, run: subprocess.Popen[str], files: int) -> None:
        """Wait until every first-pass step has finished so many files, whether or not they are in the tables."""
        self._wait(run, lambda: self.finished() >= files)

    def wait_for_later(self, run: subprocess.Popen[str], files: int) -> None:
        """Wait until a run beside the tables of an earlier one has finished so many files."""
        self._wait(run, lambda: self.record.get("unfinished", {}).get("files_done") == files)

    def _wait(self, run: subprocess.Popen[str], condition: Callable[[], object]) -> None:
        if not chaos.wait_for(condition, run, 120):
            self.end()
            raise AssertionError(f"{self.record.get('files_done')} files are done, {run.communicate()}")

    def finished(self) -> int:
        """Files that every first-pass step has finished."""
        store = Store(str(self.out))
        folders = sorted(store.folders(COLUMNS), key=lambda name: not name.startswith("decode"))
        if len(folders) < 3:
            return 0
        ledger = Ledger(store)
        return sum(len(unit.media) for unit in read_units(store) if ledger.has(folders, unit.name))

    @property
    def page(self) -> str:
        """The report; empty where there is none."""
        path = self.out / "report.html"
        return path.read_text() if path.exists() else ""

    def frames(self) -> pa.Table:
        """The table of frames, in one order."""
        return table(self.out, FRAMES)

    def names(self) -> list[str]:
        """The files with rows in the table of frames, once for each row."""
        return self.frames()["media_id"].to_pylist() if (self.out / FRAMES).exists() else []
