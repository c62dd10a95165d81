"""The check of this machine before a run: whether torch can use its GPUs, and whether the plan fits them.

Each problem is one sentence with the command that fixes it. Problems with a code stop a run. With the others it
continues, slower or with smaller batches. Machines of a cluster are checked by their own workers.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from framekiln.contract.errors import ResourceError
from framekiln.device.machine_facts import Gpu, MachineFacts, TorchBuild, missing_build_tools, read_machine, read_torch
from framekiln.device.model import BF16_CAPABILITY
from framekiln.device.nvml import HANGS
from framekiln.planning.manifest import profile_names, read_profile
from framekiln.planning.plan import Plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.placement import check_capacity
from framekiln.planning.processes.resources import Node

_DRIVERS = {12: 525, 13: 580}  # first driver of each CUDA version: NVIDIA's "CUDA compatibility", minor versions
_NEWEST = max(_DRIVERS.values())
_LEGACY, _LEGACY_CUDA = "cu126", 12  # torch for GPUs from Maxwell to Hopper, drivers from 525 (pytorch#190355)
_LEGACY_CAPABILITIES = (5, 0), (9, 0)
USABLE = 0.9  # share of a GPU's memory, as in `GpuSettings`; the display and fragmentation take the rest
_LEAST_GB = 3.0  # with less, no shipped profile's models fit: weights 1.9 GB, context 0.4 GB, one packet 0.4 GB


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The demands of a plan on each GPU."""

    gb: float  # memory of its processes at one time
    compiled: tuple[str, ...] = ()  # steps compiled by torch
    bf16: tuple[str, ...] = ()  # steps that request it by name


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of the machine, in a sentence."""

    text: str
    code: str = ""  # code of the error; empty if a run continues


def examine(
    plan: Plan, options: PlanOptions, nodes: Sequence[Node], *, here: bool
) -> tuple[ResourceError | None, Sequence[str]]:
    """Check the machines of a plan: this one's GPUs if it runs `here`, and whether all workers fit.

    Return the error of a refused run, if any, and notes for a run that continues.
    """
    findings = _find_problems(plan, options) if here else []
    refusals = [ResourceError(one.text, code=one.code) for one in findings if one.code]
    notes = [one.text for one in findings if not one.code]
    if options.vram_cap is not None and needs_of(plan) is None:
        notes.append("--vram-cap does nothing: no step runs on a GPU.")
    if not refusals:
        try:
            check_capacity(plan.waves, plan.second, nodes)
        except ResourceError as error:
            refusals.append(error)
    return next(iter(refusals), None), notes


def _find_problems(plan: Plan, options: PlanOptions) -> list[Problem]:
    machine, needs = read_machine(), needs_of(plan)
    if needs is not None:
        torch = read_torch() if machine.seen else None
        return judge(machine, torch, missing_build_tools() if needs.compiled else (), needs)
    if options.device == "cpu":
        return []
    return judge_unused(machine, {*plan.absent, *(step.name for step in plan.steps)})


def needs_of(plan: Plan) -> Needs | None:
    """Return a plan's demands on each GPU; None if no step runs on a GPU."""
    steps = [step for step in plan.steps if step.placement.device != "cpu"]
    if not steps:
        return None
    together = [sum(step.placement.vram_gb for step in wave.own) for wave in plan.waves]
    alone = [step.placement.vram_gb for step in plan.second]
    return Needs(
        gb=max((*together, *alone)),
        compiled=tuple(step.name for step in steps if step.placement.compile),
        bf16=tuple(step.name for step in steps if step.placement.precision == "bf16"),
    )


def judge(machine: MachineFacts, torch: TorchBuild | None, missing: Sequence[str], needs: Needs) -> list[Problem]:
    """Return a machine's problems for a plan with steps on a GPU, the first one to fix first.

    `missing`: tools that Triton lacks. `torch`: None if no GPU is seen.
    """
    if machine.silence:
        return [Problem(text=_explain_silence(machine.silence), code="FK-GPU-DRIVER")]
    if machine.gpus and not machine.seen:
        hidden = (
            f"CUDA_VISIBLE_DEVICES={machine.visible!r} hides {_name(machine.gpus[0])}, which steps of this plan use"
        )
        mend = "`unset CUDA_VISIBLE_DEVICES`, or take `--profile cpu-only`"
        return [Problem(text=f"{hidden}: {mend}.", code="FK-GPU-HIDDEN")]
    if torch is None:
        return []
    found = [
        _judge_torch(machine, torch),
        *map(_judge_parts, machine.seen),
        _judge_memory(machine.seen, needs),
        _judge_build_tools(missing, needs.compiled),
        _judge_bf16(machine.seen, needs.bf16),
    ]
    return [finding for finding in found if finding is not None]


