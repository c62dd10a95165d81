"""A step is measured alone until it does not fit; crashes are reported, and its memory becomes a formula."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Scope
from framekiln.device import flops_of, weights_bytes
from framekiln.lab.calibrate.bench import measure, memory_line, search_limits
from framekiln.lab.models.sample_rows import batch_of, write_rows
from framekiln.lab.sweep import batch_search
from framekiln.lab.sweep.batch_search import Limits, fastest, search
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, read_calibration, write_calibration
from framekiln.planning.sample import Sample
from tests.support.machine.command_line import command
from tests.support.runs.plan_factory import plan
from tests.support.runs.toy_gpu import ToyMeter
from tests.toys import Neighbours

QUICK = Limits(most_batch=64, timed_s=0.0, slow_s=1000.0)  # no limit that a busy machine reaches


def trial(batch, rate=10.0, megapixels=1.0, peak=None):
    return Sample(batch=batch, megapixels=megapixels, calls=3, seconds=batch / rate, peak_gb=peak)


def rows(height, width, count=2):
    values = {"media_id": ["a.jpg"] * count, "height": [height] * count, "width": [width] * count}
    numbers = [item for item in SOURCE if item.name in values or not pa.types.is_string(item.type)]
    columns = [pa.array(values.get(item.name, [0] * count), item.type) for item in numbers]
    return pa.table(columns, names=[item.name for item in numbers])


def sizes(folder):
    """Write rows of 0.5 and 2 megapixels."""
    return [write_rows(rows(h, w), folder / f"{h}.arrow") for h, w in ((500, 1000), (1000, 2000))]


def eats(**config):
    toy = {"use": "tests.support.runs.toy_gpu:Eats", "with": config}
    return plan({"eats": toy}, missing_weights="dummy").first[0]


def measured(folder, limits=QUICK, **config):
    """Measure the toy; its search ends by memory alone, since a busy machine makes rates fall."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_search, "_FALLS", 99)
        return measure(eats(**config), sizes(folder), limits, dummy=True, meter=ToyMeter())


@given(fits=st.integers(0, 300), most=st.integers(1, 300))
def test_the_search_finds_exactly_the_largest_batch_that_fits(fits, most):
    tried = []

    def attempt(batch):
        assert 1 <= batch <= most and batch not in tried
        tried.append(batch)
        return trial(batch) if batch <= fits else Sample(batch=batch, outcome="oom")

    result = search(attempt, Limits(most_batch=most))
    assert result.largest == min(fits, most)
    assert (result.failure is not None) == (fits < most)
    assert bool(result.cut_short) == (fits >= most)
    assert [trial.batch for trial in result.trials] == sorted(batch for batch in tried if batch <= fits)


def test_the_search_ends_at_slow_calls_and_at_falling_rates():
    slow = search(lambda batch: trial(batch, rate=0.5), Limits(slow_s=10.0))
    assert slow.largest == 8 and "took longer than 10 s" in slow.cut_short
    rates = {1: 10.0, 2: 15.0, 4: 14.0, 8: 20.0, 16: 19.5, 32: 19.0, 64: 18.0, 128: 50.0}
    falling = search(lambda batch: trial(batch, rate=rates[batch]), Limits())
    assert falling.largest == 64 and "in a row" in falling.cut_short


def test_the_search_ends_at_level_rates_where_memory_sets_no_limit():
    def rates(batch):
        return trial(batch, rate={1: 5.0, 2: 8.0, 4: 10.0}.get(batch, 10.1))

    level = search(rates, Limits(memory=False))
    assert level.largest == 16 and "gained nothing" in level.cut_short and fastest(level.trials) == 4
    assert search(rates, Limits()).largest == 256, "on a GPU the largest batch that fits is of interest"
    creeping = search(lambda batch: trial(batch, rate=100 * batch**0.025), Limits(memory=False))  # 1.7 % a doubling
    assert creeping.largest == 256


def test_a_cpu_has_no_memory_to_search_for():
    step = eats()
    assert not search_limits(step, QUICK, None).memory and search_limits(step, QUICK, ToyMeter()).memory
    on_gpu = replace(step, placement=replace(step.placement, device="cuda"))
    assert search_limits(on_gpu, QUICK, None) == QUICK


def test_the_fastest_batch_is_the_smallest_near_the_best_over_all_sizes():
    small = [trial(batch, rate, 0.5) for batch, rate in ((1, 50), (2, 90), (4, 99), (8, 100), (16, 101))]
    assert fastest(small) == 4
    large = [trial(batch, rate, 2.0) for batch, rate in ((1, 5), (2, 8), (4, 9), (8, 10))]
    assert fastest(small + large) == 8  # 16 was never tried with large images


