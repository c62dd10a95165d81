"""Samples of a node and of its GPUs: read while it works, with missing values, and averaged within calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from framekiln.profiling import node_metrics
from framekiln.profiling.advice import bottleneck
from framekiln.profiling.records import to_table
from framekiln.profiling.stats.steps import step_statistics
from framekiln.profiling.targets import gpu_figures
from tests.support.runs.run_records import GPU, LOOP, Made


def test_gpu_use_is_the_mean_of_samples_within_calls():
    gpu = {"use_percent": 90.0, "total_gb": 80.0}
    calls = Made().step("faces", 4.0, **GPU)
    samples = [
        {
            "run": "0",
            "node": "h",
            "time": LOOP * i + offset,
            "gpus": [gpu | {"use_percent": use}, {"use_percent": None}],
        }
        for i in range(6)
        for offset, use in ((1.0, 70.0), (3.9, 90.0), (4.1, 5.0), (9.0, 0.0))
    ]
    other = [
        {"run": "0", "node": "else", "time": 1.0, "gpus": [gpu]},
        {"run": "0", "node": "h", "time": 1.5, "gpus": []},
    ]
    assert calls.measured(node_metrics.to_table([*samples, *other]))["faces"].gpu_use == pytest.approx(0.8)
    full = Made().step("faces", 9.9, **GPU)
    table = node_metrics.to_table([sample | {"gpus": [gpu]} for sample in samples])
    assert "this one is full" in bottleneck(step_statistics(to_table(full.lines), table), {}).change


def test_a_gpu_that_waits_for_a_set_up_is_not_idle():
    calls = to_table(Made().step("faces", 9.0, set_up=1000.0, **GPU).lines)
    samples = [(LOOP * i + 1, 90.0) for i in range(6)] + [(-100.0 * i, 0.0) for i in range(1, 9)]
    readings = [{"run": "0", "node": "h", "time": at, "gpus": [{"use_percent": use}]} for at, use in samples]
    table = node_metrics.to_table(readings)
    assert step_statistics(calls, table)[0].gpu_use == pytest.approx(0.9)
    assert gpu_figures(calls, table)["gpu_use"] == pytest.approx(90)


def test_a_machine_is_read():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        machine = node_metrics.NodeMetrics("0", os.getpid())
        first = json.loads(node_metrics.to_line(machine.read()))
        table = node_metrics.to_table([json.loads(node_metrics.to_line(machine.read(0.5))), first])
        child.kill()
    assert table.schema.equals(node_metrics.SCHEMA, check_metadata=True)
    early, late = table.to_pylist()
    assert early["time"] < late["time"] and late["store_gb"] == 0.5 and early["store_gb"] is None
    assert dict(late["workers_gb"])[child.pid] > 0 and 0 <= late["cpu_percent"] <= 100 and late["memory_gb"] > 0


def test_the_cores_that_a_process_and_its_children_use_are_told_from_those_of_others():
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ntime.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    idle = "print('done', flush=True); import time; time.sleep(60)"
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for code in (parent, idle)]
    try:
        busy, other = (node_metrics.RunProcesses(psutil.Process(child.pid)) for child in children)
        for child in children:
            assert child.stdout.readline() == b"done\n"
        busy.refresh()
        other.refresh()
        assert busy.cpu_percent() > 2 * other.cpu_percent()
    finally:
        for child in children:
            for one in psutil.Process(child.pid).children():
                one.kill()
            child.kill()
            child.communicate()


def test_cores_that_a_run_is_not_bound_to_are_left_out(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_percent", lambda percpu: [20.0, 90.0, 100.0, 100.0])
    found = []
    for cores in ({0}, {0, 1}, {9}):  # the last one is a core that the system does not list
        monkeypatch.setattr(node_metrics, "bound_cores", lambda cores=cores: frozenset(cores))
        found.append(node_metrics.NodeMetrics("0").read()["cpu_percent"])
    assert found == [20.0, 55.0, 77.5]
    clock = [0.0]
    monkeypatch.setattr(node_metrics, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _: SimpleNamespace(user=clock[0], system=0.0))
    monkeypatch.setattr(node_metrics, "bound_cores", lambda: frozenset({0, 1, 2, 3}))
    one = node_metrics.RunProcesses(psutil.Process())
    clock[0] = 1.0
    assert one.cpu_percent() == 25.0  # of four cores, by a process that fills one


def test_missing_gpu_values_are_null_and_the_others_are_kept():
    class Half:
        """A driver of a GPU without a power sensor."""

        NVML_TEMPERATURE_GPU = 0

        def __init__(self):
            memory, use = SimpleNamespace(used=4e9, total=16e9), SimpleNamespace(gpu=83)
            self.nvmlInit, self.nvmlDeviceGetCount = lambda: None, lambda: 2
            self.nvmlDeviceGetHandleByIndex = lambda i: i
            self.nvmlDeviceGetUtilizationRates, self.nvmlDeviceGetMemoryInfo = lambda _: use, lambda _: memory
            process = SimpleNamespace(pid=7, usedGpuMemory=3e9)
            self.nvmlDeviceGetComputeRunningProcesses = lambda _: [process, SimpleNamespace(pid=8, usedGpuMemory=None)]

    sample = json.loads(node_metrics.to_line(node_metrics.NodeMetrics("0", nvml=Half()).read()))
    (row,) = node_metrics.to_table([sample]).to_pylist()
    known = {"use_percent": 83.0, "memory_gb": 4.0, "total_gb": 16.0, "power_w": None, "temperature_c": None}
    assert row["gpus"] == [known] * 2 and dict(row["gpu_processes_gb"]) == {7: 6.0, 8: 0.0}
