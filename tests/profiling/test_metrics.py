"""Prometheus metrics: every second of a packet is in one, and the dashboard queries only served names."""

from __future__ import annotations

import json
import re
from pathlib import Path

from framekiln.profiling.export.live_metrics import BOUNDS, BUSY, CALL, METRICS, PHASE, ROWS, WAIT, observations
from framekiln.profiling.records import SET_UP, Reading, StepEvent
from tests.support.runs.live_events import GPU_SAMPLE

DASHBOARD = Path(__file__).parents[2] / "manifests" / "grafana" / "framekiln.json"


def served_names(metric):
    """Names under which Prometheus finds a metric."""
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
    return [f"ray_{metric.name}{ending}" for ending in endings[metric.kind]]


def test_every_second_of_a_packet_is_in_one_metric():
    around = {"wait": 1.0, "fetch": 0.5, "write": 0.25}
    packet = StepEvent(
        step="a", worker="host:7", rows=4, failures=1, started=1.0, seconds=3.0, phases={"infer": 2.0}, around=around,
        calls=(0.5, 1.5), retries=2, memory=(1.0, 2.0, 3.0), device="cuda",
    )  # fmt: skip
    found = [(metric.name, value, labels) for metric, value, labels in observations(packet, "r")]
    by_name = {name: [value for other, value, _ in found if other == name] for name, _, _ in found}
    assert by_name[ROWS.name] == [4.0] and by_name[WAIT.name] == [1.0] and by_name[CALL.name] == [0.5, 1.5]
    phases = {labels["phase"]: value for name, value, labels in found if name == PHASE.name}
    assert phases == {"infer": 2.0, "write": 0.25, "other": 0.75} and by_name[BUSY.name] == [sum(phases.values())]
    assert by_name["framekiln_vram_peak_bytes"] == [3e9] and by_name["framekiln_oom_retries"] == [2.0]
    read = {
        metric.name: value for metric, value, _ in observations(Reading(node="n", time=0.0, gpus=(GPU_SAMPLE,)), "r")
    }
    assert read["framekiln_gpu_use_ratio"] == 0.2 and read["framekiln_gpu_memory_size_bytes"] == 8e9
    assert [*observations(StepEvent(kind=SET_UP, step="a", worker="h:1", started=0.0, seconds=9.0), "r")] == []
    assert [*observations(StepEvent(step="a", worker="h:1", started=0.0, seconds=0.0), "r")] == []
    reading = Reading(node="n", time=0.0, gpus=(GPU_SAMPLE,))
    for metric, _, labels in [*observations(packet, "r"), *observations(reading, "r")]:
        assert metric in METRICS and set(labels) == set(metric.labels)


def test_metrics_are_named_as_prometheus_asks():
    units = ("rows", "packets", "failures", "retries", "seconds", "bytes", "ratio", "watts", "celsius")
    for metric in METRICS:
        assert re.fullmatch(r"framekiln_[a-z_]+", metric.name) and metric.name.endswith(units) and metric.what
    assert len({metric.name for metric in METRICS}) == len(METRICS) and list(BOUNDS) == sorted(BOUNDS)
    assert BOUNDS[0] == 0.001 and 300 < BOUNDS[-1] < 500


def test_the_dashboard_asks_for_what_is_served():
    board = json.loads(DASHBOARD.read_text())
    assert board["title"] and board["uid"] and board["schemaVersion"] >= 36 and board["time"] and board["refresh"]
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    served = {name: metric for metric in METRICS for name in served_names(metric)}
    panels, queried = board["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] and panel["title"] and {"h", "w", "x", "y"} == set(panel["gridPos"])
        assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"]
        for target in panel["targets"]:
            assert target["refId"] and target["datasource"]["uid"] == "${datasource}"
            for name, selector in re.findall(r"(ray_\w+)(?:\{([^}]*)\})?", target["expr"]):
                assert name in served, name
                assert set(re.findall(r"(\w+)=~", selector)) <= set(served[name].labels)
                queried.add(served[name].name)
            known = {label for name in served if name in target["expr"] for label in served[name].labels}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
            assert target["expr"].count("(") == target["expr"].count(")")
    for name in ("run", "step"):
        assert re.search(r"label_values\((ray_\w+)", variables[name]["query"]["query"])[1] in served
    shown = {"rows", "phase_seconds", "call_seconds", "busy_seconds", "wait_seconds", "failures", "gpu_use_ratio"}
    shown |= {"vram_reserved_bytes", "gpu_power_watts"}
    assert {f"framekiln_{name}" for name in shown} <= queried
