"""Which first-pass steps share a process.

Steps without a model that ask for the same numbers do, with the loaders too where these are theirs, so that pixels are
not copied between them. Steps that a profile puts into one `group` do, so that several models share one GPU context:
that saves some 0.4 GB of an 8 GB card for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.errors import ConfigError
from pipeline.stage import Placement
from pipeline.step import DecodeStep, Step

_SAME = ("device", "workers")


def process_of(step: Step) -> str:
    """What names the process of a step that keeps a model: its group, else itself."""
    return f"group {step.placement.group}" if step.placement.group else step.name


def shared(steps: Sequence[Step]) -> Placement:
    """What one process that hosts these steps asks for: they take turns on its cores, and are in memory together."""
    places = [step.placement for step in steps]
    return replace(
        places[0],
        cpus=max(place.cpus for place in places),
        gpus=min(1.0, sum(place.gpus for place in places)),
        vram_gb=sum(place.vram_gb for place in places),
    )


def gathered(steps: Sequence[Step]) -> list[Step]:
    """First-pass steps with each group's members as neighbours; else tasks before models, and as they came.

    Raises:
        ConfigError: a step outside a group reads one of its members and is read by another, or members differ in what
            a process has one of.
    """
    units: dict[str, list[Step]] = {}
    for step in steps:
        units.setdefault(process_of(step), []).append(step)
    _refuse_mixed(units)
    units = dict(sorted(units.items(), key=lambda unit: any(step.keeps_model for step in unit[1])))  # tasks first
    result: list[Step] = []
    while units:
        done = {step.name for step in result}
        ready = next((key for key, members in units.items() if _needs(members) <= done), None)
        if ready is None:
            raise ConfigError(_circle(units, done))
        result += units.pop(ready)
    return result


def processes(decode: DecodeStep, steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """First-pass steps by the process they share; the first one decodes, and may do nothing else."""
    groups: list[list[Step]] = [[]]
    last: object = (decode.cpus, decode.workers)
    for step in steps:
        key = process_of(step) if step.keeps_model else (step.placement.cpus, step.placement.workers)
        if key == last:
            groups[-1].append(step)
        else:
            groups.append([step])
        last = key
    return [tuple(group) for group in groups]


def _needs(members: Sequence[Step]) -> set[str]:
    """Steps outside that these depend on."""
    return {name for step in members for name in step.depends} - {step.name for step in members}


def _refuse_mixed(units: dict[str, list[Step]]) -> None:
    for key, members in units.items():
        for name in _SAME:
            values = {step.name: getattr(step.placement, name) for step in members}
            if len(set(values.values())) > 1:
                said = ", ".join(f"{step} {value}" for step, value in values.items())
                raise ConfigError(f"The steps of {key} share a process, but differ in {name!r} ({said}); make it one.")


def _circle(units: dict[str, list[Step]], done: set[str]) -> str:
    key = next(key for key, members in units.items() if len(members) > 1)
    between = sorted(_needs(units[key]) - done)
    waiting = f"{', '.join(map(repr, between))} must run between its members"
    return f"The steps of {key} cannot share a process: {waiting}; put it into the group too, or split the group."
