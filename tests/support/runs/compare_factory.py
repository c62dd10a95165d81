"""Outputs with records of calls, pairs of them, and the command `compare`."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from framekiln.cli.app import app
from framekiln.profiling.records import to_table
from framekiln.reporting.compare.comparison import compare
from framekiln.reporting.compare.runs import read_sides
from tests.support.media.collections_factory import photo
from tests.support.runs.report_factory import output

BEGAN = 1772600767.0  # 2026-03-04T05:06:07+00:00, when the factory's runs began


def calls(count, ms=20.0, workers=2, step="marked", seed=0, spread=0.2, run="a1", rows=16):
    """Return records of a step's calls, each in a packet: log-normal times, each worker without a pause."""
    chance = np.random.default_rng(seed)
    records = []
    for worker in range(workers):
        seconds = rows * ms / 1000 * np.exp(spread * chance.normal(size=count // workers))
        begun = BEGAN + 1 + np.cumsum(seconds) - seconds
        records += [
            {
                "run": run,
                "kind": kind,
                "step": step,
                "worker": f"h:{worker}",
                "started": t,
                "seconds": s,
                "rows": rows,
            }
            for t, s in zip(begun.tolist(), seconds.tolist(), strict=True)
            for kind in ("packet", "call")
        ]
    return records


@pytest.fixture
def make(tmp_path):
    """Return a function that writes an output of two photos by name, with changes of its run.json."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        photo(folder / name, 1)

    def write(name, lines=(), **changes):
        known = {record["run"] for record in lines}
        named = {"run": max(known)} if known and "throughput" not in changes else {}
        store = output(folder, tmp_path / name, **named | changes)
        for run in known:
            own = to_table(record for record in lines if record["run"] == run)
            store.write_table(f"profile/calls-{run}.parquet", own)
        return store.root

    write.folder = folder
    return write


def pair(a, b, **more):
    return compare(read_sides([a, b]), {}, drift_rows=0, **more).pairs[0]


def line(pair, step, name):
    return next(figure for figure in pair.figures[step] if figure.name == name)


def invoke(*words):
    page = [] if "--html" in words else ["--html", ""]
    return CliRunner().invoke(app, ["compare", *page, *words], env={"COLUMNS": "200"})