@settings(deadline=None)  # the first example loads scipy
@given(
    law=st.tuples(*[st.floats(0, 10).map(lambda value: round(value, 3))] * 3),
    batches=st.sets(st.integers(1, 256), min_size=2, max_size=9),
    megapixels=st.sets(st.sampled_from([0.1, 0.5, 2.0, 12.0, 48.0]), min_size=2),
)
def test_the_fit_recovers_the_law(law, batches, megapixels):
    base, row, pixel = law
    trials = [
        trial(batch, megapixels=size, peak=base + row * batch + pixel * batch * size)
        for batch in batches
        for size in megapixels
    ]
    line = memory_line(trials)
    assert np.allclose((line.base_gb, line.per_row_gb, line.per_megapixel_gb), law, rtol=1e-6, atol=1e-6)
    assert line.error_gb < 1e-6


def test_the_fit_never_falls_and_states_its_error():
    line = memory_line([trial(1, peak=3.0), trial(2, peak=2.5), trial(4, peak=2.0)])
    assert line.per_row_gb == line.per_megapixel_gb == 0.0
    assert line.base_gb == pytest.approx(2.5) and line.error_gb == pytest.approx(0.5)
    assert memory_line([trial(1)]) is None


@pytest.mark.slow
def test_a_step_is_measured_in_a_child_until_memory_runs_out(tmp_path):
    # at 2 MP: 0.25 + n (0.01 + 0.05 * 2) <= 1.5, so n <= 11
    result = measured(tmp_path)
    figures = result.figures
    assert (figures.largest_batch, figures.largest_is_limit) == (11, True)
    assert [(trial.batch, trial.megapixels) for trial in figures.trials] == [
        *((n, size) for size in (0.5, 2.0) for n in (1, 2, 4, 8, 10, 11)),
    ]
    line = figures.memory
    assert (line.base_gb, line.per_row_gb, line.per_megapixel_gb) == pytest.approx((0.25, 0.01, 0.05))
    assert figures.weights_gb == 0.25 and figures.weights_bytes == 8 * 4 * 4
    assert figures.flops_per_row == 2 * 8 * 4 and figures.dummy
    assert result.device.name == "Toy Card 2" and result.notes == ["a batch of 12 did not run: memory ran out"]
    assert figures.trials[0].phases.keys() == {"infer"} and figures.trials[0].reserved_gb > figures.trials[0].peak_gb


@pytest.mark.heavy
def test_a_crash_is_a_batch_that_does_not_fit_and_the_search_goes_on(tmp_path):
    result = measured(tmp_path, replace(QUICK, most_batch=4), dies_at=3)
    assert (result.figures.largest_batch, result.figures.largest_is_limit) == (2, True)
    assert result.notes == ["a batch of 3 did not run: its process died (SIGKILL)"]


@pytest.mark.heavy
def test_a_hang_is_ended(tmp_path):
    result = measured(tmp_path, replace(QUICK, most_batch=2, hang_s=8.0), hangs_at=2)
    assert result.figures.largest_batch == 1
    assert result.notes == ["a batch of 2 did not run: its process died (it hung)"]


@pytest.mark.heavy
def test_an_exception_is_reported_and_earlier_batches_are_kept(tmp_path):
    result = measured(tmp_path, refuses_at=4)
    assert result.notes[0] == "a batch of 4 raised ValueError: so many are not to my taste"
    assert result.figures.largest_batch == 2 and not result.figures.largest_is_limit
    idle = measured(tmp_path, replace(QUICK, most_batch=1), idle=True)
    assert idle.figures is None and "had nothing to do" in idle.notes[0]
    none = measured(tmp_path, holds=0.1)
    assert none.figures is None and none.notes == ["a batch of 1 did not run: memory ran out"]


def test_rows_are_repeated_without_a_copy_and_clips_are_numbered():
    few = rows(2, 3, count=3).append_column("frame", pa.array([b"one", b"two", b"six"], pa.large_binary()))
    several = pa.concat_tables([few])
    clip = Neighbours()
    batch = batch_of(clip, several, 7 - clip.halo)
    assert batch["frame_index"].to_pylist() == [*range(7)] and batch["clip_index"].to_pylist() == [0] * 6 + [-1]
    assert batch["frame"].to_pylist() == [b"one", b"two", b"six"] * 2 + [b"one"]
    buffers = {chunk.buffers()[2].address for chunk in batch["frame"].chunks}
    assert clip.scope is Scope.CLIP and buffers == {few["frame"].chunk(0).buffers()[2].address}


