"""What tests of comparing share: outputs with records of calls, two of them side by side, and the command."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.telemetry.compare.comparison import compare
from pipeline.telemetry.compare.runs import read_sides
from pipeline.telemetry.records import to_table
from tests.collections_factory import photo
from tests.report_factory import output

BEGAN = 1772600767.0  # 2026-03-04T05:06:07+00:00, when the factory's runs began


def calls(count, ms=20.0, workers=2, step="marked", seed=0, spread=0.2, run="a1", rows=16):
    """Records of a step's calls: log-normal times, each worker without a pause."""
    chance = np.random.default_rng(seed)
    found = []
    for worker in range(workers):
        seconds = rows * ms / 1000 * np.exp(spread * chance.normal(size=count // workers))
        begun = BEGAN + 1 + np.cumsum(seconds) - seconds
        found += [
            {
                "run": run,
                "kind": "call",
                "step": step,
                "worker": f"h:{worker}",
                "started": t,
                "seconds": s,
                "rows": rows,
            }
            for t, s in zip(begun.tolist(), seconds.tolist(), strict=True)
        ]
    return found


@pytest.fixture
def make(tmp_path):
    """A maker of outputs by name: a run over two photos, as its run.json is told to be."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        photo(folder / name, 1)

    def made(name, lines=(), **changes):
        store = output(folder, tmp_path / name, **changes)
        for run in {one["run"] for one in lines}:
            own = to_table(one for one in lines if one["run"] == run)
            store.write_table(f"profile/calls-{run}.parquet", own)
        return store.root

    made.folder = folder
    return made


def pair(a, b, **more):
    return compare(read_sides([a, b]), {}, drift_rows=0, **more).pairs[0]


def line(found, step, name):
    return next(one for one in found.lines[step] if one.name == name)


def invoke(*words):
    return CliRunner().invoke(app, ["compare", "--html", "", *words], env={"COLUMNS": "200"})
