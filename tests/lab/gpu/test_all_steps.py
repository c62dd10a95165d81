"""Each step of the GPU benchmark runs to its end at its smallest sizes.

The steps run on the simulated GPU of docs/hardware/rehearsing.md where torch is a build for CUDA 13, else on the CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.rehearsal.build import main as make_card
from tests.support.machine.command_line import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

HAS_CARD = (torch.version.cuda or "").startswith("13.") and None not in map(shutil.which, ("g++", "nm"))
CARD = {"REHEARSAL_NAME": "NVIDIA GeForce RTX 5080", "REHEARSAL_CAPABILITY": "12.0"}
TFLOPS, COPIES_GB_S, CONTEXT_GB, TOTAL_GB = 50, 20, 0.45, 17.18  # of the simulated GPU
CLIP_GB = 4 * 87.5e6 / 1e9  # the image tower of CLIP ViT-B/32 in fp32


class Proof:
    """The benchmark, with a folder that all its calls share, and a GPU or none."""

    def __init__(self, folder: Path, *, on_card: bool) -> None:
        self.folder, self.on_card = folder, on_card
        if on_card:
            make_card([str(folder / "card"), "--python", sys.executable])

    def call(self, *words: str, code: int = 0) -> dict[str, dict]:
        """The document's steps of a call with these words, whose exit code is known."""
        source = f". {self.folder}/card/environment.sh; " if self.on_card else ""
        more = ["--work", str(self.folder / "work"), *([] if self.on_card else ["--device", "cpu"])]
        environment = os.environ | CARD | {"REHEARSAL_BOOKS": str(self.folder / "books"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--limit", "280", *more, *words]
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run(
            ["bash", "-c", source + 'exec "$@"', "bash", *command],
            cwd=ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)["steps"]


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    return Proof(tmp_path_factory.mktemp("proof"), on_card=HAS_CARD)


def results(steps, name):
    """What a step recorded, which did not fail."""
    assert steps[name]["outcome"] == "ok", steps[name]["why"]
    return steps[name]["results"]


def test_the_cpu_has_its_rates_equals_itself_and_has_no_memory_to_limit(tmp_path):
    steps = Proof(tmp_path, on_card=False).call("--only", "machine,equality,memory", "--cases", "faces,segment,inpaint")
    assert steps["memory"]["outcome"] == "skipped"
    assert [line["tflops"] > 0 for line in results(steps, "machine") if "tflops" in line] == [True]
    found = results(steps, "equality")
    cosines = {line["stage"]: line["cosine"] for line in found if "cosine" in line}
    assert set(cosines) == {"faces", "segment", "inpaint"} and min(cosines.values()) > 0.99999
    assert [line["wrong"] for line in found if "uploads" in line] == [0]
    assert [line["equal_edges"] for line in found if line.get("way") == "tree"] == [True]


def test_a_card_that_computes_nothing_has_its_rates_and_fails_equality_alone(proof):
    if not proof.on_card:
        pytest.skip("needs torch for CUDA 13, g++ and nm")
    steps = proof.call("--only", "machine,equality,memory", "--cases", "categorize", code=1)
    machine = results(steps, "machine")
    assert machine[0]["environment"]["gpu"] == CARD["REHEARSAL_NAME"]
    assert all(line["tflops"] <= TFLOPS for line in machine if "tflops" in line)
    copies = [line["gb_s"] for line in machine if "copy" in line]
    assert len(copies) == 4 and max(copies) <= COPIES_GB_S
    assert steps["equality"]["outcome"] == "failed" and not any(line.get("ok") for line in steps["equality"]["results"])
    (limited,) = results(steps, "memory")
    assert (limited["stage"], limited["lost"], limited["ran_out"]) == ("categorize", 0, True)
    assert limited["one_row_gb"] < limited["reserved_gb"] <= limited["limit_gb"] < limited["all_rows_gb"]


def test_a_stage_is_set_up_and_called(proof):
    stage, whole = results(proof.call("--only", "warm_up", "--cases", "categorize"), "warm_up")
    assert (stage["stage"], stage["compiled"], whole["files_before"]) == ("categorize", False, 0)
    assert 0 < stage["next_call_s"] < whole["all_s"]


def test_a_stage_is_a_share_of_its_models_ceiling(proof):
    steps = proof.call("--only", "ceilings,shares", "--cases", "clip,categorize")
    (ceiling,), (stage,) = results(steps, "ceilings"), results(steps, "shares")
    assert (ceiling["model"], ceiling["batch"], stage["case"]) == ("clip", 2, "categorize, 2 small ones")
    assert stage["share"] == pytest.approx(stage["units_per_s"] / ceiling["per_s"], rel=1e-3)
    assert stage["units_per_s"] == stage["rows_per_s"], "an image a row"
    if proof.on_card:
        assert CLIP_GB < ceiling["peak_gb"] < 1.2 * CLIP_GB < stage["peak_gb"] + CLIP_GB
        assert stage["peak_gb"] <= stage["reserved_gb"]


def test_one_process_is_compared_with_two(proof):
    single, alone, two = results(proof.call("--only", "processes"), "processes")
    assert [line["processes"] for line in (single, alone, two)] == [1, 1, 2]
    assert single["in_flight"] == 1 < alone["in_flight"] == two["in_flight"]
    assert two["against_one"] == pytest.approx(two["rows_per_s"] / alone["rows_per_s"], rel=1e-3)
    if proof.on_card:
        seen = [single[name] for name in ("device", "total_gb", "context_gb")]
        assert seen == [CARD["REHEARSAL_NAME"], TOTAL_GB, CONTEXT_GB]


def test_a_run_and_a_calibration_predict(proof):
    pytest.importorskip("ray")
    steps = proof.call("--only", "engine,calibration")
    (run,), (calibration, *predicted) = results(steps, "engine"), results(steps, "calibration")
    assert (run["rows"], run["ok"]) == (8, True) and run["rows_per_s_whole"] <= 8 / run["first_result_s"]
    assert list(calibration["rows_per_s"]) == ["1", "2", "4"] and calibration["largest_batch"] == 4
    if proof.on_card:
        assert calibration["context_gb"] == CONTEXT_GB and calibration["weights_gb"] < CLIP_GB, "in 16 bits"
        gpus = {line["gpu"]: line for line in predicted if "gpu" in line}
        assert set(gpus) == {"rtx-5080", "rtx-4060"} and not any(line["why_not"] for line in gpus.values())
        assert gpus["rtx-4060"]["bound"] < gpus["rtx-5080"]["bound"]


def test_all_stages_keep_to_8_gb(proof):
    pytest.importorskip("ray")
    run, *predicted = results(proof.call("--only", "capped", "--cases", "memory-constrained"), "capped")
    assert run["rows"] == 2
    if proof.on_card:
        assert (run["profile"], run["limit_gb"]) == ("memory-constrained", 8.0)
        assert run["allocated_peak_gb"] < run["vram_peak_gb"] <= 8 and run["needs_of_planned"] < 1
        assert [line["gpu"] for line in predicted[1:]] == ["rtx-5080", "rtx-4060"]
