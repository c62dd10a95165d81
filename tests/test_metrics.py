"""Ray's agent really serves the figures of a run, under the names that the catalogue promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.telemetry.metrics import METRICS
from tests.collections_factory import photo

_RUN = """
import sys, time, urllib.request, ray
from pipeline.engine import session
from pipeline.engine.board import start_board
from pipeline.budget import Budgets
from pipeline.job import Job
from pipeline.sample import Reading
from tests.engine_factory import order

with session(None):
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    job = Job(order(sys.argv[1], sys.argv[2], {"near": ("Neighbours", {}), "picky": ("Picky", {"refuse": [0]})}))
    job.run()
    card = {"use_percent": 25.0, "memory_gb": 2.0, "total_gb": 8.0, "power_w": 100.0, "temperature_c": 40.0}
    board = start_board(Budgets({}))
    ray.get(board.read.remote(Reading(node="far", time=0.0, cards=(card, card))))
    until = time.monotonic() + 60
    while True:
        said = urllib.request.urlopen(url, timeout=20).read().decode()
        if "framemill_rows" in said and "framemill_gpu" in said or time.monotonic() > until:
            break
        time.sleep(0.5)
    print(job.store.run)
    print(said)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The run, and by metric all series: labels and values."""
    parser = pytest.importorskip("prometheus_client.parser")
    folder = tmp_path_factory.mktemp("metrics")
    for i in range(12):
        photo(folder / "in" / f"photo{i}.png", i)
    ours = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "RAY_metrics_report_interval_ms": "1000"}
    command = [sys.executable, "-c", _RUN, str(folder / "in"), str(folder / "out")]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    run, _, said = done.stdout.partition("\n")
    found = {}
    for family in parser.text_string_to_metric_families(said):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return run, found


@pytest.mark.slow
def test_prometheus_finds_the_figures_of_a_run(served):
    run, found = served
    ours = {name for name in found if "framemill" in name}
    assert ours <= {name for metric in METRICS for name in metric.served}

    def total(name, step):
        return sum(value for labels, value in found[f"ray_framemill_{name}"] if labels["step"] == step)

    for step in ("decode", "near", "picky"):
        assert total("rows_total", step) == 12 and total("packets_total", step) >= 1
        assert total("busy_seconds_total", step) == pytest.approx(total("phase_seconds_total", step))
    assert total("failures_total", "picky") == 12 and total("call_seconds_count", "near") == 12
    assert total("call_seconds_count", "picky") == 0 and total("failures_total", "near") == 0
    assert {labels["run"] for labels, _ in found["ray_framemill_rows_total"]} == {run}


@pytest.mark.slow
def test_prometheus_finds_the_cards(served):
    def far(name):
        return {labels["gpu"]: value for labels, value in served[1][f"ray_{name}"] if labels["node"] == "far"}

    assert far("framemill_gpu_use_ratio") == {"0": 0.25, "1": 0.25}
    assert far("framemill_gpu_memory_bytes") == {"0": 2e9, "1": 2e9}
