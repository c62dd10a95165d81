"""Targets of a profile are compared with measurements, missing measurements are reported, and mistakes are refused."""

from __future__ import annotations

import json

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import ProfileFile, Targets, read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.profiling import node_metrics
from framekiln.profiling.records import to_table
from framekiln.profiling.run_profile import targets_of
from framekiln.profiling.stats.steps import step_statistics
from framekiln.profiling.targets import compare_targets, gpu_figures
from tests.support.runs.run_records import GPU, Made

AIMS = {
    "a number is the least": ({"rows_per_minute": 59}, "met"),
    "which is not reached": ({"rows_per_minute": 61}, "not met"),
    "more than a range is no harm": ({"rows_per_minute": [10, 20]}, "met"),
    "less than a range is": ({"rows_per_minute": [70, 80]}, "not met"),
    "a rate may have a limit alone": ({"rows_per_minute": [None, 20]}, "not met"),
    "of times a number is the most": ({"call_p95_ms": 4001}, "met"),
    "which is exceeded": ({"call_p95_ms": 3999}, "not met"),
    "nobody looked": ({"gpu_use_percent": [80, 95]}, "not measured"),
}


@pytest.mark.parametrize("name", AIMS)
def test_targets_of_a_step(name):
    aim, verdict_ = AIMS[name]
    steps = step_statistics(to_table(Made().step("faces", 4.0, packets=100, **GPU).lines))  # 60 rows a minute
    (result,) = compare_targets(Targets.model_validate({"steps": {"faces": aim}}), {}, steps)
    assert (result.figure, result.verdict) == (f"faces.{next(iter(aim))}", verdict_)


def test_few_calls_have_no_p95_to_compare():
    steps = step_statistics(to_table(Made().step("faces", 4.0, packets=99, **GPU).lines))
    (result,) = compare_targets(Targets.model_validate({"steps": {"faces": {"call_p95_ms": 4001}}}), {}, steps)
    assert (result.value, result.verdict) == (None, "not measured")


@pytest.mark.parametrize(
    ("use", "memory", "met"), [(85.0, 60.0, "met met"), (97.0, 60.0, "not met met"), (85.0, 79.0, "met not met")]
)
def test_targets_of_the_gpus(use, memory, met):
    gpu = {"use_percent": use, "memory_gb": memory, "total_gb": 80.0}
    calls = to_table(Made().step("faces", 4.0, **GPU).lines)
    gpus = gpu_figures(calls, node_metrics.to_table([{"run": "0", "node": "h", "time": 1.0, "gpus": [gpu]}]))
    aims = Targets.model_validate({"gpu_use_percent": [80, 95], "vram_peak_percent": 90, "steps": {"absent": {}}})
    assert " ".join(result_.verdict for result_ in compare_targets(aims, gpus, step_statistics(calls))) == met


WRONG = {
    "targets: {gpu_use_pecent: 80}": ("FK-UNKNOWN-KEY", "'gpu_use_pecent'", "'gpu_use_percent'"),
    "targets: {steps: {faces: {rows_per_minut: 1}}}": ("FK-UNKNOWN-KEY", "'rows_per_minut'", "'rows_per_minute'"),
    "targets: {gpu_use_percent: [95, 80]}": ("FK-INVALID-VALUE", "[95, 80]", "[80, 95]"),
    "targets: {gpu_use_percent: lots}": ("FK-INVALID-VALUE", "'lots'"),
    "targets: {gpu_use_percent: [null, null]}": ("FK-INVALID-VALUE", "[None, None]"),
    "targets: {gpu_use_percent: -1}": ("FK-INVALID-VALUE", "-1"),
    "targets: {gpu_use_percent: true}": ("FK-INVALID-VALUE", "True"),
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_targets(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    code, *values = WRONG[text]
    with pytest.raises(ConfigError) as error:
        read_profile(str(tmp_path / "p.yaml"))
    assert error.value.code == code and all(value in str(error.value) for value in values)


def test_targets_of_an_unknown_step_are_refused(tmp_path):
    aims = ProfileFile.model_validate({"targets": {"steps": {"facs": {"rows_per_minute": 1}}}})
    with pytest.raises(ConfigError) as error:
        make_plan(read_pipeline(None), aims, PlanOptions(), [ROOMY], check_weights=False)
    assert error.value.code == "FK-UNKNOWN-STEP" and all(name in str(error.value) for name in ("'facs'", "'faces'"))
    shipped = read_profile("high-throughput").targets
    kept = json.loads(json.dumps({"profile": {"targets": shipped.model_dump(exclude_none=True)}}))
    assert targets_of(kept) == shipped and shipped.steps["segment"].rows_per_minute == (90, 160)
