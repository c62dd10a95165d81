"""Estimates for other GPUs from a GPU with a known law follow that law, and their back-tests measure their errors."""

from __future__ import annotations

import json
from operator import attrgetter

import pytest

from framekiln.contract.errors import ConfigError, OutputError
from framekiln.contract.output_names import PROFILE
from framekiln.lab.predict.fit import held_out, needed
from framekiln.lab.predict.gpu_specs import efficiency, read_gpus, scaling
from framekiln.lab.predict.source_run import read_source
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import settings_of
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.profiling.records import PACKET, Record
from tests.lab.gpu_law import (
    BATCH,
    EPOCH,
    GPUS,
    HERE,
    HOST,
    MEGAPIXELS,
    RUN,
    UPLOAD,
    calibration,
    figures,
    model_s,
    output,
    predicted,
)


def test_every_shipped_gpu_has_a_source_for_every_figure():
    assert len(GPUS) == 20
    for gpu in GPUS.values():
        assert all(word.split(":")[0] in ("seen", "named", "derived") for word in gpu.sources.values())
        assert gpu.fp16_tflops >= gpu.bf16_tflops >= gpu.fp32_tflops  # dense rates of 16 bits, sums in fp32
    assert GPUS["rtx-4060"].pcie.gb_s == pytest.approx(15.75, abs=0.01)
    assert GPUS["h200"].tflops("fp32") < GPUS["h200"].tflops("auto")


def test_the_prediction_follows_the_law(tmp_path):
    prediction = predicted(output(tmp_path), calibration({"big": figures()}), "rtx-4060", HERE)
    other, same = prediction.gpus
    source, target = GPUS[HERE], GPUS["rtx-4060"]
    by = max(source.bf16_tflops / target.bf16_tflops, source.bandwidth_gb_s / target.bandwidth_gb_s)
    on_gpu = by * model_s(BATCH, MEGAPIXELS) + 2 * UPLOAD  # eight lanes instead of sixteen
    (step,) = other.steps
    assert step.on_gpu_s.central == pytest.approx(on_gpu, rel=1e-3)
    assert step.rate.central == pytest.approx(1 / (on_gpu + HOST), rel=1e-3)
    assert step.rate.low <= step.rate.central <= step.rate.high
    assert (step.fit.batch, other.combined.one_pass, other.limit) == (BATCH, True, "big")
    assert other.rate.central == pytest.approx(step.rate.central, rel=1e-3)
    assert same.steps[0].rate.central == pytest.approx(1 / (model_s(BATCH, MEGAPIXELS) + UPLOAD + HOST), rel=1e-3)


def test_a_run_of_the_second_pass_only_is_refused(tmp_path):
    store = Store(str(output(tmp_path))).of_run(RUN)
    record = Record(kind=PACKET, step="later", started=EPOCH, seconds=1.0, unit="all-0.parquet", rows=5, stop=5)
    for name in store.names(PROFILE):
        store.remove(f"{PROFILE}/{name}")
    store.append(f"{PROFILE}/calls-{RUN}-a-1.jsonl", record.line(RUN, "a:1"))
    with pytest.raises(OutputError) as error:
        read_source(str(tmp_path))
    assert error.value.code == "FK-PREDICT-NO-FIRST-PASS"


def test_a_law_without_noise_is_back_tested_to_nothing_and_noise_to_itself(tmp_path):
    exact = predicted(output(tmp_path), calibration({"big": figures()}), "l4").tested["big"]
    assert exact.held_out < 1e-6 and exact.memory < 1e-6 and abs(exact.mixed) < 1e-3
    for noise in (0.02, 0.1):
        many = figures(noise, batches=tuple(range(1, 33)))
        assert held_out(many.trials, attrgetter("seconds")) == pytest.approx(noise, rel=0.35)
    wide = predicted(tmp_path, calibration({"big": figures(0.1)}), "l4")
    narrow = predicted(tmp_path, calibration({"big": figures(0.01)}), "l4")
    spans = [
        prediction.gpus[0].steps[0].rate.high / prediction.gpus[0].steps[0].rate.low for prediction in (wide, narrow)
    ]
    assert spans[0] > 1.1 * spans[1]


def test_the_cost_of_other_steps_on_the_gpu_is_an_error_and_widens_the_interval(tmp_path):
    alone = predicted(output(tmp_path / "a"), calibration({"big": figures()}), "l4")
    beside = predicted(output(tmp_path / "b", beside=1.5), calibration({"big": figures()}), "l4")
    assert beside.tested["big"].mixed == pytest.approx(0.5, rel=1e-3)
    spans = [
        prediction.gpus[0].steps[0].on_gpu_s.high / prediction.gpus[0].steps[0].on_gpu_s.low
        for prediction in (alone, beside)
    ]
    assert spans[1] == pytest.approx(spans[0] * 1.5**2, rel=0.01)


def test_times_of_two_steps_on_the_gpu_add_up_and_the_run_is_its_own_back_test(tmp_path):
    both = calibration({"big": figures(), "twin": figures()})
    on_gpu = model_s(BATCH, MEGAPIXELS) + UPLOAD
    prediction = predicted(output(tmp_path, ("big", "twin"), rate=1 / (2 * on_gpu)), both, HERE)
    assert prediction.gpus[0].rate.central == pytest.approx(1 / (2 * on_gpu), rel=1e-3)
    assert prediction.gpus[0].limit == "the GPU" and prediction.run_error == pytest.approx(0.0, abs=0.01)
    slower = predicted(output(tmp_path / "b", ("big", "twin"), rate=0.8 / (2 * on_gpu)), both, HERE)
    assert slower.run_error == pytest.approx(0.25, abs=0.01)
    assert slower.gpus[0].rate.low < prediction.gpus[0].rate.low


