"""Models on one GPU: never more than it holds, producers first, and as fast as the figures allow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.cli.app import main
from framekiln.planning.gpu.calibration_file import Calibration, Line, StepFigures, settings_of
from framekiln.planning.gpu.co_location import IN_FLIGHT_GB, GpuCapacity, MemoryNeeds, measured, stated
from framekiln.planning.gpu.packing import layout, layouts
from framekiln.planning.manifest import ProfileFile, profile_names, read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.planning.sample import Sample
from tests.support.errors import fails

BOX = [Node(name="box", cpus=16, gpus=1)]
CONTEXT = 0.4
GPU_PROFILES = sorted(set(profile_names()) - {"cpu-only"})
MODELS = ("categorize", "faces", "segment", "instances", "inpaint")


def one_packet(profile="high-throughput"):
    """Return a shipped profile with a process for each model, one packet in work, and cores to spare."""
    places = read_profile(profile)
    left_out = ("group", "in_flight")
    steps = {name: {k: v for k, v in entry.items() if k not in left_out} for name, entry in places.steps.items()}
    return places.model_copy(update={"steps": steps, "decode": places.decode.model_copy(update={"workers": 4})})


def shipped(profile="high-throughput", **choices):
    places = profile if isinstance(profile, ProfileFile) else read_profile(profile)
    return make_plan(read_pipeline(None), places, PlanOptions(**choices), BOX, check_weights=False)


STEPS = [step for step in shipped().first if step.name in MODELS]
CHECKED = {step.name: step for step in STEPS}


def figures(
    step,
    *,
    base=1.0,
    per_row=0.1,
    gpu_ms=10.0,
    other_ms=0.0,
    call_ms=0.0,
    batches=(1, 2, 4, 8, 16),
    items=None,
    **more,
):
    """Return figures: a call of n rows takes call_ms + n (gpu_ms + other_ms) and base + n per_row GB."""
    trials = []
    for batch in batches:
        row = call_ms / batch + gpu_ms + other_ms
        phases = {"infer": (call_ms / batch + gpu_ms) / 1000, "postprocess": other_ms / 1000}
        measures = {"phases": phases, "items": items or {}, "peak_gb": base + per_row * batch}
        trials.append(Sample(batch=batch, megapixels=1.0, calls=3, seconds=batch * row / 1000, **measures))
    known = {
        "use": step.use,
        "settings": settings_of(step.facts),
        "precision": step.placement.precision,
        "compile": step.placement.compile,
        "set_up_s": 5.0,
        "weights_gb": base,
        "trials": trials,
        "memory": Line(base_gb=base, per_row_gb=per_row, error_gb=0.0),
        "largest_batch": batches[-1],
        "fastest_batch": batches[-1],
    }
    return StepFigures.model_validate(known | more)


def calibration(steps, **facts):
    known = {"device": "Toy Card", "kind": "cuda", "vram_gb": 24.0, "context_gb": 0.5, "made": "2026-11-21"}
    return Calibration.model_validate(known | {"framekiln": "0", "torch": "2", "steps": steps} | facts)


def saved(tmp_path, decode_rows_per_s=None, **steps):
    path = tmp_path / "toy-card.json"
    known = {name: figures(CHECKED[name], **cost) for name, cost in steps.items()}
    path.write_text(calibration(known, decode_rows_per_s=decode_rows_per_s).model_dump_json())
    return path


def on_gpu(wave):
    return [step for step in wave.own if step.placement.device == "cuda"]


def taken(wave, context=CONTEXT):
    """Return the GB of a wave's processes: the sum of their limits and contexts."""
    processes = {step.placement.group or step.name: step.placement.workers for step in on_gpu(wave)}
    return sum(s.placement.vram_gb * s.placement.workers for s in on_gpu(wave)) + context * sum(processes.values())


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_shipped_profile_holds_all_models_with_their_contexts(name):
    result = shipped(name)
    assert len(result.waves) == 1 and taken(result.waves[0]) <= read_profile(name).gpu_vram_gb + 0.01
    memory, layout = result.reasons
    assert layout.startswith("The GPU holds all its models together") and memory.startswith("By arithmetic")


