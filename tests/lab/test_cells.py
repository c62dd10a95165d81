"""Cells of a sweep: memory, precision, outcomes; each in this process, or in a child where it ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from framekiln.contract.errors import ConfigError
from framekiln.lab.bench import Axes
from framekiln.lab.findings import waits
from framekiln.lab.measure.layers import WHOLE
from framekiln.lab.measure.memory import LEAK, find_leak, measure_memory
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.measure.tracing import DetailOptions, synchronisations
from framekiln.lab.models.factory import Factory
from framekiln.lab.models.registry import TorchModel
from framekiln.lab.output.cells import Cell
from framekiln.lab.sweep.figures import ABOVE, CACHED, drift
from framekiln.lab.sweep.runner import ModelBench, ModelProcess

QUICK = {"iterations": 3, "warmup": 1, "warmup_s": 0.0}


def source(name):
    return TorchModel(name=name, factory=Factory(use=f"tests.lab.models:{name}", settings={}), weights="")


def process(name, **options):
    return ModelProcess(source(name), MeasureOptions(**QUICK, **options))


def measure(name, options=None, **cell):
    return process(name, **(options or {})).measure(Cell(**cell))


def drift_of(name, precision):
    """The difference of a model's outputs from those in fp32."""
    model = process(name).model()
    return drift(*(model.prepare(Cell(precision=kind), "cpu").call() for kind in (precision, "fp32")))


def test_figures_of_a_cell():
    result = measure("plain", {"layers": True}, batch=4)
    assert (result.outcome, result.items, result.latency_ms.count, result.warmup) == ("ok", 4, 3, 2)
    assert result.params == 12 * 8 + 8 + 8 * 4 + 4 and result.weights_bytes == 4 * result.params
    assert result.flops == 4 * 2 * (12 * 8 + 8 * 4)
    assert result.memory.inputs == 4 * 4 * 12 and result.memory.outputs == 4 * 4 * 4
    assert result.latency_ms.p95 is None and result.item_ms == pytest.approx(result.latency_ms.median / 4)
    flops = {layer.path: layer.flops for layer in result.layers}
    assert flops["0"] == 4 * 2 * 12 * 8 and flops[WHOLE] == result.flops
    assert result.drift is None and 0 < result.peak_share < 10


def test_activations_are_what_a_call_holds_at_one_moment():
    memory = measure_memory(process("plain").model().prepare(Cell(batch=4), "cpu"))
    assert memory.activations_peak == 4 * 4 * (8 + 8)  # the first layer's output and its rectified copy
    assert [point.allocated for point in memory.timeline][-1] == memory.outputs


def test_the_peak_is_a_share_of_the_memory_that_the_bench_may_take():
    prepared = process("plain").model().prepare(Cell(batch=4), "cpu")  # the option would limit this very process
    memory = measure_memory(prepared, 40.0)
    assert memory.device == 40 * 10**9 and memory.device_share == memory.peak / memory.device
    assert measure_memory(prepared).device_share is None


def test_a_module_that_keeps_a_tensor_a_call_leaks_its_bytes():
    leak = measure("keeper", {"leak": 20}).leak
    assert leak.leaks and leak.slope == 4_000_000 and leak.calls == 20


def test_a_loss_that_is_kept_in_a_list_is_a_leak_of_four_bytes():
    leak = measure("losses", {"leak": 20}).leak
    assert leak.leaks and leak.slope == 4


def test_a_cache_that_fills_once_is_no_leak():
    leak = measure("cache", {"leak": 20}).leak
    assert not leak.leaks and leak.slope == 0


def test_a_leak_is_growth_in_the_second_half():
    assert not find_leak([5_000_000 * n for n in range(10)] + [45_000_000] * 10).leaks
    assert find_leak([0] * 10 + [int(2 * LEAK) * n for n in range(10)]).slope == 2 * LEAK