def judge_unused(machine: MachineFacts, steps: set[str]) -> list[Problem]:
    """Return a line on an unused GPU with its shipped profile; empty if no step could use it."""
    if machine.silence:
        return [Problem(text=f"{_explain_silence(machine.silence)[:-1]}; until then nothing uses it.")]
    gpus = [gpu for gpu in _list_visible(machine.seen) if gpu.total_gb >= _LEAST_GB]
    if not gpus:
        return []
    smallest = min(gpus, key=lambda gpu: gpu.total_gb)
    name, is_capped = fitting_profile(smallest.total_gb)
    if not any(read_profile(name).steps.get(step, {}).get("device") == "cuda" for step in steps):
        return []
    take = f"--profile {name} {_cap(smallest)}" if is_capped else f"--profile {name}"
    return [Problem(text=f"{_name(smallest)} is unused: `{take}` is for it.")]


def fitting_profile(gigabytes: float) -> tuple[str, float | None]:
    """Return the largest shipped profile with a limit within nine tenths of the driver's GPU memory.

    If none fits, return the smallest one with the `--vram-cap` that it needs.
    """
    limits = sorted((limit, name) for name in profile_names() if (limit := read_profile(name).gpu_vram_gb))
    fitting = [name for limit, name in limits if limit <= USABLE * gigabytes]
    return (fitting[-1], None) if fitting else (limits[0][1], USABLE * gigabytes)


def _judge_torch(machine: MachineFacts, torch: TorchBuild) -> Problem | None:
    """Return why torch cannot use the GPUs: the first reason, which explains the others."""
    if torch.cuda is None:
        problem = f"torch {torch.version} is a build without CUDA, so nothing can use {machine.seen[0].name}"
        return Problem(text=f"{problem}: `{_install(torch)}`.", code="FK-GPU-TORCH")
    if machine.driver_cuda is not None and machine.driver_cuda[0] < _read_major(torch.cuda):
        return _explain_old_driver(machine, torch, machine.driver_cuda)
    for gpu in machine.seen:
        if gpu.capability and torch.architectures and not _has_code(gpu.capability, torch.architectures):
            mend = _install(torch, legacy=True) if _fits_legacy(gpu) else _install(torch).partition("==")[0]
            problem = (
                f"torch {torch.version} has no code for {gpu.name} (capability {_join_capability(gpu.capability)})"
            )
            return Problem(text=f"{problem}: install a build that has, by `{mend}`.", code="FK-GPU-TORCH")
    if torch.error:
        problem = f"torch cannot use {machine.seen[0].name} ({torch.error.rstrip('.')})"
        return Problem(text=f"{problem}: restart the machine if `nvidia-smi` fails too.", code="FK-GPU-UNUSABLE")
    return None


def _explain_old_driver(machine: MachineFacts, torch: TorchBuild, newest: tuple[int, int]) -> Problem:
    least = _DRIVERS.get(_read_major(torch.cuda or ""), _NEWEST)
    both = f"is for CUDA up to {_join_capability(newest)} and torch {torch.version} for {torch.cuda}"
    mend = f"install a driver from {least} by `sudo apt-get install nvidia-driver-{least}-open` and restart"
    if machine.wsl:
        mend = f"install NVIDIA's driver for Windows from {least} there, and `wsl --shutdown`"
    if newest[0] == _LEGACY_CUDA and _fits_legacy(machine.seen[0]):
        mend += f", or torch for this driver by `{_install(torch, legacy=True)}`"
    return Problem(text=f"The driver {machine.driver} {both}: {mend}.", code="FK-GPU-DRIVER")


def _install(torch: TorchBuild, *, legacy: bool = False) -> str:
    """Return the command for another build of the same version, which pip would consider installed."""
    command = f"python -m pip uninstall -y torch && python -m pip install torch=={torch.version.partition('+')[0]}"
    return f"{command} --index-url https://download.pytorch.org/whl/{_LEGACY}" if legacy else command


def _judge_parts(gpu: Gpu) -> Problem | None:
    """Return MIG's effect on a GPU: without parts it is unusable; of several, a process gets the first."""
    if gpu.parts is None:
        return None
    if not gpu.parts:
        text = f"MIG is on for {gpu.name} but it has no parts: turn MIG off by `sudo nvidia-smi -mig 0`."
        return Problem(text=text, code="FK-GPU-MIG")
    part = gpu.parts[0]
    problem = f"MIG divides {gpu.name}, and a process gets one part, of {part.total_gb:.1f} GB"
    return Problem(text=f"{problem}: choose it by `export CUDA_VISIBLE_DEVICES={part.uuid}`.")