def test_needs_by_arithmetic_are_weights_calls_packets_and_contexts():
    capacity = GpuCapacity(limit_gb=14, context_gb=CONTEXT)
    (wave,) = layout([[stated(step, 1, 1.0) for step in STEPS]], STEPS, capacity).waves
    needs, counted = MemoryNeeds.of(wave, capacity), {s.name: s.stage.gpu_memory(s.placement) for s in STEPS}
    once = [memory.weights_gb for name, memory in counted.items() if name != "instances"]  # it shares categorize's
    assert needs.weights_gb == pytest.approx(sum(once)) and needs.contexts_gb == CONTEXT
    assert needs.largest == "categorize" and needs.call_gb == counted["categorize"].call_gb
    assert needs.packets_gb == pytest.approx(8 * IN_FLIGHT_GB)


@pytest.mark.parametrize("cap", [3.0, 4.0, 6.0, 8.0, 12.0])
@pytest.mark.parametrize("name", GPU_PROFILES)
def test_under_a_cap_every_wave_keeps_to_it(name, cap):
    result = shipped(name, vram_cap=cap)
    assert all(taken(wave) <= cap + 0.01 for wave in result.waves)
    assert sorted(step.name for wave in result.waves for step in on_gpu(wave)) == sorted(MODELS)
    numbers = {step.name: i for i, wave in enumerate(result.waves) for step in wave.own}
    for i, wave in enumerate(result.waves):
        assert all(numbers[other] <= i for step in wave.own for other in step.depends if other in numbers)
        assert sum(step.placement.gpus * step.placement.workers for step in on_gpu(wave)) <= 1 + 1e-9
    later = next(step for step in result.second if step.name == "identities")
    assert later.placement.vram_gb <= cap - CONTEXT


def test_a_step_without_a_memory_limit_is_alone_under_a_cap():
    entries = {name: {"device": "cuda", "gpus": 0.2} for name in ("faces", "segment")}
    result = shipped(ProfileFile.model_validate({"steps": entries}), vram_cap=2.0)
    assert len(result.waves) == 2 and all(taken(wave) <= 2.0 for wave in result.waves)
    assert len(shipped(ProfileFile.model_validate({"steps": entries})).waves) == 1  # and without one it may do anything


def test_one_process_is_preferred_to_another_wave():
    entry = {"device": "cuda", "gpus": 0.2, "vram_gb": 1.0}
    profile = {"vram_gb": 2.5, "steps": {"categorize": entry, "faces": entry}}
    result = shipped(ProfileFile.model_validate(profile), stages=("categorize", "faces"))
    assert [[s.placement.group for s in on_gpu(wave)] for wave in result.waves] == [["card", "card"]]
    assert "The profile's processes do not fit" in result.reasons[-1]


def test_a_step_that_is_too_large_gets_all_memory_and_the_plan_explains_it():
    result = shipped("gpu-24gb", vram_cap=4.0)
    segment = next(step for step in result.first if step.name == "segment")
    assert segment.placement.vram_gb == pytest.approx(3.6)
    assert any(
        reason.startswith("segment needs 8.5 GB, but a process can get 3.6 of 4 GB") for reason in result.reasons
    )


def test_waves_of_a_profile_must_fit():
    profile = read_profile("high-throughput").model_copy(update={"waves": (("faces",), ("segment", "inpaint"))})
    result = shipped(profile)
    assert [[s.name for s in on_gpu(wave)] for wave in result.waves][1] == ["segment", "instances", "inpaint"]
    with fails("FK-WAVES-DO-NOT-FIT", "faces | segment, inpaint", "5 GB"):
        shipped(profile, vram_cap=5.0)
    with fails("FK-GPU-TOO-SMALL", "0.3 GB"):
        shipped("gpu-24gb", vram_cap=0.3)


