"""`framekiln predict`: estimates with their back-tests, and mistakes as one sentence."""

from __future__ import annotations

import pytest

from framekiln.lab.predict.gpu_specs import gpu_by_name
from framekiln.planning.gpu.calibration_file import write_calibration
from tests.lab.gpu_law import GPUS, calibration, figures, output
from tests.support.machine.command_line import command


def call(*words):
    done = command("predict", *words)
    return done.returncode, " ".join(done.stdout.split()), " ".join(done.stderr.split())


def test_the_command_prints_an_estimate_with_its_back_tests(tmp_path):
    path = write_calibration(calibration({"big": figures(0.05)}), tmp_path / "c")
    code, out, err = call(output(tmp_path / "out"), "--for", "rtx-5080,rtx-4060", "--calibration", path)
    assert code == 0, err
    assert out.startswith("ESTIMATE") and "Estimate: rtx-5080" in out and "Estimate of the run" in out
    assert "Back-tests on NVIDIA GeForce RTX 4090" in out and "sets the pace" in out and "rests on:" in out


def test_an_error_that_rounds_to_zero_has_no_sign(tmp_path):
    path = write_calibration(calibration({"big": figures()}), tmp_path / "c")
    for beside in (0.999, 1.001):
        code, out, err = call(output(tmp_path / f"{beside}", beside=beside), "--for", "l4", "--calibration", path)
        assert code == 0, err
        assert "it took 0% against alone" in out and "-0%" not in out and "+0%" not in out
        assert "may lie at its interval's lower end" in out


@pytest.mark.parametrize("name", ["RTX 5080", "rtx 5080", "NVIDIA GeForce RTX 5080", "rtx-5080"])
def test_a_gpu_is_found_by_each_of_its_names(name):
    assert gpu_by_name(name, GPUS) == GPUS["rtx-5080"]


def test_mistakes_are_one_sentence(tmp_path):
    good, on_cpu = output(tmp_path / "good"), output(tmp_path / "cpu", device="cpu")
    folder = tmp_path / "c"
    path = write_calibration(calibration({"big": figures()}), folder)
    few = write_calibration(calibration({"big": figures(batches=(1,))}), tmp_path / "few")
    other = write_calibration(calibration({"big": figures()}, device="NVIDIA L4"), folder)
    cpu = write_calibration(calibration({"big": figures()}, device="AMD EPYC", kind="cpu"), folder)
    (tmp_path / "bad.yaml").write_text("mine: {names: [x], memory_gb: 8}\n")
    cases = [
        ((good, "--for", "rtx-508", "--calibration", path), "FK-UNKNOWN-GPU"),
        ((good, "--for", "RTX 508", "--calibration", path), "FK-UNKNOWN-GPU"),
        ((on_cpu, "--for", "l4", "--calibration", path), "measured on a CPU"),
        ((good, "--for", "l4", "--calibration", cpu), "measured on a CPU"),
        ((good, "--for", "l4", "--calibration", other), "FK-CALIBRATION-OTHER-GPU"),
        ((good, "--for", "l4", "--calibration", few), "FK-PREDICT-UNTESTED"),
        ((good, "--for", "l4", "--calibration", tmp_path / "none.json"), "There is no calibration"),
        ((good, "--for", "l4", "--gpus", tmp_path / "bad.yaml"), "FK-INVALID-VALUE"),
        ((tmp_path, "--for", "l4"), "FK-NO-RUN-JSON"),
        ((output(tmp_path / "many", gpus=4), "--for", "l4", "--calibration", path), "FK-PREDICT-SEVERAL-GPUS"),
    ]
    for words, error in cases:
        code, out, err = call(*words)
        assert code == 2 and error in err and out == "", (words, err)
    _, _, err = call(good, "--for", "RTX 508", "--calibration", path)
    assert "'rtx-5080'" in err