def _list_visible(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that processes get: of a GPU divided by MIG, its first part."""
    return [part for gpu in gpus for part in (gpu.parts or (gpu,))[:1]]


def _judge_memory(gpus: Sequence[Gpu], needs: Needs) -> Problem | None:
    """Return which GPU has less memory than the plan needs: it is small, or others hold some."""
    gpu = min(_list_visible(gpus), key=lambda gpu: gpu.free_gb)
    if gpu.free_gb >= needs.gb:
        return None
    start, cap = f"The plan takes up to {needs.gb:.3g} GB of a GPU", _cap(gpu)
    if needs.gb > gpu.total_gb and gpu.total_gb < _LEAST_GB:
        text = f"{start} and {_name(gpu)} is too small for any shipped profile: take `--profile cpu-only`."
        return Problem(text=text, code="FK-GPU-TOO-SMALL")
    if needs.gb > gpu.total_gb:
        name, is_capped = fitting_profile(gpu.total_gb)
        take = f"`--profile {name} {cap}`" if is_capped else f"`--profile {name}`, or add `{cap}`"
        return Problem(text=f"{start} and {_name(gpu)} has less: take {take}.")
    problem = f"{start}, and others hold {gpu.total_gb - gpu.free_gb:.1f} GB of {_name(gpu)}"
    or_less = f", or add `{cap}`" if gpu.free_gb >= _LEAST_GB else ""
    return Problem(text=f"{problem}: end them, which `nvidia-smi` lists{or_less}.")


def _cap(gpu: Gpu) -> str:
    """Return the option for a smaller limit: the usable share of a GPU, or of what others leave."""
    usable = USABLE * gpu.total_gb
    return f"--vram-cap {usable if usable <= gpu.free_gb else USABLE * gpu.free_gb:.1f}"


def _judge_bf16(gpus: Sequence[Gpu], steps: Sequence[str]) -> Problem | None:
    old = next((gpu for gpu in gpus if (gpu.capability or BF16_CAPABILITY) < BF16_CAPABILITY), None)
    if old is None or not steps:
        return None
    problem = f"{old.name} only emulates bf16, which is the `precision` of {', '.join(steps)}"
    return Problem(text=f"{problem}: `{' '.join(f'--set {name}.precision=fp16' for name in steps)}`.")


def _explain_silence(words: str) -> str:
    problem = f"This machine has an NVIDIA GPU whose driver does not respond ({words.rstrip('.')})"
    if "mismatch" in words or words == HANGS:  # the driver was updated under a running kernel, or waits for its GPU
        return f"{problem}: restart it by `sudo reboot`."
    install = f"install one by `sudo apt-get install nvidia-driver-{_NEWEST}-open` and restart"
    return f"{problem}: {install}; start a container with `--gpus all`."


def _judge_build_tools(missing: Sequence[str], steps: Sequence[str]) -> Problem | None:
    if not (missing and steps):
        return None
    packages = {"gcc": "gcc", "Python.h": f"python{sys.version_info.major}.{sys.version_info.minor}-dev"}
    wanted = [packages[name] for name in missing if name in packages]
    mend = [f"sudo apt-get install {' '.join(wanted)}"] if wanted else []
    mend += ["python -m pip install triton"] if "triton" in missing else []
    lacks = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    problem = f"{', '.join(steps)} will run uncompiled and slower, unless compiled here before, since {lacks}"
    return Problem(text=f"{problem}: `{' && '.join(mend)}`.")


def _has_code(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Return whether a build supports a capability: by code of its major version, or by PTX of an older one.

    >>> _has_code((8, 9), ["sm_80", "sm_120"]), _has_code((7, 0), ["sm_75"]), _has_code((12, 1), ["compute_120"])
    (True, False, True)
    """
    for name in architectures:
        kind, _, digits = name.partition("_")
        number = int("".join(sign for sign in digits if sign.isdecimal()) or 0)
        other = divmod(number, 10)
        if other <= capability and (kind == "compute" or other[0] == capability[0]):
            return True
    return False


def _fits_legacy(gpu: Gpu) -> bool:
    least, most = _LEGACY_CAPABILITIES
    return gpu.capability is not None and least <= gpu.capability <= most


def _read_major(version: str) -> int:
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0


def _join_capability(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _name(gpu: Gpu) -> str:
    return f"{gpu.name} ({gpu.total_gb:.1f} GB)"