# With a calibration


def test_batches_grow_until_the_gpu_is_full(tmp_path):
    cost = {"categorize": {"call_ms": 50.0}, "faces": {"call_ms": 5.0}}
    choices = {"stages": ("categorize", "faces"), "calibration": saved(tmp_path, 10.0, **cost)}
    free = {step.name: step.placement for step in shipped(**choices).first if step.name in cost}
    assert [place.batch for place in free.values()] == [16, 16]
    result = shipped(one_packet(), **choices, vram_cap=3.9)
    tight = {step.name: step.placement for step in result.first if step.name in cost}
    assert len(result.waves) == 1 and taken(result.waves[0], 0.5) <= 3.91
    assert 1 <= tight["faces"].batch <= tight["categorize"].batch == 8  # calls of faces cost less
    assert "categorize in batches of 8 instead of 16" in " ".join(result.reasons)


def test_larger_batches_justify_another_wave_unless_decoding_is_slow(tmp_path):
    cost = {"base": 1.0, "per_row": 0.5, "call_ms": 400.0, "gpu_ms": 1.0}
    path = saved(tmp_path, 100.0, categorize=cost, faces=cost)
    choices = {"stages": ("categorize", "faces"), "calibration": path, "vram_cap": 9.6, "profile": one_packet()}
    assert [len(on_gpu(wave)) for wave in shipped(**choices).waves] == [1, 1]
    saved(tmp_path, 1.0, categorize=cost, faces=cost)
    assert [len(on_gpu(wave)) for wave in shipped(**choices).waves] == [2]


def test_a_process_with_much_work_on_its_cores_gets_more_workers(tmp_path):
    path = saved(tmp_path, faces={"gpu_ms": 2.0, "other_ms": 20.0, "per_row": 0.01})
    (shared,) = on_gpu(shipped(stages=("faces",), calibration=path).waves[0])
    assert shared.placement.workers == 1  # its own work overlaps with the GPU's
    result = shipped(one_packet(), stages=("faces",), calibration=path)
    (faces,) = on_gpu(result.waves[0])
    assert faces.placement.workers > 1 and taken(result.waves[0], 0.5) <= 14.01
    (pinned,) = on_gpu(shipped(stages=("faces",), calibration=path, settings=("faces.workers=1",)).waves[0])
    assert pinned.placement.workers == 1


@pytest.mark.parametrize("stages", [("faces",), ("categorize", "faces")])  # the two share a process
@pytest.mark.parametrize(("cores", "gpus", "rate"), [(5, 1, 40), (3, 1, 20), (2, 1, 10), (8, 4, 40)])
def test_no_more_decode_workers_are_counted_than_have_a_core(tmp_path, cores, gpus, rate, stages):
    choices = PlanOptions(stages=stages, calibration=saved(tmp_path, decode_rows_per_s=10.0, faces={}, categorize={}))
    nodes = [Node(name="box", cpus=cores, gpus=gpus)]
    result = make_plan(read_pipeline(None), read_profile("high-throughput"), choices, nodes, check_weights=False)
    assert any(f"decoding holds this wave to {rate} rows/s" in reason for reason in result.reasons)
    assert [wave.gpus for wave in result.waves] == [gpus]


def test_memory_measured_without_faces_is_not_used(tmp_path):
    seen, unseen = (
        saved(tmp_path, faces={"base": 0.04, "per_row": 0.0, "items": {"faces": count}}).read_text()
        for count in (2.0, 0.0)
    )
    for text, gb, is_noted in ((seen, 0.04, False), (unseen, 2.25, True)):
        (tmp_path / "toy-card.json").write_text(text)
        result = shipped(one_packet(), stages=("faces",), calibration=tmp_path / "toy-card.json")
        (faces,) = on_gpu(result.waves[0])
        assert faces.placement.vram_gb == pytest.approx(gb, rel=0.2)
        words = "faces was calibrated without faces: it gets the profile's 2.25 GB"
        assert any(reason.startswith(words) for reason in result.reasons) == is_noted


