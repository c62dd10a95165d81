"""Targets of a profile: figures are held against them, what nobody measured is said, and mistakes are refused."""

from __future__ import annotations

import json

import pytest

from pipeline.errors import ConfigError
from pipeline.machines import ROOMY
from pipeline.manifest import ProfileFile, Targets, read_pipeline, read_profile
from pipeline.plan import Choices, make_plan
from pipeline.telemetry import nodes
from pipeline.telemetry.measures import measure
from pipeline.telemetry.profiles import targets_of
from pipeline.telemetry.records import to_table
from pipeline.telemetry.targets import Cards, judged
from tests.run_records import GPU, Made

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
    said, verdict_ = AIMS[name]
    steps = measure(to_table(Made().step("faces", 4.0, **GPU).lines))  # 60 rows a minute
    (found,) = judged(Targets.model_validate({"steps": {"faces": said}}), Cards(), steps)
    assert (found.figure, found.verdict) == (f"faces.{next(iter(said))}", verdict_)


@pytest.mark.parametrize(
    ("use", "memory", "met"), [(85.0, 60.0, "met met"), (97.0, 60.0, "not met met"), (85.0, 79.0, "met not met")]
)
def test_targets_of_the_cards(use, memory, met):
    card = {"use_percent": use, "memory_gb": memory, "total_gb": 80.0}
    calls = to_table(Made().step("faces", 4.0, **GPU).lines)
    cards = Cards.of(calls, nodes.to_table([{"run": "0", "node": "h", "time": 1.0, "gpus": [card]}]))
    aims = Targets.model_validate({"gpu_use_percent": [80, 95], "vram_peak_percent": 90, "steps": {"absent": {}}})
    assert " ".join(one.verdict for one in judged(aims, cards, measure(calls))) == met


WRONG = {
    "targets: {gpu_use_pecent: 80}": "unknown key 'gpu_use_pecent' in targets. Did you mean 'gpu_use_percent'",
    "targets: {steps: {faces: {rows_per_minut: 1}}}": "Did you mean 'rows_per_minute'",
    "targets: {gpu_use_percent: [95, 80]}": r"must have the least before the most, as \[80, 95\] \(got \[95, 80\]\)",
    "targets: {gpu_use_percent: lots}": "must be a number, or",
    "targets: {gpu_use_percent: [null, null]}": "must be a number, or",
    "targets: {gpu_use_percent: -1}": "must be a number, or",
    "targets: {gpu_use_percent: true}": "must be a number, or",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_targets(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError, match=WRONG[text]):
        read_profile(str(tmp_path / "p.yaml"))


def test_targets_of_a_step_that_nobody_has_are_refused(tmp_path):
    aims = ProfileFile.model_validate({"targets": {"steps": {"facs": {"rows_per_minute": 1}}}})
    with pytest.raises(
        ConfigError, match="has targets for a step 'facs' that the pipeline does not have. Did you mean"
    ):
        make_plan(read_pipeline(None), aims, Choices(), [ROOMY], check_weights=False)
    shipped = read_profile("high-throughput").targets
    kept = json.loads(json.dumps({"profile": {"targets": shipped.model_dump(exclude_none=True)}}))
    assert targets_of(kept) == shipped and shipped.steps["segment"].rows_per_minute == (10, 20)
