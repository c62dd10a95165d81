"""`framekiln predict`: bounds and estimates of a run on a CPU or a GPU, their costs, and mistakes as one sentence."""

from __future__ import annotations

import json

import pytest
import yaml

from framekiln.lab.predict.gpu_specs import short_name
from framekiln.planning.gpu.calibration_file import write_calibration
from framekiln.runtime.run.record import sealed
from tests.lab.gpu_law import BATCH, DEVICE, GPUS, MEGAPIXELS, calibration, figures, model_s, output
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import photo
from tests.support.runs.serial_engine import without_ray
from tests.toys import Products

FLOPS = 2 * Products.SIDE**2
WEIGHTS = 2 * Products.SIDE**2  # bytes, in 16 bits


def facts(*words):
    done = command("predict", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["gpus"]


@pytest.mark.heavy
def test_a_run_on_a_gpu_corrects_the_estimate_of_others(tmp_path):
    run = output(tmp_path, gpus=1, decode=0.0001)
    here, other = facts(run, "--for", "rtx-4090,rtx-4060", "--cores", 8)
    for choice, gpu in ((here, GPUS["rtx-4090"]), (other, GPUS["rtx-4060"])):
        (step,) = choice["steps"]
        assert (step["flops"], step["batch"], step["measured"]) == (FLOPS, BATCH, True)
        memory = WEIGHTS / BATCH / (gpu.bandwidth_gb_s * 1e9)
        assert choice["bound"] == pytest.approx(1 / max(memory, FLOPS / (gpu.bf16_tflops * 1e12)), rel=0.05)
        assert choice["rate"]["low"] <= choice["rate"]["central"] <= choice["rate"]["high"] <= choice["bound"]
    model = model_s(BATCH, MEGAPIXELS)
    assert here["steps"][0]["seconds"]["central"] == pytest.approx(model, rel=1e-3)
    assert here["rate"]["central"] == pytest.approx(1 / model, rel=0.01)
    assert (here["limit"], here["waves"], here["profile"]) == ("the GPU", [["big"]], "of the run")
    path = write_calibration(calibration({"big": figures()}), tmp_path / "c")
    (calibrated,) = facts(run, "--for", "l4", "--cores", 8, "--calibration", path, "--rows", 40e6)
    assert calibrated["steps"][0]["measured"]
    assert calibrated["hours"]["central"] == pytest.approx(40e6 / calibrated["rate"]["central"] / 3600)


@pytest.mark.heavy
def test_a_run_on_a_cpu_is_enough_and_its_slow_decoder_sets_the_pace_everywhere(tmp_path):
    run = output(tmp_path / "out", device="cpu", decode=0.5)
    photo(tmp_path / "in" / "a.png", 1)
    prices = ("--prices", "rtx-5080=2", "--price-per-kwh", 1)
    choices = facts(run, "--cores", 4, *prices, "--input", tmp_path / "in")
    assert [choice["gpu"] for choice in choices] == list(GPUS)
    assert not any(choice["why_not"] for choice in choices)
    (rented,) = [choice for choice in choices if choice["gpu"] == "rtx-5080"]
    assert rented["limit"] == "the cores (decode)" and next(iter(rented["helps"])) == "twice the cores"
    hours = rented["hours"]["central"]
    assert rented["money"]["central"] == pytest.approx(hours * (2 + GPUS["rtx-5080"].watts / 1000))
    assert all(choice["money"] is None for choice in choices if choice is not rented)
    assert "a second GPU" not in rented["helps"]


@pytest.mark.heavy
def test_a_run_of_later_steps_alone_is_estimated(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    steps = {"crc": {"use": "tests.toys:Checksum"}, "twice": {"use": "tests.toys:Double"}}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"steps": steps}))
    words = ("run", tmp_path / "in", tmp_path / "out", "--pipeline", tmp_path / "p.yaml")
    with without_ray():
        assert command(*words, "--stages", "crc").returncode == command(*words).returncode == 0
    (choice,) = facts(tmp_path / "out", "--for", "l4")
    assert choice["rate"]["central"] > 0


