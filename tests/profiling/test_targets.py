"""Targets of a profile are compared with measurements, missing measurements are reported, and mistakes are refused."""

from __future__ import annotations

import json

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.planning.limits import read_limit, run_targets
from framekiln.planning.manifest import ProfileFile, read_pipeline, read_profile
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
    "rate>0.9": "met",
    "rate>1.1": "not met",
    "rate>=1": "met",
    "ms_row<401": "met",
    "p95<399": "not met",
    "p99<5000": "not measured",  # 100 calls are too few
    "gpu_use<95": "not measured",
    "workers<=1": "met",
}


@pytest.mark.parametrize("aim", AIMS)
def test_targets_of_a_step(aim):
    steps = step_statistics(to_table(Made().step("faces", 4.0, packets=100, **GPU).lines))  # a call of 4 s for 10 rows
    (result,) = compare_targets(run_targets([f"faces.{aim}"]), {}, steps)
    assert (result.figure, result.verdict) == (f"faces.{read_limit(aim).figure}", AIMS[aim])


def test_a_target_without_a_step_holds_for_every_step():
    steps = step_statistics(to_table(Made().step("faces", 4.0, **GPU).step("pose", 8.0, **GPU).lines))
    found = compare_targets(run_targets(["ms_row<500"]), {}, steps)
    assert [(one.figure, one.verdict) for one in found] == [("faces.ms_row", "met"), ("pose.ms_row", "not met")]


def test_few_calls_have_no_p95_to_compare():
    steps = step_statistics(to_table(Made().step("faces", 4.0, packets=99, **GPU).lines))
    (result,) = compare_targets(run_targets(["faces.p95<4001"]), {}, steps)
    assert (result.value, result.verdict) == (None, "not measured")


@pytest.mark.parametrize(
    ("use", "memory", "met"),
    [(85.0, 60.0, "met met met"), (97.0, 60.0, "met not met met"), (85.0, 79.0, "met met not met")],
)
def test_targets_of_the_gpus(use, memory, met):
    gpu = {"use_percent": use, "memory_gb": memory, "total_gb": 80.0}
    calls = to_table(Made().step("faces", 4.0, **GPU).lines)
    gpus = gpu_figures(calls, node_metrics.to_table([{"run": "0", "node": "h", "time": 1.0, "gpus": [gpu]}]))
    aims = run_targets(["gpu_use>80", "gpu_use<95", "vram_percent<90"])
    assert " ".join(result_.verdict for result_ in compare_targets(aims, gpus, step_statistics(calls))) == met


WRONG = {
    "targets: [gpu_us>80]": ("FK-INVALID-VALUE", "'gpu_us>80'", "gpu_use"),
    "targets: [faces.rows_per_minute>1]": ("FK-INVALID-VALUE", "'faces.rows_per_minute>1'", "rate"),
    "targets: [rate>+5%]": ("FK-INVALID-VALUE", "'rate>+5%'"),
    "targets: {gpu_use: 80}": ("FK-INVALID-VALUE", "{'gpu_use': 80}"),
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_targets(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    code, *values = WRONG[text]
    with pytest.raises(ConfigError) as error:
        read_profile(str(tmp_path / "p.yaml"))
    assert error.value.code == code and all(value in str(error.value) for value in values)


def test_targets_of_an_unknown_step_are_refused(tmp_path):
    aims = ProfileFile.model_validate({"targets": ["facs.rate>1"]})
    with pytest.raises(ConfigError) as error:
        make_plan(read_pipeline(None), aims, PlanOptions(), [ROOMY], check_weights=False)
    assert error.value.code == "FK-UNKNOWN-STEP" and all(name in str(error.value) for name in ("'facs'", "'faces'"))
    shipped = read_profile("high-throughput").targets
    kept = json.loads(json.dumps({"profile": {"targets": shipped}}))
    assert targets_of(kept) == run_targets(shipped) and "segment.rate>1.5" in shipped
