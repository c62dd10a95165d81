"""The machines a run has, and whether its workers fit them.

Ray waits for ever for a place that does not exist, so this is asked first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.errors import ResourceError
from pipeline.nvml import handles, library, text

SLACK = 1e-6


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine's schedulable resources."""

    name: str
    cpus: float
    gpus: float = 0.0


ROOMY = Node(name="any machine", cpus=1e6, gpus=1e6)
"""Where everything fits: for questions about what is computed, not where."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One process that must find a place."""

    step: str
    cpus: float
    gpus: float = 0.0
    copies: int = 1


def this_machine() -> Node:
    """The machine we run on, without starting anything.

    At least two CPUs are offered to Ray, since a model's process and a loader must be able to run at the same time.
    """
    return Node(name="this machine", cpus=float(max(2, len(os.sched_getaffinity(0)))), gpus=float(_gpu_count()))


def gpu_names() -> list[str]:
    """This machine's cards, as their driver calls them; none where no driver answers."""
    nvml = library()
    try:
        return [text(nvml.nvmlDeviceGetName(handle)) for handle in handles(nvml)]
    except Exception:  # a card that fell off the bus answers nothing
        return []


def _gpu_count() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len(gpu_names())


def place(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Put every process on a node by first fit, those that want a GPU first.

    Raises:
        ResourceError: some process finds no place; the message names the step, what it wants and what was left.
    """
    free = [replace(node) for node in nodes]
    placed: list[str] = []
    for demand in sorted(demands, key=lambda d: (-d.gpus, -d.cpus)):
        for copy in range(demand.copies):
            spot = next((i for i, node in enumerate(free) if _fits(demand, node)), None)
            if spot is None:
                raise ResourceError(_complaint(demand, copy, free, nodes, placed))
            free[spot] = replace(free[spot], cpus=free[spot].cpus - demand.cpus, gpus=free[spot].gpus - demand.gpus)
        placed.append(f"{demand.copies} x {demand.step}")


def _fits(demand: Demand, node: Node) -> bool:
    return demand.cpus <= node.cpus + SLACK and demand.gpus <= node.gpus + SLACK


def _complaint(demand: Demand, copy: int, free: Sequence[Node], nodes: Sequence[Node], placed: Sequence[str]) -> str:
    want = f"{demand.cpus:g} CPU" + (f" and {demand.gpus:g} GPU" if demand.gpus else "")
    have = "; ".join(f"{node.name} has {node.cpus:g} CPU, {node.gpus:g} GPU" for node in nodes[:4])
    if demand.gpus and not any(node.gpus for node in nodes):
        missing = f"Step {demand.step!r} wants {want} for each worker, and there is no GPU ({have})"
        return f"{missing}; use --profile cpu-only or --device cpu."
    left = max(node.cpus for node in free)
    after = f" after placing {', '.join(placed)}" if placed else ""
    missing = f"worker {copy + 1} of {demand.copies} wants {want}, but at most {left:g} CPU on one node is free{after}"
    fix = f"lower `workers` or `cpus` in the profile, or --set {demand.step}.workers=1"
    return f"Step {demand.step!r} does not fit: {missing} ({have}); {fix}."
