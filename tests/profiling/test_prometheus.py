"""Ray's agent serves the metrics of a run under their documented names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from framekiln.profiling.export.live_metrics import METRICS
from tests.profiling.test_metrics import served_names
from tests.support.media.collections_factory import photo

_RUN = """
import sys, time, urllib.request, ray
from framekiln.engine.ray import datasets
from framekiln.engine.ray.session import session
from framekiln.engine.ray.coordinator import start_coordinator
from framekiln.planning.error_budget import Budgets
from framekiln.job import Job
from framekiln.profiling.records import Reading
from tests.support.runs.engine_factory import order

kept = []  # a coordinator that ends with its run may take what it counted in its last second along

def keep(*arguments):
    kept.append(start_coordinator(*arguments))
    return kept[-1]

datasets.start_coordinator = keep
with session(None):
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    job = Job(order(sys.argv[1], sys.argv[2], {"near": ("Neighbours", {}), "picky": ("Picky", {"refuse": [0]})}))
    job.run()
    gpu = {"use_percent": 25.0, "memory_gb": 2.0, "total_gb": 8.0, "power_w": 100.0, "temperature_c": 40.0}
    coordinator = start_coordinator(Budgets({}))
    until = time.monotonic() + 60
    while True:  # each process reports by itself, once a second; a gauge is served once for each time that it is set
        ray.get(coordinator.add_event.remote(Reading(node="far", time=0.0, gpus=(gpu, gpu))))
        said = urllib.request.urlopen(url, timeout=20).read().decode()
        rows = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("ray_framekiln_rows_total{")]
        if sum(rows) == 36 and "framekiln_gpu" in said or time.monotonic() > until:
            break
        time.sleep(0.5)
    print(job.store.run)
    print(said)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the run's name, and labels and values of all series by metric."""
    parser = pytest.importorskip("prometheus_client.parser")
    folder = tmp_path_factory.mktemp("metrics")
    for i in range(12):
        photo(folder / "in" / f"photo{i}.png", i)
    ours = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "RAY_metrics_report_interval_ms": "1000",
        "FRAMEKILN_ENGINE": "ray",
    }
    command = [sys.executable, "-c", _RUN, str(folder / "in"), str(folder / "out")]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    run, _, text = done.stdout.partition("\n")
    series = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, []).append((sample.labels, sample.value))
    if (rows := sum(value for _, value in series.get("ray_framekiln_rows_total", ()))) < 36:
        pytest.skip(f"Ray's agent served {rows:.0f} of 36 rows in a minute: this machine is too busy")
    return run, series


@pytest.mark.heavy
@pytest.mark.slow
def test_prometheus_finds_the_figures_of_a_run(served):
    run, series = served
    ours = {name for name in series if "framekiln" in name}
    assert ours <= {name for metric in METRICS for name in served_names(metric)}

    def total(name, step):
        return sum(value for labels, value in series[f"ray_framekiln_{name}"] if labels["step"] == step)

    for step in ("decode", "near", "picky"):
        assert total("rows_total", step) == 12 and total("packets_total", step) >= 1
        assert total("busy_seconds_total", step) == pytest.approx(total("phase_seconds_total", step))
    assert total("failures_total", "picky") == 12 and total("call_seconds_count", "near") == 12
    assert total("call_seconds_count", "picky") == 0 and total("failures_total", "near") == 0
    assert {labels["run"] for labels, _ in series["ray_framekiln_rows_total"]} == {run}


@pytest.mark.heavy
@pytest.mark.slow
def test_prometheus_finds_the_gpus(served):
    def far(name):
        return {labels["gpu"]: value for labels, value in served[1][f"ray_{name}"] if labels["node"] == "far"}

    assert far("framekiln_gpu_use_ratio") == {"0": 0.25, "1": 0.25}
    assert far("framekiln_gpu_memory_bytes") == {"0": 2e9, "1": 2e9}
