"""The pace of steps beside each other: by measurements, or before any by arithmetic.

Steps take turns on the GPU and in a process, and overlap otherwise. Before a measurement `plan` names the likely limit
of a run in a line. `manifests/row_seconds.yaml` has the seconds of a photo. An H200's seconds are scaled by the better
of two ratios of data sheets, arithmetic and bandwidth. So a GPU is never called too slow, and hides no other limit.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml
from numpy.typing import NDArray

from framekiln.contract.row_errors import DECODE
from framekiln.contract.shipped_files import shipped
from framekiln.contract.words import counted
from framekiln.lab.predict.gpu_specs import GpuSpecs, find_gpu, read_gpus
from framekiln.lab.predict.source_run import SourceStep
from framekiln.planning.machine import USABLE
from framekiln.planning.plan import Plan
from framekiln.planning.processes.resources import Node
from framekiln.planning.processes.waves import Wave

Draws = NDArray[np.float64]
"""1 + n values: the estimate, and each draw of a bootstrap."""
QUANTILES = (0.05, 0.95)  # quantiles of draws: the ends of an interval
GPU = "the GPU"
OTHER_END = {"central": "central", "low": "high", "high": "low"}  # more seconds: a lower rate
HOST = "the host's part of "  # prefix for the steps of a process with a model on the GPU


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and its plausible interval: rows a second, or seconds a row."""

    central: float
    low: float
    high: float

    @classmethod
    def each(cls, value: Callable[[str], float]) -> "Interval":
        """Return the interval of a function of `central`, `low` and `high`."""
        return cls(central=value("central"), low=value("low"), high=value("high"))

    @classmethod
    def of(cls, draws: Draws) -> "Interval":
        """Return the estimate with its quantiles."""
        low, high = np.quantile(draws[1:], QUANTILES)
        return cls(central=float(draws[0]), low=float(low), high=float(high))

    def by(self, factor: float) -> "Interval":
        return Interval.each(lambda end: getattr(self, end) * factor)


def pace(steps: Sequence[SourceStep], on_gpu: Mapping[str, float], gpus: int = 1) -> tuple[float, str]:
    """Return the rate of simultaneous steps, and the limit: seconds a row `on_gpu` add up, all others overlap."""
    rates = {GPU: gpus / max(sum(on_gpu.values()), 1e-9)} if on_gpu else {}
    for process in dict.fromkeys(step.process for step in steps):
        members = [step for step in steps if step.process == process]
        taken = sum(
            each.sample.host_s + (on_gpu[each.name] if each.on_gpu else each.sample.model_s) for each in members
        )
        name = "+".join(step.name for step in members)
        at_once = members[0].workers * members[0].in_flight
        rates[HOST + name if any(step.on_gpu for step in members) else name] = at_once / max(taken, 1e-9)
    limit = min(rates, key=lambda name: rates[name])
    return rates[limit], limit


RowSeconds = Mapping[str, Mapping[str, float]]
"""Seconds of a photo by step: on a `core` with a small model, on an `h200` with the large one."""


def read_row_seconds() -> RowSeconds:
    """Return the shipped seconds."""
    seconds: RowSeconds = yaml.safe_load(shipped("row_seconds.yaml").read_text(encoding="utf-8"))
    return seconds


def describe_pace(
    plan: Plan, nodes: Sequence[Node], device: str, gigabytes: float | None, profile_gb: float | None
) -> str:
    """Return sentences on what sets the pace; empty if no step with a model is known.

    The cores are those of the nodes. The GPU is the `device` that a driver names, with its memory, else the fastest
    within the profile's limit.
    """
    known, models = read_row_seconds(), [step for step in plan.first if step.keeps_model]
    if not known.keys() & {step.name for step in models}:
        return ""
    gpu, factor = choose_gpu(device, gigabytes, profile_gb or 0.0)
    cores = sum(node.cpus for node in nodes)
    waves = [wave_limits(wave, known, factor, cores) for wave in plan.waves]
    slowest = [max(limits, key=lambda name: limits[name]) for limits in waves]
    whole = sum(max(limits.values()) for limits in waves)
    has_gpu = any(step.placement.device != "cpu" for step in models)
    machine = f"{f'at best, {gpu} with ' if has_gpu else 'on '}{counted(round(cores), 'core')}"
    seconds = sum(map(Counter, waves), Counter[str]())
    others = [f"{name} {_to_rate(taken)}" for name, taken in seconds.most_common() if name not in slowest]
    unknown = [step.name for step in models if step.name not in known]
    pace = (
        f"{', then '.join(dict.fromkeys(slowest))} sets the pace, {_to_rate(whole)} photos of 1 MP a second {machine}."
    )
    rest = [f"Alone: {', '.join(others)}."] * bool(others) + [f"Not counted: {', '.join(unknown)}."] * bool(unknown)
    if has_gpu and device and find_gpu(device, read_gpus()) is None:
        rest.append(f"{device} is not in manifests/gpus.yaml: {gpu}, which the profile is for, stands in its place.")
    return " ".join(["By arithmetic, not measured:", pace, *rest])


def _to_rate(seconds: float) -> str:
    return f"{1 / seconds:.2g}" if seconds > 0.01 else f"{1 / seconds:.0f}"


def choose_gpu(device: str, gigabytes: float | None, profile_gb: float) -> tuple[str, float]:
    """Return a GPU's name, and its seconds for one second of an H200."""
    gpus = read_gpus()
    like, own = gpus["h200"], find_gpu(device, gpus, gigabytes)

    def factor(gpu: GpuSpecs) -> float:
        return min(like.tflops("auto") / gpu.tflops("auto"), like.bandwidth_gb_s / gpu.bandwidth_gb_s)

    def rank(name: str) -> tuple[bool, bool, float, float]:
        gpu = gpus[name]
        return gpu != own, USABLE * gpu.driver_gb < profile_gb, gpu.memory_gb, factor(gpu)

    name = min(gpus, key=rank)
    return name, factor(gpus[name])


def wave_limits(wave: Wave, known: RowSeconds, factor: float, cores: float) -> dict[str, float]:
    """Return the seconds of a photo on the GPUs, on all cores and in each process, by the step that takes most."""
    limits, on_gpu, on_cores = dict[str, float](), Counter[str](), Counter[str]()
    for place, group in enumerate(wave.groups()):
        first = group[0].placement if place and group else None
        names = [*([] if place else [DECODE]), *(step.name for step in group if not step.recalled)]
        if first and first.device != "cpu":
            on_gpu.update({name: known[name]["h200"] * factor for name in names if "h200" in known.get(name, {})})
        elif taken := {name: known[name]["core"] for name in names if name in known}:
            at_once = min(cores, first.workers * first.in_flight if first else wave.decode.workers)
            limits[max(taken, key=lambda name: taken[name])] = sum(taken.values()) / at_once
            on_cores.update(taken)
    if len(limits) > 1:
        limits |= {f"the CPU ({name})": sum(on_cores.values()) / cores for name, _ in on_cores.most_common(1)}
    return limits | {f"the GPU ({name})": sum(on_gpu.values()) / wave.gpus for name, _ in on_gpu.most_common(1)}