def test_growth_in_nearly_every_call_is_a_leak_and_in_a_few_calls_only_where_it_is_large():
    every, third = ([size * (n // each) for n in range(40)] for each, size in ((1, 4), (3, 4)))
    assert find_leak(every).leaks and not find_leak(third).leaks
    assert find_leak([5000 * (n // 3) for n in range(40)]).leaks  # 1,667 bytes a call
    assert not find_leak([4 * (n % 10) for n in range(40)]).leaks  # a buffer that every tenth call empties


def test_memory_that_does_not_grow_is_no_leak():
    assert not find_leak([512] * 40).leaks and not find_leak([7]).leaks


def test_an_overflow_is_seen_as_values_that_are_not_finite():
    wrong = drift_of("overflow", "fp16")
    assert wrong.nonfinite == 3 and wrong.rel_l2 is None
    assert drift_of("overflow", "bf16").nonfinite == 0


def test_cancellation_is_seen_though_all_values_are_finite():
    wrong = drift_of("cancels", "fp16")
    assert wrong.nonfinite == 0 and wrong.rel_l2 > 0.1
    assert drift_of("plain", "fp16").rel_l2 < 0.01


@pytest.mark.heavy
def test_outputs_without_floating_numbers_have_no_drift():
    result = measure("labels", precision="bf16")
    assert result.outcome == "ok" and result.drift == drift(None, None)
    assert (result.drift.rel_l2, result.drift.cosine, result.drift.max, result.drift.nonfinite) == (None, None, None, 0)


def test_drift_of_known_values():
    numbers = torch.tensor([1])
    result = drift({"a": torch.tensor([3.0, 4.5]), "n": numbers}, {"a": torch.tensor([3.0, 4.0]), "n": numbers + 1})
    assert result.rel_l2 == pytest.approx(0.1) and result.max == 0.5
    assert result.cosine == pytest.approx((3 * 3 + 4.5 * 4) / (5 * 29.25**0.5))
    same_hole = drift(torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1.0]))
    assert same_hole.nonfinite == 0 and same_hole.rel_l2 == 0


def test_a_precision_leaves_the_settings_of_tf32_as_they_were():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    assert measure("plain", precision="bf16").outcome == "ok"
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


@pytest.mark.filterwarnings("ignore")
def test_dynamic_int8_is_smaller_and_close():
    result = measure("plain", precision="int8-torch", batch=2)
    assert result.outcome == "ok" and result.weights_bytes == 12 * 8 + 8 * 4 + 4 * (8 + 4)
    assert 0 < result.drift.rel_l2 < 0.05 and result.params == 140


@pytest.mark.parametrize("precision", ["int8-dynamic", "int8-static"])
def test_int8_of_torchao(precision):
    result = measure("plain", precision=precision, batch=4)
    if result.outcome == "unsupported":
        pytest.skip(result.why)
    assert result.outcome == "ok", result.why
    assert result.weights_bytes < 4 * result.params and 0 < result.drift.rel_l2 < 0.1


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("cache", {"precision": "int8-torch"}),
        ("plain", {"precision": "tf32"}),
        ("plain", {"frames": 4}),
        ("plain", {"channels_last": True}),
    ],
)
def test_what_does_not_exist_here_is_an_outcome(name, cell):
    result = measure(name, **cell)
    assert result.outcome == "unsupported" and result.why


def test_a_model_that_raises_is_an_outcome_with_its_reason():
    result = measure("plain", size=5)
    assert result.outcome == "error" and "RuntimeError" in result.why


def test_a_model_fits_where_the_measurement_of_peaks_does_not(monkeypatch):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("framekiln.lab.sweep.figures.peak_gb_s", full)
    result = measure("plain")
    assert result.outcome == "ok" and result.gb_s > 0 and result.peak_share is result.bandwidth_share is None
    assert any("too little memory" in note for note in result.notes)


@pytest.mark.parametrize(("peak", "note"), [("peak_tflops", ABOVE), ("peak_gb_s", CACHED)])
def test_more_than_the_peak_is_noted(monkeypatch, peak, note):
    monkeypatch.setattr(f"framekiln.lab.sweep.figures.{peak}", lambda *_: 1e-12)
    assert note in measure("plain").notes
    monkeypatch.setattr(f"framekiln.lab.sweep.figures.{peak}", lambda *_: 1e12)
    assert note not in measure("plain").notes


def test_the_full_product_of_all_axes():
    axes = Axes(batches=(1, 2), precisions=("fp32", "bf16"), compile=("off", "default"), channels_last=(False, True))
    assert len(set(axes.cells())) == 16 and [cell.batch for cell in axes.cells()[:2]] == [1, 2]


def test_a_factory_that_raises_is_a_mistake_in_one_line():
    with ModelBench(source("raises_two_lines"), MeasureOptions(**QUICK)) as bench, pytest.raises(ConfigError) as error:
        bench.about()
    assert error.value.code == "FK-BENCH-BUILD" and "first second" in str(error.value)


@pytest.mark.parametrize(
    ("axes", "code"),
    [
        ({"precisions": ("fp23",)}, "FK-BENCH-PRECISION"),
        ({"compile": ("max",)}, "FK-BENCH-COMPILE"),
        ({"backends": ("onnx",)}, "FK-BENCH-BACKEND"),
    ],
)
def test_unknown_names_are_mistakes(axes, code):
    with pytest.raises(ConfigError) as error:
        Axes(**axes).check()
    assert error.value.code == code


def test_a_trace_has_a_range_for_each_module(tmp_path):
    details = process("plain").details(Cell(batch=2), DetailOptions(trace=True, cprofile=True, depth=1), tmp_path)
    files = {Path(file).name.rpartition("fp32")[2]: Path(file) for file in details.files}
    assert set(files) == {".json.gz", "-operators.txt", ".pstats", "-cprofile.txt"}
    names = [event.get("name") for event in json.loads(gzip.decompress(files[".json.gz"].read_bytes()))["traceEvents"]]
    assert {"0", "1", "2", "call 0", "call 2"} <= set(names) and "addmm" in files["-operators.txt"].read_text()
    assert "linear.py" in files["-cprofile.txt"].read_text() and details.syncs == {}


def test_values_that_the_cpu_reads_are_waits_for_a_gpu():
    prepared = process("reads").model().prepare(Cell(), "cpu")
    assert synchronisations(prepared) == {"aten::item": 2, "aten::nonzero": 1}
    (finding,) = waits("reads", synchronisations(prepared))
    assert finding.numbers == {"waits": 3.0} and waits("plain", {}) == []


def test_times_by_line(tmp_path):
    pytest.importorskip("line_profiler")
    details = process("reads").details(Cell(), DetailOptions(lines="tests.lab.models:Reads.forward"), tmp_path)
    assert "x.sum().item()" in Path(details.files[0]).read_text()
    not_run = process("reads").details(Cell(), DetailOptions(lines="tests.lab.models:Keeper.forward"), tmp_path)
    assert not_run.files == () and "Keeper.forward" in not_run.notes[0]
    with pytest.raises(ConfigError) as error:
        process("reads").details(Cell(), DetailOptions(lines="tests.lab.models:Reads.backward"), tmp_path)
    assert error.value.code == "FK-BENCH-LINES"


@pytest.mark.heavy
def test_the_search_for_a_batch_ends_where_memory_does_and_the_next_cell_runs():
    seen = []
    with ModelBench(source("large"), MeasureOptions(**QUICK, memory_cap_gb=2.0)) as bench:
        found = bench.find_batch(Cell(), 8, seen.append)
        assert bench.measure(Cell()).outcome == "ok"
    assert found.largest == 1 and "DefaultCPUAllocator" in found.failure.why
    assert [(result.cell.batch, result.outcome) for result in seen] == [(1, "ok"), (2, "oom")]