def test_waits_of_processes_for_each_other_on_the_gpu_are_taken_out(tmp_path):
    both, on_gpu = calibration({"big": figures(), "twin": figures()}), model_s(BATCH, MEGAPIXELS) + UPLOAD
    # two processes that take turns: each sees its time doubled, and the run is as fast as the GPU
    prediction = predicted(output(tmp_path, ("big", "twin"), beside=2.0, rate=1 / (2 * on_gpu)), both, HERE)
    assert read_source(str(tmp_path)).shared == pytest.approx(2.0, rel=1e-3)
    assert prediction.tested["big"].mixed == pytest.approx(0.0, abs=0.01)
    assert prediction.gpus[0].rate.central == pytest.approx(1 / (2 * on_gpu), rel=1e-3)


def test_steps_of_a_run_json_are_matched_by_their_settings():
    from framekiln.runtime.run.record import _describe_step

    plan = make_plan(read_pipeline(None), ProfileFile(), PlanOptions(), [ROOMY], check_weights=False)
    for step in plan.steps:
        stored = json.loads(json.dumps(_describe_step(step), default=str))
        assert settings_of(stored) == settings_of(step.facts), step.name


@pytest.mark.parametrize(("notes", "compiled"), [({}, True), ({"big": "it runs uncompiled"}, False)])
def test_a_model_that_ran_uncompiled_is_taken_for_that(tmp_path, notes, compiled):
    output(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text("utf-8"))
    record["steps"]["big"]["placement"]["compile"] = True
    (tmp_path / "run.json").write_text(json.dumps(record | {"notes": notes}), "utf-8")
    assert [step.compile for step in read_source(str(tmp_path)).gpu_steps] == [compiled]


def test_a_slow_decoder_sets_the_pace_on_any_gpu(tmp_path):
    prediction = predicted(output(tmp_path, decode=0.05, rate=20.0), calibration({"big": figures()}), "h200", HERE)
    for gpu in prediction.gpus:
        assert (gpu.limit, gpu.rate.central) == ("decode", pytest.approx(20.0))


def test_steps_in_one_process_take_turns(tmp_path):
    prediction = predicted(
        output(tmp_path, decode=0.05, light=0.05, rate=10.0), calibration({"big": figures()}), "h200"
    )
    assert (prediction.gpus[0].limit, prediction.gpus[0].rate.central) == ("decode+light", pytest.approx(10.0))


def test_a_step_that_does_not_fit_takes_a_smaller_batch_or_has_no_rate(tmp_path):
    hungry = figures(base=6.5)  # plus 0.02 a row and 0.01 a megapixel, at 2 MP
    gpus = predicted(output(tmp_path, batch=32), calibration({"big": hungry}), "rtx-4060", "rtx-5090").gpus
    small, large = (gpu.steps[0] for gpu in gpus)
    assert 1 <= small.fit.batch < 32 == large.fit.batch
    assert needed(hungry, small.fit.batch, 0.0) <= 8 - 0.5 < needed(hungry, small.fit.batch + 1, 0.0)
    none = predicted(tmp_path, calibration({"big": figures(base=9.0)}), "rtx-4060").gpus[0]
    assert none.steps[0].fit.batch is None and none.rate is None and none.why_not == "big does not fit"
    two = calibration({"big": figures(base=5.0), "twin": figures(base=5.0)})
    both = output(tmp_path / "two", ("big", "twin"))
    apart = predicted(both, two, "rtx-4060").gpus[0]
    assert apart.combined.waves == (("big",), ("twin",)) and apart.limit == "big, then twin"
    alone = [1 / step.rate.central for step in apart.steps]
    assert apart.rate.central == pytest.approx(1 / sum(alone), rel=1e-3)
    record = json.loads((both / "run.json").read_text())
    (both / "run.json").write_text(json.dumps({key: value for key, value in record.items() if key != "pipeline"}))
    unknown = predicted(both, two, "rtx-4060").gpus[0]
    assert unknown.combined.waves == () and unknown.rate is None and "several passes" in unknown.why_not
    (both / "run.json").write_text(json.dumps(record | {"waves": [["big"], ["twin"]]}))
    waved = predicted(both, two, "rtx-5090").gpus[0]
    assert waved.steps[0].rate is not None and waved.rate is None and "2 waves" in waved.why_not


def test_an_estimate_without_items_in_the_calibration_names_that_assumption(tmp_path):
    known_figures = figures(0.05)
    bare = [trial.model_copy(update={"items": {"faces": 0.0}}) for trial in known_figures.trials]
    known = calibration({"big": known_figures.model_copy(update={"trials": bare})})
    (gpu,) = predicted(output(tmp_path / "out"), known, "rtx-5080").gpus
    assert gpu.steps[0].assumption.startswith("there were no faces where it was calibrated")


def test_a_model_that_uses_little_of_its_gpu_may_not_change_with_it():
    here, target = GPUS["rtx-4060"], GPUS["h200"]
    busy, idle = figures(flops=1e11), figures(flops=1e6)
    assert efficiency(busy, 8, 0.005, here) == pytest.approx(1e11 / 30.2e12 / 0.005, rel=1e-6)
    assert scaling(busy, 8, 0.005, here, target).slow < 0.1
    assert scaling(idle, 8, 0.005, here, target).slow == 1.0
    assert scaling(figures(flops=None), 8, 0.005, here, target).slow == 1.0


@pytest.mark.parametrize(
    ("text", "code"),
    [("- a100", "FK-GPU-FILE-INVALID"), ("a100: 3", "FK-GPU-FILE-INVALID"), ("a100: [", "FK-NOT-YAML")],
)
def test_a_file_in_another_form_lists_no_gpus(tmp_path, text, code):
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_gpus(path)
    assert error.value.code == code
