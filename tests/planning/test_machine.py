"""What is said of a machine before a run: a code where the run cannot work, a sentence where it can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framekiln.device.machine_facts import Gpu, MachineFacts, TorchBuild
from framekiln.device.nvml import HANGS
from framekiln.planning.machine import Needs, fitting_profile, judge, judge_unused, needs_of
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY

DRIVER, TORCH, MIG = "FK-GPU-DRIVER", "FK-GPU-TORCH", "FK-GPU-MIG"
NOTE = ""  # the code of a sentence with which a run goes on
CARD = Gpu(name="RTX 4060", uuid="GPU-4060", total_gb=8.6, free_gb=8.2, capability=(8, 9))
BLACKWELL = replace(CARD, name="RTX 5080", total_gb=17.1, free_gb=16.8, capability=(12, 0))
PASCAL = replace(CARD, name="GTX 1080", capability=(6, 1))
TURING = replace(CARD, name="RTX 2060", capability=(7, 5))
PART = replace(CARD, uuid="MIG-1", total_gb=5.0, free_gb=4.9)
MACHINE = MachineFacts(gpus=(CARD,), driver="580.95", driver_cuda=(13, 0))
BUILD = TorchBuild(version="2.13.0+cu130", cuda="13.0", architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_120"))
NEEDS = Needs(gb=7.0, compiled=("segment",))


def with_gpu(gpu, **facts):
    return replace(MACHINE, gpus=(gpu,), **facts)


@pytest.mark.parametrize(
    ("machine", "torch", "missing", "needs", "codes", "says"),
    [
        (MACHINE, BUILD, (), NEEDS, [], ""),
        (with_gpu(BLACKWELL), BUILD, (), NEEDS, [], ""),
        (MachineFacts(), None, (), NEEDS, [], ""),
        (MachineFacts(silence="Driver Not Loaded"), None, (), NEEDS, [DRIVER], "nvidia-driver-580-open"),
        (MachineFacts(silence="Driver/library version mismatch"), None, (), NEEDS, [DRIVER], "sudo reboot"),
        (MachineFacts(silence=HANGS), None, (), NEEDS, [DRIVER], "sudo reboot"),
        (replace(MACHINE, driver="570.86", driver_cuda=(12, 8)), BUILD, (), NEEDS, [DRIVER], "/cu126"),
        (with_gpu(BLACKWELL, driver_cuda=(12, 8)), BUILD, (), NEEDS, [DRIVER], "580-open` and restart."),
        (with_gpu(BLACKWELL, driver_cuda=(12, 8), wsl=True), BUILD, (), NEEDS, [DRIVER], "`wsl --shutdown`."),
        (replace(MACHINE, driver_cuda=(11, 8)), BUILD, (), NEEDS, [DRIVER], "580-open` and restart."),
        (replace(MACHINE, driver_cuda=(13, 2)), BUILD, (), NEEDS, [], ""),
        (replace(MACHINE, driver_cuda=None), BUILD, (), NEEDS, [], ""),
        (MACHINE, TorchBuild(version="2.13.0+cpu", cuda=None), (), NEEDS, [TORCH], "install torch==2.13.0`"),
        (with_gpu(PASCAL), BUILD, (), NEEDS, [TORCH], "6.1"),
        (with_gpu(BLACKWELL), replace(BUILD, architectures=("sm_90",)), (), NEEDS, [TORCH], "pip install torch`"),
        (MACHINE, replace(BUILD, error="CUDA unknown error"), (), NEEDS, ["FK-GPU-UNUSABLE"], "CUDA unknown error"),
        (replace(MACHINE, visible=""), None, (), NEEDS, ["FK-GPU-HIDDEN"], "unset CUDA_VISIBLE_DEVICES"),
        (replace(MACHINE, visible="1"), None, (), NEEDS, ["FK-GPU-HIDDEN"], "'1'"),
        (with_gpu(replace(CARD, parts=())), BUILD, (), NEEDS, [MIG], "-mig 0"),
        (with_gpu(replace(CARD, parts=(PART,))), BUILD, (), NEEDS, [NOTE, NOTE], "CUDA_VISIBLE_DEVICES=MIG-1"),
        (with_gpu(replace(CARD, parts=(PART,)), visible="MIG-1"), BUILD, (), NEEDS, [NOTE], "--vram-cap 4.5"),
        (with_gpu(replace(CARD, free_gb=2.0)), BUILD, (), NEEDS, [NOTE], "`nvidia-smi` lists."),
        (with_gpu(replace(CARD, free_gb=4.0)), BUILD, (), NEEDS, [NOTE], "or add `--vram-cap 3.6`"),
        (with_gpu(replace(CARD, total_gb=6.4, free_gb=6.2)), BUILD, (), NEEDS, [NOTE], "-constrained --vram-cap 5.8`."),
        (with_gpu(replace(CARD, total_gb=2.1, free_gb=2.0)), BUILD, (), NEEDS, ["FK-GPU-TOO-SMALL"], "cpu-only`"),
        (MACHINE, BUILD, (), replace(NEEDS, gb=14.0), [NOTE], "--profile memory-constrained"),
        (MACHINE, BUILD, ("gcc", "Python.h"), NEEDS, [NOTE], "apt-get install gcc python3."),
        (MACHINE, BUILD, ("triton",), NEEDS, [NOTE], "`python -m pip install triton`"),
        (MACHINE, BUILD, ("gcc",), Needs(gb=7.0), [], ""),
        (with_gpu(TURING), BUILD, (), replace(NEEDS, bf16=("faces",)), [NOTE], "--set faces.precision=fp16"),
        (MACHINE, BUILD, (), replace(NEEDS, bf16=("faces",)), [], ""),
        (with_gpu(PASCAL), BUILD, ("gcc",), NEEDS, [TORCH, NOTE], "/cu126"),
    ],
)
def test_a_machine_is_judged_before_a_run(machine, torch, missing, needs, codes, says):
    found = judge(machine, torch, missing, needs)
    assert [finding.code for finding in found] == codes
    assert says in " ".join(finding.text for finding in found)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["RTX 4060", "RTX 5080"]),
        ("1", ["RTX 5080"]),
        ("1,0", ["RTX 5080", "RTX 4060"]),
        ("GPU-40", ["RTX 4060"]),
        ("0,7,1", ["RTX 4060"]),
        ("-1", []),
        ("", []),
    ],
)
def test_of_the_gpus_those_are_seen_that_cuda_would_show(visible, names):
    machine = MachineFacts(gpus=(CARD, replace(BLACKWELL, uuid="GPU-5080")), visible=visible)
    assert [gpu.name for gpu in machine.seen] == names


@pytest.mark.parametrize(
    ("gigabytes", "name"),
    [
        *((6.4, "memory-constrained"), (8.585, "memory-constrained"), (10.7, "memory-constrained")),
        *((12.9, "gpu-12gb"), (17.1, "high-throughput"), (25.8, "gpu-24gb"), (51.5, "gpu-24gb")),
        *((85.5, "gpu-80gb"), (150.7, "gpu-h200")),
    ],
)
def test_each_size_of_gpu_has_its_profile(gigabytes, name):
    chosen, cap = fitting_profile(gigabytes)
    assert (chosen, cap and round(cap, 2)) == (name, 5.76 if gigabytes < 7 else None)


@pytest.mark.parametrize(
    ("machine", "steps", "says"),
    [
        (MACHINE, {"segment"}, "--profile memory-constrained`"),
        (
            with_gpu(replace(CARD, total_gb=6.4, free_gb=6.2)),
            {"segment"},
            "--profile memory-constrained --vram-cap 5.8`",
        ),
        (with_gpu(replace(CARD, total_gb=4.3, free_gb=3.4)), {"segment"}, "--vram-cap 3.1`"),
        (replace(MACHINE, gpus=(CARD, BLACKWELL)), {"segment"}, "--profile memory-constrained`"),
        (with_gpu(replace(BLACKWELL, parts=(CARD, CARD))), {"segment"}, "--profile memory-constrained`"),
        (MachineFacts(silence="Driver Not Loaded"), {"segment"}, "nothing uses it"),
        (MACHINE, {"lighting"}, None),
        (with_gpu(replace(CARD, total_gb=2.1)), {"segment"}, None),
        (replace(MACHINE, visible=""), {"segment"}, None),
        (MachineFacts(), {"segment"}, None),
    ],
)
def test_a_gpu_that_no_step_uses_is_named_with_its_profile(machine, steps, says):
    found = judge_unused(machine, steps)
    assert [finding.code for finding in found] == ([] if says is None else [NOTE])
    assert all(says in finding.text for finding in found)


@pytest.mark.parametrize(("profile", "gigabytes"), [("memory-constrained", 7.0), ("high-throughput", 14.0)])
def test_needs_are_those_of_the_placed_steps(profile, gigabytes):
    choices = PlanOptions(settings=("faces.precision=bf16",))
    plan = make_plan(read_pipeline(None), read_profile(profile), choices, [ROOMY], check_weights=False)
    needs = needs_of(plan)
    assert needs.gb == pytest.approx(gigabytes, rel=0.1)
    assert set(needs.compiled) == {"categorize", "faces", "segment", "instances", "inpaint"}
    assert needs.bf16 == ("faces",)
    on_cpu = make_plan(read_pipeline(None), read_profile("cpu-only"), PlanOptions(), [ROOMY], check_weights=False)
    assert needs_of(on_cpu) is None
