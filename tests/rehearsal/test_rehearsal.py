"""The GPU that computes nothing: its NVML, which needs no CUDA, is built, loaded and read as a real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from tests.rehearsal.build import HERE, build, types

ROOT = Path(__file__).resolve().parents[2]

READ_GPU = """
import json
from framekiln.device.timing import _measure_used_gb
from framekiln.planning.processes.resources import gpu_names, this_machine
from framekiln.device.nvml import library
from framekiln.profiling.node_metrics import NodeMetrics
read = NodeMetrics("0", nvml=library()).read()["gpus"]
print(json.dumps([gpu_names(), this_machine().gpus, _measure_used_gb(), read]))
"""


READ_SILENCE = "from framekiln.device.machine_facts import read_machine; assert read_machine().silence == nvml.HANGS"


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> dict[str, str]:
    """The environment of a machine with that GPU."""
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        pytest.skip("gcc and nm build the library")
    folder = tmp_path_factory.mktemp("rehearsal")
    build(folder, "libnvidia-ml.so.1", HERE / "management.c", set())
    books = {"REHEARSAL_BOOKS": str(folder / "books"), "REHEARSAL_GIB": "8", "REHEARSAL_NAME": "NVIDIA Toy"}
    kept = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    return kept | books | {"LD_LIBRARY_PATH": str(folder)}


def test_a_gpu_is_found_and_read_through_the_drivers_library(driver):
    done = subprocess.run(
        [sys.executable, "-c", READ_GPU], cwd=ROOT, env=driver, capture_output=True, text=True, check=True
    )
    names, count, used, (gpu,) = json.loads(done.stdout)
    assert (names, count) == (["NVIDIA Toy"], 1.0)
    assert used == {"12345678-9abc-def0-1234-56789abcdef0": pytest.approx(0.3)}
    assert gpu["total_gb"] == pytest.approx(8.589934592) and gpu["memory_gb"] == pytest.approx(0.3)
    assert gpu["power_w"] == pytest.approx(40.0) and gpu["temperature_c"] == 45 and gpu["use_percent"] == 0


@pytest.mark.heavy
def test_a_plan_names_the_gpu_that_it_leaves_unused_and_what_keeps_torch_from_it(driver):
    def plan(*words):
        command = [sys.executable, "-m", "framekiln", "plan", *words]
        environment = driver | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    unused = plan()
    assert unused.returncode == 0 and "NVIDIA Toy" in unused.stdout and "memory-constrained" in unused.stdout
    refused = plan("--profile", "memory-constrained")
    code = "FK-GPU-TORCH" if torch.version.cuda is None else "FK-GPU-UNUSABLE"
    assert refused.returncode == 3 and f"[{code}]" in refused.stderr
    assert f"[{code}]" not in plan("--profile", "memory-constrained", "--device", "cpu").stderr


@pytest.mark.heavy
def test_a_driver_that_never_answers_is_left_waiting(driver, tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    code = b"unsigned sleep(unsigned); int nvmlInit_v2(void) { return sleep(600); }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), "-xc", "-"], input=code, check=True)
    asked = f"from framekiln.device import nvml; nvml._ANSWER_S = 0.5; {READ_SILENCE}"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env=driver | {"LD_LIBRARY_PATH": str(tmp_path)}, timeout=60
    )
    assert done.returncode == 0


def test_cudnn_is_turned_off_where_torch_is_loaded(tmp_path):
    shutil.copy(HERE / "without_cudnn.py", tmp_path / "sitecustomize.py")
    code = "import torch; print(torch.backends.cudnn.enabled, torch.zeros(2).sum().item())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0.0"]


def test_structures_are_cut_out_of_a_header():
    header = dedent("""
    struct __device_builtin__ other { int no; };
    struct __device_builtin__ cudaPointerAttributes
    {
        /** of memory; enum */
        enum cudaMemoryType type;
        int device;
    };
    """)
    text = types(header)
    assert "struct cudaPointerAttributes" in text and "int type;" in text and "no;" not in text and "/*" not in text
