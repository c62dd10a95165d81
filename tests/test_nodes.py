"""Samples of a machine and of its GPUs: read while it works, told as far as cards answer, and counted within calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pipeline.telemetry import nodes
from pipeline.telemetry.measures import measure
from pipeline.telemetry.records import to_table
from pipeline.telemetry.targets import Cards
from pipeline.telemetry.verdict import verdict
from tests.run_records import GPU, LOOP, Made


def test_gpu_use_is_of_the_samples_within_calls():
    card = {"use_percent": 90.0, "total_gb": 80.0}
    calls = Made().step("faces", 4.0, **GPU)
    samples = [
        {
            "run": "0",
            "node": "h",
            "time": LOOP * i + offset,
            "gpus": [card | {"use_percent": use}, {"use_percent": None}],
        }
        for i in range(6)
        for offset, use in ((1.0, 70.0), (3.9, 90.0), (4.1, 5.0), (9.0, 0.0))
    ]
    other = [
        {"run": "0", "node": "else", "time": 1.0, "gpus": [card]},
        {"run": "0", "node": "h", "time": 1.5, "gpus": []},
    ]
    assert calls.measured(nodes.to_table([*samples, *other]))["faces"].gpu_use == pytest.approx(0.8)
    full = Made().step("faces", 9.9, **GPU)
    table = nodes.to_table([sample | {"gpus": [card]} for sample in samples])
    assert "this one is full" in verdict(measure(to_table(full.lines), table)).change


def test_a_gpu_that_waits_for_a_set_up_is_not_idle():
    calls = to_table(Made().step("faces", 9.0, set_up=1000.0, **GPU).lines)
    samples = [(LOOP * i + 1, 90.0) for i in range(6)] + [(-100.0 * i, 0.0) for i in range(1, 9)]
    told = [{"run": "0", "node": "h", "time": at, "gpus": [{"use_percent": use}]} for at, use in samples]
    table = nodes.to_table(told)
    assert measure(calls, table)[0].gpu_use == pytest.approx(0.9)
    assert Cards.of(calls, table).gpu_use_percent == pytest.approx(90)


def test_a_machine_is_read():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        machine = nodes.Machine("0", os.getpid())
        first = json.loads(nodes.to_line(machine.read()))
        table = nodes.to_table([json.loads(nodes.to_line(machine.read(0.5))), first])
        child.kill()
    assert table.schema.equals(nodes.SCHEMA, check_metadata=True)
    early, late = table.to_pylist()
    assert early["time"] < late["time"] and late["store_gb"] == 0.5 and early["store_gb"] is None
    assert dict(late["workers_gb"])[child.pid] > 0 and 0 <= late["cpu_percent"] <= 100 and late["memory_gb"] > 0
    assert early["net_in_mb_s"] is None


def test_cards_that_answer_half_of_the_questions_are_told_of_by_the_rest():
    class Half:
        """A driver as on a card without a power sensor."""

        NVML_TEMPERATURE_GPU = 0

        def __init__(self):
            memory, use = SimpleNamespace(used=4e9, total=16e9), SimpleNamespace(gpu=83)
            self.nvmlInit, self.nvmlDeviceGetCount = lambda: None, lambda: 2
            self.nvmlDeviceGetHandleByIndex = lambda i: i
            self.nvmlDeviceGetUtilizationRates, self.nvmlDeviceGetMemoryInfo = lambda _: use, lambda _: memory
            process = SimpleNamespace(pid=7, usedGpuMemory=3e9)
            self.nvmlDeviceGetComputeRunningProcesses = lambda _: [process, SimpleNamespace(pid=8, usedGpuMemory=None)]

    sample = json.loads(nodes.to_line(nodes.Machine("0", nvml=Half()).read()))
    (row,) = nodes.to_table([sample]).to_pylist()
    known = {"use_percent": 83.0, "memory_gb": 4.0, "total_gb": 16.0, "power_w": None, "temperature_c": None}
    assert row["gpus"] == [known] * 2 and dict(row["gpu_processes_gb"]) == {7: 6.0, 8: 0.0}
