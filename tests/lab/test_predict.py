"""Bounds follow from counted work and data sheets; estimates follow a GPU with a known law, and keep to the bounds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from framekiln.api.predict import _list_doubts
from framekiln.contract.errors import ConfigError, OutputError
from framekiln.contract.output_names import PROFILE, RUN_RECORD
from framekiln.contract.placement import Placement
from framekiln.device import CountedCall
from framekiln.device.kernels import Kernel
from framekiln.lab.predict.choose import (
    ONE_MORE,
    Chooser,
    GpuChoice,
    Prediction,
    Prices,
    WaveSeconds,
    _compute_rate,
    _find_help,
)
from framekiln.lab.predict.gpu_specs import read_gpus
from framekiln.lab.predict.measured import measuring_notes, time_spread
from framekiln.lab.predict.pace import Interval, pace
from framekiln.lab.predict.reached import MeasuredStep, guess, usual_share
from framekiln.lab.predict.source_run import PacketTimes, SourceRun, read_source
from framekiln.lab.predict.work import GAP_S, GpuWork, NetworkWork
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import settings_of
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.profiling.records import PACKET, Record
from framekiln.reporting.predict import limits, print_prediction, steps_table
from framekiln.runtime.run.record import sealed
from tests.lab.gpu_law import EPOCH, GPUS, HERE, RUN, UPLOAD, model_s, output

HELD, MOVED, FLOPS = 1e8, 1e6, 1e11  # bytes of weights; bytes and operations of a row
WORK = GpuWork(
    networks=[
        NetworkWork(
            rows=2.0,
            call=CountedCall(
                rows=1,
                kernels=(
                    (Kernel(flops=FLOPS, moved=MOVED, held=HELD, precision="bf16"), 1),
                    (Kernel(flops=0.0, moved=4e9, held=0.0, precision="bf16"), 3),
                ),
                weights=HELD,
                result=((1,), None),
            ),
        )
    ]
)


def test_a_bound_counts_what_must_be_and_the_roofline_what_each_kernel_takes():
    gpu = GPUS["rtx-4060"]
    arithmetic, memory, launches = WORK.bound(gpu, 4)
    assert arithmetic == pytest.approx(2 * FLOPS / (gpu.bf16_tflops * 1e12))
    assert memory == pytest.approx(2 * HELD / 8 / (gpu.bandwidth_gb_s * 1e9))
    assert launches == pytest.approx(2 * GAP_S / 8)
    elementwise = 3 * 4e9 / (gpu.bandwidth_gb_s * 1e9)
    assert WORK.roofline_s(gpu, 4) == pytest.approx(2 * (FLOPS / (gpu.bf16_tflops * 1e12) + elementwise))
    assert WORK.flops == 2 * FLOPS


def test_without_a_measurement_the_estimate_is_what_other_models_reach_and_never_beyond_the_bound():
    share = usual_share()
    for gpu in GPUS.values():
        seconds = guess(WORK, 4, gpu)
        assert WORK.bound(gpu, 4).max() <= seconds.low <= seconds.central <= seconds.high
        assert seconds.high == pytest.approx(WORK.roofline_s(gpu, 4) / share.low)


def test_a_measured_gpu_corrects_the_estimate_of_others_and_its_batches_are_the_back_test():
    here, there = GPUS[HERE], GPUS["rtx-4060"]
    law = {batch: WORK.roofline_s(here, batch) / 0.6 for batch in (1, 2, 4, 8)}
    exact = MeasuredStep(gpu=here, seconds=law)
    assert exact.reached(WORK) == (pytest.approx(0.6), pytest.approx(0.0, abs=1e-9))
    same, other = exact.on(here, WORK, 4), exact.on(there, WORK, 4)
    assert same.low == pytest.approx(same.high) == pytest.approx(law[4])
    assert other.central == pytest.approx(WORK.roofline_s(there, 4) / 0.6)
    ratios = here.bf16_tflops / there.bf16_tflops, here.bandwidth_gb_s / there.bandwidth_gb_s
    wider = usual_share().high / usual_share().central
    assert other.high == pytest.approx(max(ratios) * law[4] * wider)
    assert other.low == pytest.approx(max(WORK.bound(there, 4).max(), min(ratios) * law[4] / wider))
    noisy = MeasuredStep(gpu=here, seconds={batch: s * (1.5 if batch % 4 else 1 / 1.5) for batch, s in law.items()})
    assert noisy.reached(WORK)[1] == pytest.approx(0.5)
    assert noisy.on(there, WORK, 4).high > other.high
    idle = MeasuredStep(gpu=here, seconds={4: 10 * law[4]})
    assert math.isclose(idle.on(GPUS["h200"], WORK, 4).high, 10 * law[4] * wider)  # it may not change with the GPU


def test_waits_of_processes_for_each_other_on_the_gpu_are_taken_out(tmp_path):
    on_gpu = model_s(8, 1.0) + UPLOAD  # two processes that take turns: each sees its time doubled
    source = read_source(str(output(tmp_path, ("big", "twin"), beside=2.0, rate=1 / (2 * on_gpu))))
    assert source.shared == pytest.approx(2.0, rel=1e-3)
    assert source.gpu_steps[0].sample.model_s == pytest.approx(model_s(8, 1.0), rel=1e-2)
    two = output(tmp_path / "two", ("big", "twin"), gpus=1.0, beside=2.0, rate=1 / on_gpu)  # the same on two GPUs
    assert read_source(str(two)).shared == pytest.approx(2.0, rel=1e-3)
    assert read_source(str(output(tmp_path / "free", ("big", "twin"), gpus=1.0, rate=1 / on_gpu))).shared == 1.0


def test_each_gpu_that_has_a_process_adds_its_rate(tmp_path):
    steps = [replace(step, workers=100) for step in read_source(str(output(tmp_path))).gpu_steps]
    assert [pace(steps, {"big": 1.0}, gpus) for gpus in (1, 2)] == [(1.0, "the GPU"), (2.0, "the GPU")]


WAVES = [WaveSeconds(host={"decode": 0.01, "big": 0.02, "light": 0.001}, on_gpu={"big": 0.005})]


@pytest.mark.parametrize(
    ("cores", "seconds", "limit", "helps"),
    [
        (
            2,
            0.0155,
            "the cores (decode, big)",
            {"twice the cores": 2, "`where:` for half the rows of big": 0.031 / 0.021},
        ),
        (
            8,
            0.005,
            "the GPU",
            {"a second GPU": 0.005 / 0.003875, "`where:` for half the rows of big": 0.005 / 0.0026250},
        ),
    ],
)
def test_the_gpu_or_the_cores_set_the_pace_whatever_the_profile_has_in_work(cores, seconds, limit, helps):
    (wave,) = WAVES
    assert (wave.seconds(cores), wave.limit(cores)) == (pytest.approx(seconds), limit)
    found = _find_help(WAVES, cores)
    assert {name: found[name] for name in helps} == pytest.approx(helps)
    assert 1 <= found[ONE_MORE] <= 2
    assert _compute_rate([*WAVES, *WAVES], cores) == pytest.approx(1 / (2 * seconds))


def test_few_packets_and_a_busy_machine_are_doubts_on_an_estimate(tmp_path):
    (step,) = read_source(str(output(tmp_path))).gpu_steps
    times = step.packets
    differ = replace(times, seconds=times.seconds * np.linspace(0.5, 1.5, len(times.rows)))
    spread = time_spread(replace(step, packets=differ))
    assert 0.7 < spread.low < 0.95 and 1.05 < spread.high < 1.3
    few = replace(
        step, packets=PacketTimes(units=("u",), starts=times.starts[:1], rows=times.rows[:1], seconds=np.ones(1))
    )
    assert (time_spread(few).low, time_spread(few).high) == (0.5, 2.0)
    assert step.cores == 1 and not measuring_notes(0.0, [step])
    told = _list_doubts(SourceRun(devices=(), steps=(few,), later=(), others=0.8), [])
    assert "80%" in told[0] and told[1].startswith("big: fewer than 5 packets were measured") and len(told) == 2
    assert not _list_doubts(SourceRun(devices=(), steps=(step,), later=(), others=0.1), [])


@pytest.mark.parametrize(
    ("engine", "booked", "cores"), [("local", 1, 16), ("local", 4, 16), ("ray", 1, 1), ("ray", 4, 4)]
)
def test_calls_that_had_several_cores_may_take_as_many_times_as_long_on_one(tmp_path, engine, booked, cores):
    """The local engine gives each process its part of all cores, Ray those that the profile books."""
    place = output(tmp_path) / "run.json"
    record = json.loads(place.read_text()) | {"engine": engine, "machines": [{"cpus": 16.0}]}
    record["steps"]["big"]["placement"]["cpus"] = booked
    place.write_text(json.dumps(sealed(record)))
    (step,) = read_source(str(tmp_path)).gpu_steps
    alone = time_spread(replace(step, cores=1.0))
    assert step.cores == cores and time_spread(step).high == pytest.approx(cores * alone.high)
    assert time_spread(step).low == alone.low and len(measuring_notes(0.0, [step])) == (cores > 1)


def test_a_gpu_is_a_line_of_80_columns_below_what_the_figures_lack():
    rate, hours = Interval(central=12.4, low=6.54, high=18.8), Interval(central=180, low=137, high=237)
    told = {"bound": 61.1, "rate": rate, "hours": hours, "kwh": hours, "money": hours, "limit": "the cores (decode)"}
    best = GpuChoice(gpu="rtx-pro-6000", profile="gpu-80gb", memory_gb=96, waves=[["big"]], **told)
    gpus = [best, replace(best, gpu="l4", hours=rate.by(1 / 60))]
    found = Prediction(output="out", cores=16, rows=hours, prices=Prices(per_kwh=1.0), gpus=gpus, notes=["a busy"])
    print_prediction(Console(file=(text := StringIO()), width=80), found)
    lines = text.getvalue().splitlines()
    assert lines[0] == "a busy." and limits(found) in lines[1] and "l4" not in limits(found)
    (first, second) = (line.split() for line in lines if line.startswith((" rtx-pro-6000 ", " l4 ")))
    assert first[1:] == [
        "96",
        "61.1",
        "12.4",
        "(6.5",
        "to",
        "19)",
        "5.7",
        "to",
        "9.9",
        "days",
        "237",
        "140",
        "to",
        "240",
    ]
    assert second[7:11] == ["6.5", "to", "19", "min"]
    mixed = replace(found, gpus=[best, replace(best, gpu="l4", limit="the GPU")])
    assert "rtx-pro-6000" in limits(mixed) and "l4" in limits(mixed)


def test_a_run_of_the_second_pass_only_is_refused(tmp_path):
    store = Store(str(output(tmp_path))).of_run(RUN)
    record = Record(kind=PACKET, step="later", started=EPOCH, seconds=1.0, unit="all-0.parquet", rows=5, stop=5)
    for name in store.names(PROFILE):
        store.remove(f"{PROFILE}/{name}")
    store.append(f"{PROFILE}/calls-{RUN}-a-1.jsonl", record.line(RUN, "a:1"))
    with pytest.raises(OutputError) as error:
        read_source(str(tmp_path))
    assert error.value.code == "FK-PREDICT-NO-FIRST-PASS"
    first = Store(str(output(tmp_path / "both")))
    last = first.of_run("abc124").begin()
    last.append(f"{PROFILE}/calls-abc124-a-1.jsonl", record.line("abc124", "a:1"))
    last.write(RUN_RECORD, json.dumps(sealed(first.read_json(RUN_RECORD) | {"run": "abc124"})).encode())
    assert [step.name for step in read_source(str(tmp_path / "both")).steps] == ["decode", "big"]  # of the run before


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
    (tmp_path / "run.json").write_text(json.dumps(sealed(record | {"notes": notes})), "utf-8")
    assert [step.compile for step in read_source(str(tmp_path)).gpu_steps] == [compiled]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- a100", "FK-NOT-A-MAPPING"),
        ("a100: 3", "FK-INVALID-VALUE"),
        ("{}", "FK-INVALID-VALUE"),
        ("a100: [", "FK-NOT-YAML"),
    ],
)
def test_a_file_in_another_form_lists_no_gpus(tmp_path, text, code):
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_gpus(path)
    assert error.value.code == code


def test_a_model_that_had_no_row_takes_nothing_and_has_no_bound():
    idle = GpuWork(networks=[replace(WORK.networks[0], rows=0.0)])  # as recognition where no face was found
    step = SimpleNamespace(
        name="faces", depends=(), placement=Placement(batch=4), facts=dict.fromkeys(("use", "version", "settings"), "")
    )
    found = Chooser._choose_step(SimpleNamespace(measured={}), step, idle, GPUS["rtx-4060"], [])
    assert (found.bound, found.seconds) == (None, None)
    choice = GpuChoice(gpu="rtx-4060", profile="", waves=[["faces"]], steps=[found])
    assert steps_table(choice).rows[0][4:] == ["–", "–"]
    (note,) = _list_doubts(SourceRun(devices=(), steps=(), later=()), [choice, choice])
    assert note.startswith("faces: ")