def test_weights_are_found_in_any_attribute_of_a_stage():
    import functools

    import torch

    net, other = torch.nn.Linear(4, 4, bias=False), torch.nn.Conv2d(1, 1, 1, bias=False)

    class Holder:
        def __init__(self):
            self.parts = {"a": [functools.partial(net.forward)], "b": lambda x, y: other(x + y)}
            self.same = net

    assert weights_bytes(Holder()) == 4 * (16 + 1)
    assert weights_bytes(object()) is None
    assert flops_of(lambda: net(torch.zeros(3, 4))) == 2 * 3 * 16 and flops_of(lambda: None) is None
    whole = torch.ones(32, 16, dtype=torch.int8)
    assert flops_of(lambda: torch._int_mm(whole, whole.t())) == 2 * 32 * 16 * 32


def test_the_command_writes_a_file_that_is_read_again(collection, tmp_path):
    (tmp_path / "p.yaml").write_text(
        'steps:\n  eats: {use: "tests.support.runs.toy_gpu:Eats", with: {refuses_at: 3}}\n'
    )
    where = ("--pipeline", tmp_path / "p.yaml", "--save", tmp_path / "c", "--missing-weights", "dummy")
    done = command("calibrate", "--input", collection, "--most-batch", 4, "--rows", 6, *where)
    assert done.returncode == 0, done.stderr
    assert "A batch of 4 raised ValueError" in done.stdout and "Fastest batch" in done.stdout
    (path,) = (tmp_path / "c").glob("*.json")
    result = read_calibration(path)
    figures = result.steps["eats"]
    assert (
        result.kind == "cpu" and result.gpu_vram_gb is None and figures.memory is None and result.decode_rows_per_s > 0
    )
    assert {trial.batch for trial in figures.trials} == {1, 2}
    assert result.of(eats(refuses_at=3)) == figures and result.of(eats(refuses_at=4)) is None
    assert json.loads(path.read_text())["format"] == 1


@pytest.mark.heavy
def test_weights_outside_torch_are_not_reported_as_zero(collection, tmp_path):
    (tmp_path / "p.yaml").write_text('steps:\n  byte: {use: "tests.toys:Seeded"}\n')  # torch holds nothing of it
    where = ("--pipeline", tmp_path / "p.yaml", "--save", tmp_path / "c", "--missing-weights", "dummy")
    done = command("calibrate", "--input", collection, "--most-batch", 2, "--rows", 4, *where)
    assert done.returncode == 0, done.stderr
    assert "weights not seen" in done.stdout and "0.000 GB" not in done.stdout


def test_a_later_calibration_keeps_the_steps_that_it_lacks_and_their_conditions(tmp_path):
    trial = Sample(batch=1, megapixels=1.0, calls=3, seconds=0.1)
    step = StepFigures(
        use="a:B",
        settings="",
        precision="fp32",
        set_up_s=1.0,
        weights_gb=0.1,
        trials=[trial],
        largest_batch=1,
        fastest_batch=1,
    )
    about = {"device": "card", "kind": "cuda", "made": "2026", "framekiln": "", "torch": ""}
    both = Calibration(**about, context_gb=0.5, decode_rows_per_s=20.0, steps={"a": step, "b": step})
    fewer = Calibration(**about, context_gb=0.4, decode_rows_per_s=50.0, steps={"a": step})
    for first, then in ((both, fewer), (fewer, both)):
        write_calibration(first, tmp_path)
        result = read_calibration(write_calibration(then, tmp_path))
        assert (result.steps.keys(), result.context_gb, result.decode_rows_per_s) == ({"a", "b"}, 0.5, 20.0)
    faster = both.model_copy(update={"context_gb": 0.3, "decode_rows_per_s": 60.0})
    assert read_calibration(write_calibration(faster, tmp_path)) == faster


@pytest.mark.parametrize("text", ['{"steps": {}, "version": 1}', "[]", "{", "5"])
def test_a_file_of_another_kind_is_no_calibration(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_calibration(tmp_path / "run.json")
    assert error.value.code == "FK-NOT-A-CALIBRATION" and str(tmp_path / "run.json") in str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "FK-NO-INPUT"),
        (["--input", "/nowhere/at/all", "--save", "README.md"], "FK-NOT-A-FOLDER"),
        (["--input", "/nowhere/at/all", "--save", "README.md/deeper"], "FK-NOT-A-FOLDER"),
        (["--input", "/nowhere/at/all", "--stages", "categorize"], "/nowhere/at/all"),
        (["--input", ".", "--stages", "categorise"], "'categorize'"),
        (["--input", ".", "--stages", "lighting"], "FK-NOTHING-TO-CALIBRATE"),
        (["--input", ".", "--stages", "categorize", "--profile", "gpu-12gb"], "FK-CALIBRATE-NO-GPU"),
        (["--input", ".", "--stages", "categorize", "--share", "build/shared.json"], "FK-CALIBRATION-OF-CPU"),
    ],
)
def test_mistakes_are_one_sentence(words, expected):
    done = command("calibrate", *words, "--missing-weights", "dummy")
    assert done.returncode == 2 and expected in " ".join(done.stderr.split()) and not done.stdout
