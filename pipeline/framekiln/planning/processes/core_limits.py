"""Numbers of processes lowered to fit a machine with fewer cores.

A profile may be made for more cores, and Ray waits for ever for cores that do not exist. So first numbers of workers
are lowered, then models share processes, then each process books fewer cores. A missing GPU stays an error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from framekiln.contract import Placement
from framekiln.contract.errors import ConfigError
from framekiln.planning.lineage import with_drops
from framekiln.planning.processes.placement import AUTO, later_demand, process_demands
from framekiln.planning.processes.resources import Node, fits
from framekiln.planning.processes.waves import Wave, order_by_process, process_name
from framekiln.planning.step import Step

SHARED = "shared-"
"""Prefix, before the device's name, of groups of models that share a process because cores are few."""
LEAST_CPUS = 0.5  # cores of a process: sharing a core is slower, but a cloud machine with a GPU may have only two


def fit_wave(wave: Wave, nodes: Sequence[Node]) -> Wave:
    """Return a wave with numbers that fit the nodes; unchanged if none do, or if they fit already."""
    fewer = [_take_workers(candidate, nodes) for candidate in (wave, _share_processes(wave))]
    for least in (None, 1.0, LEAST_CPUS):
        for candidate in fewer:
            smaller = candidate if least is None else _halve_cpus(candidate, nodes, least)
            if _fits(smaller, nodes):
                return smaller
    return wave


def fit_later(step: Step, nodes: Sequence[Node]) -> Step:
    """Return a second-pass step with numbers that fit the nodes; unchanged if none do."""
    smaller = step
    while not fits(later_demand(smaller), nodes):
        place = smaller.placement
        if place.workers > 1:
            smaller = smaller.placed(workers=place.workers - 1)
        elif place.cpus > LEAST_CPUS:
            smaller = smaller.placed(cpus=max(LEAST_CPUS, place.cpus / 2))
        else:
            return step
    return smaller


def describe_limits(asked: Mapping[str, Placement], steps: Iterable[Step], cores: float) -> str:
    """Return a sentence with the numbers lowered for lack of cores; empty if none were.

    `asked`: placements by step, from the profile and the command line.
    """
    lowered, sharing = [], []
    for step in steps:
        before, now = asked[step.name], step.placement
        if before.workers not in (AUTO, now.workers) and now.workers < before.workers:
            lowered.append(f"{step.name} {now.workers} worker{'s' * (now.workers > 1)} instead of {before.workers}")
        if now.cpus < before.cpus:
            lowered.append(f"{step.name} {now.cpus:g} CPU instead of {before.cpus:g}")
        if now.group != before.group and now.group.startswith(SHARED):
            sharing.append(step.name)
    parts = [", ".join(lowered), f"{', '.join(sharing)} share a process" if sharing else ""]
    return f"To fit {cores:g} cores: {'; '.join(part for part in parts if part)}." if any(parts) else ""


def _fits(wave: Wave, nodes: Sequence[Node]) -> bool:
    return fits(process_demands(wave.decode, wave.own), nodes)


def _take_workers(wave: Wave, nodes: Sequence[Node]) -> Wave:
    """Return the wave with workers taken from its models, most workers first, until it fits or each has one."""
    while not _fits(wave, nodes):
        models = [step for step in wave.steps if step.keeps_model]
        most = max(models, key=lambda step: step.placement.workers, default=None)
        if most is None or most.placement.workers == 1:
            break
        fewer = {step.name: most.placement.workers - 1 for step in models if process_name(step) == process_name(most)}
        steps = tuple(step.placed(workers=fewer.get(step.name, step.placement.workers)) for step in wave.steps)
        wave = replace(wave, steps=steps)
    return wave


def _halve_cpus(wave: Wave, nodes: Sequence[Node], least: float) -> Wave:
    """Return the wave with halved cores of its largest processes, until it fits or all have the minimum."""
    while not _fits(wave, nodes):
        largest = max([wave.decode.cpus, *(step.placement.cpus for step in wave.own)])
        if largest <= least:
            break
        half = max(least, largest / 2)
        steps = tuple(step.placed(cpus=min(step.placement.cpus, half)) for step in wave.steps)
        wave = replace(wave, steps=steps, decode=replace(wave.decode, cpus=min(wave.decode.cpus, half)))
    return wave


def _share_processes(wave: Wave) -> Wave:
    """Return a wave with one process for the models of each device; unchanged if a step must run between them."""
    models = [step.placement for step in wave.steps if step.keeps_model]
    most = {place.device: max(m.in_flight for m in models if m.device == place.device) for place in models}
    steps = [
        step.placed(group=f"{SHARED}{place.device}", workers=1, in_flight=most[place.device])
        if step.keeps_model
        else step
        for step, place in ((step, step.placement) for step in wave.steps)
    ]
    kept = [name for name in wave.decode.columns if name not in wave.decode.drops]
    try:
        return replace(wave, steps=with_drops(order_by_process(steps), kept))
    except ConfigError:
        return wave
