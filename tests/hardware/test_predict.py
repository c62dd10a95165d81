"""Estimates for other GPUs from a GPU with a known law follow that law, and their back-tests measure their errors."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from pipeline.contract.errors import OutputError
from pipeline.contract.output_names import PROFILE
from pipeline.hardware.calibration.memory_fit import memory_line
from pipeline.hardware.prediction.backtest import call_s, held_out
from pipeline.hardware.prediction.fit import needed
from pipeline.hardware.prediction.gpu_specs import gpu_by_name, read_gpus
from pipeline.hardware.prediction.predict import predict
from pipeline.hardware.prediction.roofline import efficiency, scaling
from pipeline.hardware.prediction.source_run import read_source
from pipeline.output.object_store import Store
from pipeline.planning.gpu.calibration_file import Calibration, StepFigures, Trial, settings_of, write_calibration
from pipeline.planning.manifest import ProfileFile, read_pipeline
from pipeline.planning.plan import make_plan
from pipeline.planning.plan_options import PlanOptions
from pipeline.planning.processes.resources import ROOMY
from pipeline.profiling.records import PACKET, Record

RUN, EPOCH = "abc123", 1.7e9
HERE, DEVICE = "rtx-4090", "NVIDIA GeForce RTX 4090"
CALL, ROW, PIXEL = 0.004, 0.002, 0.001  # seconds of a call's model: CALL + n (ROW + PIXEL * megapixels)
UPLOAD, HOST = 0.0005, 0.001  # seconds a row
BATCH, MEGAPIXELS = 8, 1.0
GPUS = read_gpus()
USES = {"big": {"use": "tests.toys:Big"}, "twin": {"use": "tests.toys:Reads", "with": {"column": "width"}}}
FACTS = {"use": "tests.toys:Big", "version": 1, "settings": {"column": "frame"}}


def model_s(batch, megapixels):
    return CALL / batch + ROW + PIXEL * megapixels


def figures(noise=0.0, batches=(1, 2, 4, 8, 16, 32), sizes=(0.5, 2.0), flops=1e11, base=1.0, **more):
    """Return a step's calibration on a GPU that follows the law with relative noise."""
    chance = np.random.default_rng(1)
    trials = []
    for batch in batches:
        for size in sizes:
            factor = float(np.exp(noise * chance.standard_normal()))
            phases = {"infer": factor * model_s(batch, size), "upload": factor * UPLOAD, "postprocess": factor * HOST}
            peak = (base + 0.02 * batch + 0.01 * batch * size) * factor
            rate = 1 / sum(phases.values())
            trials.append(
                Trial(
                    batch=batch,
                    megapixels=size,
                    calls=5,
                    rows_per_s=rate,
                    phases=phases,
                    peak_gb=peak,
                    reserved_gb=peak,
                )
            )
    facts = {"use": FACTS["use"], "settings": settings_of(FACTS), "precision": "mixed", "compile": False}
    facts |= {"set_up_s": 1.0, "weights_gb": base, "largest_batch": max(batches), "fastest_batch": max(batches)}
    facts |= {"flops_per_row": flops, "weights_bytes": 10**9, "memory": memory_line(trials)}
    return StepFigures(trials=trials, **(facts | more))


def calibration(steps, device=DEVICE, kind="cuda"):
    versions = {"framemill": "0", "torch": "2"}
    return Calibration(device=device, kind=kind, vram_gb=25.0, context_gb=0.5, made="now", steps=steps, **versions)


def output(
    root, steps=("big",), *, device="cuda", decode=0.001, light=0.0, gpus=0.5, rate=None, beside=1.0, batch=BATCH
):
    """Write an output with records of the same law; `rate` is the run's, `beside` a factor of times on the GPU."""
    store = Store(str(root)).of_run(RUN).begin()
    store.prepare()
    packets, rows, cost = 20, 8, int(8 * MEGAPIXELS * 1e6)
    infer, upload = rows * beside * model_s(batch, MEGAPIXELS), rows * beside * UPLOAD
    inside = infer + upload + rows * HOST
    apart = rows / rate if rate else len(steps) * (infer + upload)
    for number in range(packets):
        place = {"unit": "u", "start": rows * number, "stop": rows * (number + 1), "rows": rows, "cost": cost}
        began = EPOCH + number * apart
        took = {"decode": rows * decode}
        records = [
            ("a:1", Record(kind=PACKET, step="decode", started=began, seconds=rows * decode, durations=took, **place))
        ]
        if light:  # in the decode worker
            records.append(("a:1", Record(kind=PACKET, step="light", started=began, seconds=rows * light, **place)))
        for each in steps:
            took = {"infer": infer, "upload": upload, "postprocess": rows * HOST}
            times = {"started": began + 1, "seconds": inside, "durations": took, "device": device}
            records.append((f"a:{each}", Record(kind=PACKET, step=each, **times, **place)))
        for worker, record in records:
            store.append(f"{PROFILE}/calls-{RUN}-{worker.replace(':', '-')}.jsonl", record.line(RUN, worker))
    place = {"device": device, "batch_rows": batch, "precision": "mixed", "compile": False, "group": "", "gpus": gpus}
    record = {"throughput": {"run": RUN}, "gpu_names": [DEVICE] if device == "cuda" else []}
    record |= {"folder": "/", "input": "in", "profile": {}, "profile_name": "", "choices": asdict(PlanOptions())}
    record |= {
        "limit": None,
        "shard": None,
        "by_content": False,
        "pipeline": {"steps": {name: USES[name] for name in steps}},
    }
    record |= {"steps": {each: FACTS | {"placement": place} for each in steps}}
    store.write("run.json", json.dumps(record).encode())
    return root


