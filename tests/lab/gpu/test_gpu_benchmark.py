"""The GPU benchmark's runner: a step fails, hangs or is left out alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.gpu import options
from benchmarks.gpu.__main__ import print_plan
from benchmarks.gpu.options import GpuOptions, Results, read_results, rounded
from benchmarks.gpu.runner import STEPS, GpuStep, document, run_steps
from benchmarks.gpu.stage_steps import measured
from benchmarks.gpu.steps.engine import CommandError, framekiln
from benchmarks.gpu.steps.shares import steady
from framekiln.runtime.recovery.child_process import ChildProcess
from tests.lab.gpu.steps import Fragile


def step(use, limit_s=60.0, **more):
    return GpuStep(name=use, use=f"tests.lab.gpu.steps:{use}", about="", limit_s=limit_s, **more)


def results_of(tmp_path, *steps, limit_s=500.0):
    options = GpuOptions(folder=tmp_path, device="cpu", small=True)
    shown = []
    result = document(options, list(run_steps(steps, options, limit_s, shown.append)))["steps"]
    recorded = [{"step": name} | line for name, step in result.items() for line in step["results"]]
    assert [rounded(line) for line in shown] == recorded
    return result


@pytest.mark.heavy
def test_a_step_that_fails_is_followed_by_the_next(tmp_path):
    result = results_of(tmp_path, step("raises"), step("fails_a_check"), step("has_nothing_to_do"), step("measures"))
    assert {name: each["outcome"] for name, each in result.items()} == {
        "raises": "failed",
        "fails_a_check": "failed",
        "has_nothing_to_do": "skipped",
        "measures": "ok",
    }
    assert result["raises"]["why"].endswith("RuntimeError: no such kernel")
    assert result["raises"]["results"][0]["value"] == 1, "what it recorded before is kept"
    assert result["has_nothing_to_do"]["why"] == "no memory to limit"
    assert result["measures"]["results"][0] | {"at_s": 0} == {"value": 0.3333, "device": "cpu", "at_s": 0}


def ended(pid):
    """Return whether a process has ended, though its new parent may not have taken note."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_a_step_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    class Impatient(ChildProcess):
        """A process whose time limit ends as soon as it has recorded something."""

        def call(self, method, *arguments, timeout_s):
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(super().call, method, *arguments)
                while not read_results(tmp_path, "hangs"):
                    assert not done.done()
                    time.sleep(0.02)
                self.kill()
            return replace(done.result(), how="it hung")

    monkeypatch.setattr("benchmarks.gpu.runner.ChildProcess", Impatient)
    (result,) = results_of(tmp_path, step("hangs")).values()
    assert result["outcome"] == "timeout" and "what it did last" in result["why"]
    while not ended(result["results"][0]["child"]):
        time.sleep(0.02)


def test_a_step_without_its_package_or_without_time_is_skipped(tmp_path):
    result = results_of(tmp_path, step("measures", needs=("no_such_package",)))
    assert result["measures"]["outcome"] == "skipped" and "no_such_package" in result["measures"]["why"]
    result = results_of(tmp_path, step("measures"), limit_s=1.0)
    assert result["measures"]["outcome"] == "skipped" and "--only" in result["measures"]["why"]


@pytest.mark.heavy
@pytest.mark.parametrize("alone", [True, False])
def test_parts_give_figures_or_a_reason_each(alone):
    answers = list(measured({"a": Fragile(), "b": Fragile()}, 2, alone=alone))
    for name in "ab":
        own = {part: answer for each, part, answer in answers if each == name}
        assert list(own) == list(Fragile.parts)
        assert own["measures"] == {"value": "measures"}
        assert own["raises"] == {"ok": False, "why": "RuntimeError: no such kernel"}
        assert not own["dies"]["ok"] and not own["after"]["ok"]


@pytest.mark.heavy
def test_a_step_without_a_wanted_case_is_skipped(tmp_path):
    options = GpuOptions(folder=tmp_path, device="cpu", small=True, words=("nosuch",))
    (result,) = run_steps([step("finds_no_case")], options, 500.0, lambda _: None)
    assert result.outcome == "skipped" and "nosuch" in result.why


def test_a_plan_is_of_the_memory_and_of_the_limit(capsys):
    ends = []
    for limit_s, gigabytes in ((570.0, 80.0), (570.0, 8.0), (1e6, 8.0)):
        print_plan(STEPS[:3], limit_s, gigabytes)
        told = capsys.readouterr().out
        ends.append((float(told.split("--limit ")[-1]), told.count(" *\n")))
    assert ends == [(620.0, 0), (1860.0, 1), (1860.0, 0)]


def test_processes_side_by_side_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu.options.usable_cores", lambda: 16)
    threads = []
    for gigabytes in (143.8, 17.2):
        monkeypatch.setattr("benchmarks.gpu.options.gpu_gb", lambda gigabytes=gigabytes: gigabytes)
        threads.append(GpuOptions(folder=tmp_path).threads)
    assert threads == [3, 16]


def test_memory_is_that_of_the_first_gpu(monkeypatch):
    memory = [SimpleNamespace(total=143.8e9, used=0.6e9), SimpleNamespace(total=8e9, used=0)]
    monkeypatch.setattr(options, "library", lambda: SimpleNamespace(nvmlDeviceGetMemoryInfo=memory.__getitem__))
    for visible, expected in (([0, 1], (143.8, 0.6)), ([1], (8, 0)), ([], (0, 0))):
        monkeypatch.setattr(options, "visible_handles", lambda _, visible=visible: visible)
        assert (options.gpu_gb(), options.used_gb()) == pytest.approx(expected)


def test_a_command_is_ended_before_its_step_and_tells_why(tmp_path):
    with pytest.raises(CommandError, match="plan took longer than"):
        framekiln(GpuOptions(folder=tmp_path, ends=time.monotonic()), "plan")


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    Results(path).record(first=1)
    path.write_text(path.read_text() + '{"second": ')
    assert [line["first"] for line in read_results(tmp_path, "a")] == [1]


def test_figures_that_are_not_finite_become_null():
    assert rounded({"a": float("nan"), "b": [1.23456, True, None], "c": Path("x")}) == {
        "a": None,
        "b": [1.235, True, None],
        "c": "x",
    }


def test_the_steady_rate_is_that_of_whole_groups_of_packets():
    """Four packets of 10 rows end together each second: 40 rows a second, after a slow first second."""
    moments = [(5.0 + group + 0.001 * packet, 10) for group in range(5) for packet in range(4)]
    assert steady(moments, begin=0.0, in_flight=4) == pytest.approx(40.0)
    assert steady(moments[:8], begin=0.0, in_flight=4) == pytest.approx(80 / 6.003)


@pytest.mark.parametrize("entry", STEPS, ids=lambda entry: entry.name)
def test_each_step_is_a_function_that_can_be_loaded(entry):
    assert callable(entry.load())
