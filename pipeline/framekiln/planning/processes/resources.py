"""The machines of a run, and the check that its workers fit them.

Ray waits without end for resources that do not exist, so this is checked first.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from framekiln.contract.errors import ResourceError
from framekiln.device.cores import usable_cores
from framekiln.device.nvml import library, visible_handles

SLACK = 1e-6


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine's schedulable resources."""

    name: str
    cpus: float
    gpus: float = 0.0


ROOMY = Node(name="any machine", cpus=1e6, gpus=1e3)
"""A machine that fits everything: for plans that are only read."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Processes of one kind that need a node."""

    step: str
    cpus: float
    gpus: float = 0.0
    copies: int = 1


def this_machine() -> Node:
    """Return this machine's resources; nothing is started.

    It counts at least two CPUs: a model's process and a decode worker must run at the same time.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = gpu_names() if visible is None else [part for part in visible.split(",") if part.strip() not in ("", "-1")]
    return Node(name="this machine", cpus=float(max(2, usable_cores())), gpus=float(len(gpus)))


def gpu_names() -> list[str]:
    """Return the driver's names of the GPUs that this process may use; empty without a working driver."""
    nvml = library()
    try:
        return [nvml.nvmlDeviceGetName(handle) for handle in visible_handles(nvml)]
    except Exception:  # a GPU that fell off the bus raises
        return []


def fits(demands: Sequence[Demand], nodes: Sequence[Node]) -> bool:
    """Return whether all processes fit the nodes; see `place`."""
    try:
        place(demands, nodes)
    except ResourceError:
        return False
    return True


def place(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Check that all processes fit the nodes: first fit, GPU processes first.

    Raises ResourceError: a process does not fit. The message names its step, its need and the free resources.
    """
    free = [replace(node) for node in nodes]
    placed: list[Demand] = []
    for demand in sorted(demands, key=lambda d: (-d.gpus, -d.cpus)):
        left = demand.copies
        for i, node in enumerate(free):
            pairs = ((node.cpus, demand.cpus), (node.gpus, demand.gpus))
            count = min((int((room + SLACK) / need) for room, need in pairs if need), default=left)
            count = min(count, left)
            free[i] = replace(node, cpus=node.cpus - count * demand.cpus, gpus=node.gpus - count * demand.gpus)
            left -= count
        if left:
            raise _explain_refusal(demand, demand.copies - left, free, placed, nodes)
        placed.append(demand)


def _explain_refusal(
    demand: Demand, copies: int, free: Sequence[Node], placed: Sequence[Demand], nodes: Sequence[Node]
) -> ResourceError:
    """Return the error of a demand: after the `placed` demands only this number of `copies` fits.

    Fewer workers are no fix: their numbers were already lowered as far as this helps (`placement`).
    """
    need = f"{demand.cpus:g} CPU" + (f" and {demand.gpus:g} GPU" if demand.gpus else "")
    have = "; ".join(f"{node.name} has {node.cpus:g} CPU, {node.gpus:g} GPU" for node in nodes[:4])
    if demand.gpus and not any(node.gpus for node in nodes):
        return ResourceError(
            f"Step {demand.step!r} needs {need} for each worker, and there is no NVIDIA GPU ({have}); use "
            "--profile cpu-only or --device cpu, or see by `nvidia-smi` whether a GPU that is there has a driver.",
            code="FK-NO-GPU",
        )
    most = max(free, key=lambda node: (node.gpus, node.cpus) if demand.gpus else (node.cpus, node.gpus))
    left = f"{most.cpus:g} CPU" + (f", {most.gpus:g} GPU" if demand.gpus else "")
    names = ", ".join(f"{each.copies} x {each.step}" for each in placed)
    after = f" after placing {names}" if names else ""
    keys = "`cpus` or `gpus`" if demand.gpus else "`cpus`"
    steps = ", ".join(each.step for each in (*placed, demand))
    return ResourceError(
        f"Step {demand.step!r} does not fit: worker {copies + 1} of {demand.copies} needs {need}, but at most {left} "
        f"on one node is free{after} ({have}); lower {keys} of {steps} in the profile, or name fewer steps with "
        "--stages.",
        code="FK-WORKERS-DO-NOT-FIT",
    )