def predicted(root, known, *names):
    return predict(read_source(str(root)), known, GPUS[HERE], {name: gpu_by_name(name, GPUS) for name in names})


def test_every_shipped_gpu_has_a_source_for_every_figure():
    assert len(GPUS) == 12
    for gpu in GPUS.values():
        assert all(word.split(":")[0] in ("seen", "named", "derived") for word in gpu.sources.values())
        assert gpu.fp16_tflops == gpu.bf16_tflops >= gpu.fp32_tflops  # dense rates of 16 bits, sums in fp32
    assert GPUS["rtx-4060"].pcie.gb_s == pytest.approx(15.75, abs=0.01)
    assert GPUS["h200"].tflops("full") < GPUS["h200"].tflops("mixed")


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
    assert error.value.code == "FM-PREDICT-NO-FIRST-PASS"


def test_a_law_without_noise_is_back_tested_to_nothing_and_noise_to_itself(tmp_path):
    exact = predicted(output(tmp_path), calibration({"big": figures()}), "l4").tested["big"]
    assert exact.held_out < 1e-6 and exact.memory < 1e-6 and abs(exact.mixed) < 1e-3
    for noise in (0.02, 0.1):
        many = figures(noise, batches=tuple(range(1, 33)))
        assert held_out(many.trials, call_s) == pytest.approx(noise, rel=0.35)
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
    from pipeline.runtime.run.record import _step

    plan = make_plan(read_pipeline(None), ProfileFile(), PlanOptions(), [ROOMY], check_weights=False)
    for step in plan.steps:
        stored = json.loads(json.dumps(_step(step), default=str))
        assert settings_of(stored) == settings_of(step.facts), step.name


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


@pytest.fixture
def call(capsys):
    from pipeline.cli.app import main

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(["predict", *map(str, words)])
        printed = capsys.readouterr()
        return end.value.code or 0, " ".join(printed.out.split()), " ".join(printed.err.split())

    return call


def test_the_command_prints_an_estimate_with_its_back_tests(call, tmp_path):
    path = write_calibration(calibration({"big": figures(0.05)}), tmp_path / "c")
    code, out, err = call(output(tmp_path / "out"), "--for", "rtx-5080,rtx-4060", "--calibration", path)
    assert code == 0, err
    assert out.startswith("ESTIMATE") and "Estimate: rtx-5080" in out and "Estimate of the run" in out
    assert "Back-tests on NVIDIA GeForce RTX 4090" in out and "sets the pace" in out and "rests on:" in out


def test_an_error_that_rounds_to_zero_has_no_sign(call, tmp_path):
    path = write_calibration(calibration({"big": figures()}), tmp_path / "c")
    for beside in (0.999, 1.001):
        code, out, err = call(output(tmp_path / f"{beside}", beside=beside), "--for", "l4", "--calibration", path)
        assert code == 0, err
        assert "it took 0% against alone" in out and "-0%" not in out and "+0%" not in out
        assert "may lie at its interval's lower end" in out


@pytest.mark.parametrize("name", ["RTX 5080", "rtx 5080", "NVIDIA GeForce RTX 5080", "rtx-5080"])
def test_a_gpu_is_found_by_each_of_its_names(name):
    assert gpu_by_name(name, GPUS) == GPUS["rtx-5080"]


def test_mistakes_are_one_sentence(call, tmp_path):
    good, on_cpu = output(tmp_path / "good"), output(tmp_path / "cpu", device="cpu")
    folder = tmp_path / "c"
    path = write_calibration(calibration({"big": figures()}), folder)
    few = write_calibration(calibration({"big": figures(batches=(1,))}), tmp_path / "few")
    other = write_calibration(calibration({"big": figures()}, device="NVIDIA L4"), folder)
    cpu = write_calibration(calibration({"big": figures()}, device="AMD EPYC", kind="cpu"), folder)
    (tmp_path / "bad.yaml").write_text("mine: {names: [x], memory_gb: 8}\n")
    cases = [
        ((good, "--for", "rtx-508", "--calibration", path), "FM-UNKNOWN-GPU"),
        ((good, "--for", "RTX 508", "--calibration", path), "FM-UNKNOWN-GPU"),
        ((on_cpu, "--for", "l4", "--calibration", path), "measured on a CPU"),
        ((good, "--for", "l4", "--calibration", cpu), "measured on a CPU"),
        ((good, "--for", "l4", "--calibration", other), "FM-CALIBRATION-OTHER-GPU"),
        ((good, "--for", "l4", "--calibration", few), "FM-PREDICT-UNTESTED"),
        ((good, "--for", "l4", "--calibration", tmp_path / "none.json"), "There is no calibration"),
        ((good, "--for", "l4", "--gpus", tmp_path / "bad.yaml"), "FM-INVALID-VALUE"),
        ((tmp_path, "--for", "l4"), "FM-NO-RUN-JSON"),
        ((output(tmp_path / "many", gpus=4), "--for", "l4", "--calibration", path), "FM-PREDICT-SEVERAL-GPUS"),
    ]
    for words, error in cases:
        code, out, err = call(*words)
        assert code == 2 and error in err and out == "", (words, err)
    _, _, err = call(good, "--for", "RTX 508", "--calibration", path)
    assert "'rtx-5080'" in err
