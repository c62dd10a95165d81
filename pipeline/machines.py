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
    if (refused := _first_refused(demands, nodes)) is not None:
        raise ResourceError(_complaint(refused, demands, nodes))


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """A process that found no place, and what was placed before it."""

    demand: Demand
    copy: int  # how many of its kind found one
    free: Sequence[Node]
    placed: Sequence[Demand]


def _first_refused(demands: Sequence[Demand], nodes: Sequence[Node]) -> _Refused | None:
    free = [replace(node) for node in nodes]
    placed: list[Demand] = []
    for demand in sorted(demands, key=lambda d: (-d.gpus, -d.cpus)):
        for copy in range(demand.copies):
            spot = next((i for i, node in enumerate(free) if _fits(demand, node)), None)
            if spot is None:
                return _Refused(demand=demand, copy=copy, free=free, placed=placed)
            free[spot] = replace(free[spot], cpus=free[spot].cpus - demand.cpus, gpus=free[spot].gpus - demand.gpus)
        placed.append(demand)
    return None


def _fits(demand: Demand, node: Node) -> bool:
    return demand.cpus <= node.cpus + SLACK and demand.gpus <= node.gpus + SLACK


def _complaint(refused: _Refused, demands: Sequence[Demand], nodes: Sequence[Node]) -> str:
    demand = refused.demand
    want = f"{demand.cpus:g} CPU" + (f" and {demand.gpus:g} GPU" if demand.gpus else "")
    have = "; ".join(f"{node.name} has {node.cpus:g} CPU, {node.gpus:g} GPU" for node in nodes[:4])
    if demand.gpus and not any(node.gpus for node in nodes):
        missing = f"Step {demand.step!r} wants {want} for each worker, and there is no GPU ({have})"
        return f"{missing}; use --profile cpu-only or --device cpu."
    most = max(refused.free, key=lambda node: (node.gpus, node.cpus) if demand.gpus else (node.cpus, node.gpus))
    left = f"{most.cpus:g} CPU" + (f", {most.gpus:g} GPU" if demand.gpus else "")
    names = ", ".join(f"{one.copies} x {one.step}" for one in refused.placed)
    after = f" after placing {names}" if names else ""
    which = f"worker {refused.copy + 1} of {demand.copies} wants {want}, but at most {left} on one node is free{after}"
    return f"Step {demand.step!r} does not fit: {which} ({have}); {_fix(refused, demands, nodes)}."


def _fix(refused: _Refused, demands: Sequence[Demand], nodes: Sequence[Node]) -> str:
    """What makes all of them fit: fewer workers of one step, where that does, else what is asked for each."""
    demand = refused.demand
    for one in (demand, *reversed(refused.placed)):
        if workers := _most_workers(one, demands, nodes):
            words = " ".join(f"--set {name}.workers={workers}" for name in one.step.split("+"))
            return f"give {one.step} fewer workers in the profile, or {words}"
    what = "`cpus` or `gpus`" if demand.gpus else "`cpus`"
    if not any(_fits(demand, node) for node in nodes):
        return f"lower {what} of {demand.step} in the profile"
    names = ", ".join(one.step for one in (*refused.placed, demand))
    return f"lower `workers` or {what} of {names} in the profile, or name fewer steps with --stages"


def _most_workers(one: Demand, demands: Sequence[Demand], nodes: Sequence[Node]) -> int:
    """The most workers of one step with which all demands fit; 0 where one is too many, too."""
    low, high = 0, one.copies - 1
    while low < high:
        middle = (low + high + 1) // 2
        fewer = [replace(other, copies=middle) if other is one else other for other in demands]
        low, high = (middle, high) if _first_refused(fewer, nodes) is None else (low, middle - 1)
    return low