@pytest.mark.heavy
def test_the_table_names_bound_estimate_and_limit(tmp_path):
    photo(tmp_path / "in" / "a.png", 1)
    (tmp_path / "in" / "a.mp4").write_bytes(b"x")
    words = ("--for", "l4,rtx-5080", "--cores", 8, "--prices", "rtx-5080=2", "--input", tmp_path / "in")
    run = output(tmp_path / "out", gpus=1)
    record = json.loads((run / "run.json").read_text()) | {"skipped": {"segment": "sam.pt is missing"}}
    (run / "run.json").write_text(json.dumps(sealed(record)))
    done = command("predict", run, *words)
    assert done.returncode == 0, done.stderr
    assert "segment" in done.stdout
    assert done.stdout.index(" rtx-5080 ") < done.stdout.index(" l4 ")  # the fastest first, as a table of 80 columns
    assert "no price" in done.stdout and "0.00 to" not in done.stdout
    assert ".mp4: 1 files, none measured, count as a row each." in done.stdout
    assert {"GPU", "bound", "pace:", "rtx-5080"} <= set(done.stdout.split())


@pytest.mark.parametrize("name", ["rtx 5080", "NVIDIA GeForce RTX 5080", "GeForce RTX 5080", "rtx-5080"])
def test_a_gpu_is_found_by_each_of_its_names(name):
    assert short_name(name, GPUS, "--for") == "rtx-5080"
    assert short_name(f"{name} Laptop GPU", GPUS, "--for") == "rtx-5080-laptop"


def test_mistakes_are_one_sentence(tmp_path):
    good, mixed = output(tmp_path / "good"), output(tmp_path / "mixed")
    record = json.loads((mixed / "run.json").read_text()) | {"gpu_names": [DEVICE, "NVIDIA L4"]}
    (mixed / "run.json").write_text(json.dumps(sealed(record)))
    (tmp_path / "bad.yaml").write_text("mine: {names: [x], memory_gb: 8}\n")
    cases = [
        ((good, "--for", "rtx-508"), "FK-UNKNOWN-GPU"),
        ((good, "--for", "RTX 508"), "FK-UNKNOWN-GPU"),
        ((good, "--for", "l4", "--prices", "l4"), "FK-PRICES-INVALID"),
        ((good, "--for", "l4", "--prices", "l40s=2"), "FK-UNKNOWN-GPU"),
        ((good, "--for", "l4", "--prices", "l4=-1"), "FK-PRICES-INVALID"),
        ((good, "--for", "l4", "--prices", "l4=nan"), "FK-PRICES-INVALID"),
        ((good, "--for", "l4", "--prices", "l4=1,L4=2"), "FK-PRICES-INVALID"),
        ((good, "--for", "l4", "--price-per-kwh", -3), "FK-PRICES-INVALID"),
        ((good, "--for", "l4", "--cores", 0), "FK-INVALID-VALUE"),
        ((good, "--for", "l4", "--cores", 1e9), "FK-INVALID-VALUE"),
        ((good, "--for", "l4", "--rows", 5, "--input", tmp_path), "FK-INVALID-VALUE"),
        ((good, "--for", "l4", "--rows", 1.5), "FK-INVALID-VALUE"),
        ((good, "--for", ","), "FK-UNKNOWN-GPU"),
        ((good, "--for", "l4", "--calibration", tmp_path / "none.json"), "There is no calibration"),
        ((good, "--for", "l4", "--gpus", tmp_path / "bad.yaml"), "FK-INVALID-VALUE"),
        ((tmp_path, "--for", "l4"), "FK-NO-RUN-JSON"),
        ((mixed, "--for", "l4"), "FK-PREDICT-SEVERAL-GPUS"),
    ]
    for words, error in cases:
        done = command("predict", *words)
        assert done.returncode == 2 and error in done.stderr and not done.stdout, (words, done.stderr)
    assert "'rtx-5080'" in command("predict", good, "--for", "RTX 508").stderr