def test_settings_of_this_run_are_kept(tmp_path):
    path = saved(tmp_path, faces={"call_ms": 9.0})
    (faces,) = on_gpu(shipped(stages=("faces",), calibration=path, settings=("faces.batch=2",)).waves[0])
    assert faces.placement.batch == 2


def test_figures_of_other_settings_are_not_used(tmp_path):
    path = saved(tmp_path, faces={})
    result = shipped(stages=("faces",), calibration=path, settings=("faces.min_score=0.7",))
    assert any("lacks figures of faces with these settings" in reason for reason in result.reasons)
    (faces,) = on_gpu(result.waves[0])
    assert faces.placement.batch == 64


def test_a_calibration_of_a_processor_is_refused(tmp_path):
    path = tmp_path / "cpu.json"
    path.write_text(calibration({"faces": figures(CHECKED["faces"])}, kind="cpu", vram_gb=None).model_dump_json())
    with fails("FK-CALIBRATION-OF-CPU"):
        shipped(calibration=path)


costs_of_steps = st.fixed_dictionaries(
    {
        "base": st.floats(0.1, 4.0),
        "per_row": st.floats(0.0, 0.4),
        "gpu_ms": st.floats(0.1, 100.0),
        "other_ms": st.floats(0.0, 100.0),
        "call_ms": st.floats(0.0, 100.0),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(costs_of_steps, min_size=1, max_size=4), st.floats(2.0, 12.0), st.floats(0.0, 0.1), st.booleans())
def test_the_first_layout_fits_the_gpu_and_none_is_faster(costs, limit, decode_s, known):
    steps = STEPS[: len(costs)]
    capacity = GpuCapacity(limit_gb=limit, context_gb=0.5, decode_s=decode_s)
    wanted = [measured(step, figures(step, **cost), 1, ()) for step, cost in zip(steps, costs, strict=True)]
    if not known:
        wanted = [stated(requirement.step, 1, requirement.options[-1].gb) for requirement in wanted]
    every = layouts(wanted, STEPS, capacity)
    smallest = [requirement.options[-1].gb + capacity.context_gb for requirement in wanted]
    assert bool(every) == (max(smallest) <= limit)
    for each in every:
        assert sorted(name for wave in each.waves for name in wave.names) == sorted(step.name for step in steps)
        for wave in each.waves:
            budgets, contexts = wave.budgets(), 0.5 * sum(1 for _ in wave.processes)
            assert sum(budgets.values()) + contexts <= wave.gb + 1e-6 <= limit + 1e-5
    if every and known:
        assert every[0].seconds(capacity) <= 1.03 * min(each.seconds(capacity) for each in every)
        assert math.isclose(every[0].rate(capacity) * every[0].seconds(capacity), capacity.rows)
    elif every:
        assert len(every[0].waves) == min(len(each.waves) for each in every)


def test_many_steps_are_laid_out_one_after_the_other():
    many = [replace(STEPS[0], name=f"step{i}", depends=frozenset()) for i in range(20)]
    capacity = GpuCapacity(limit_gb=3.0, context_gb=0.4)
    wanted = [stated(step, 1, 1.0) for step in many]
    (only,) = layouts(wanted, many, capacity)
    assert [len(wave.names) for wave in only.waves] == [2] * 10
    assert layout([wanted], many, capacity) is None


def test_the_plan_prints_its_reasons(capsys):
    with pytest.raises(SystemExit) as left:
        main(["plan", "--profile", "high-throughput", "--vram-cap", "4"])
    output = capsys.readouterr().out
    assert "The first pass reads the media" in output and left.value.code == 3  # there is no GPU here
    with pytest.raises(SystemExit) as left:
        main(["plan", "--calibration", "nowhere.json"])
    assert left.value.code == 2 and "[FK-NO-CALIBRATION]" in capsys.readouterr().err
