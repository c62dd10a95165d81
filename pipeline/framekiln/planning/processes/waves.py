"""Waves of the first pass, and their processes: which steps run in one process, one after the other.

If a GPU does not hold all models at once, the first pass reads the media several times.

Each wave decodes again and runs some of the steps. Results of steps in earlier waves are read from their parts. Packets
are cut by the pixels that all steps request, so that they are the same in every wave. Columns that no step of a wave
reads count for the cut, but are not produced.

Steps without a model share one process if they request the same numbers; so does decoding. Then pixels are not copied
between them. Steps with the same `group` in the profile share one process, so that several models share a GPU context.
Each context saved frees some 0.4 GB of an 8 GB GPU.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from framekiln.contract.columns import is_pixel_column
from framekiln.contract.errors import ConfigError
from framekiln.contract.placement import Placement
from framekiln.planning.condition import Condition
from framekiln.planning.lineage import ordered, with_drops
from framekiln.planning.processes.resources import SLACK
from framekiln.planning.step import DecodeStep, Step

_SAME = ("device", "workers", "in_flight")  # a process has one value of each


@dataclass(frozen=True, kw_only=True)
class Wave:
    """One reading of the media."""

    decode: DecodeStep
    steps: tuple[Step, ...]  # in order; recalled ones were computed by earlier waves

    @property
    def own(self) -> tuple[Step, ...]:
        """The steps that this wave computes."""
        return tuple(step for step in self.steps if not step.recalled)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the parts that are complete after this wave, the decoder's first."""
        return (self.decode.folder, *(step.folder for step in self.steps))

    @property
    def gpus(self) -> int:
        """The GPUs that its processes book together, at least 1."""
        places = [combined_placement(group) for group in self.groups() if group and group[0].keeps_model]
        return max(1, math.ceil(sum(place.workers * place.gpus for place in places) - SLACK))

    def groups(self) -> list[tuple[Step, ...]]:
        """Return its steps by process; the first process decodes, and may do nothing else."""
        groups: list[list[Step]] = [[]]
        last: object = (self.decode.cpus, self.decode.workers)
        for step in self.steps:
            key = process_name(step) if step.keeps_model else (step.placement.cpus, step.placement.workers)
            if key == last:
                groups[-1].append(step)
            else:
                groups.append([step])
            last = key
        return [tuple(group) for group in groups]


def split_into_waves(decode: DecodeStep, steps: Sequence[Step], numbers: Mapping[str, int]) -> tuple[Wave, ...]:
    """Return first-pass steps, producers before readers, as waves numbered from 0 without gaps."""
    waves = []
    for number in range(max(numbers.values(), default=0) + 1):
        own = [step for step in steps if numbers[step.name] == number]
        waves.append(_make_wave(decode, [step for step in steps if numbers[step.name] < number], own))
    return tuple(waves)


def leave_finished(waves: Sequence[Wave], finished: Collection[str]) -> tuple[Wave, ...]:
    """Return waves without finished steps, so that no model is loaded and no pixels are made for them."""
    left = []
    for wave in waves:
        own = [step for step in wave.own if step.name not in finished]
        if own:
            left.append(_make_wave(wave.decode, [step for step in wave.steps if step not in own], own))
    return tuple(left) or tuple(waves)


def _make_wave(decode: DecodeStep, before: Sequence[Step], own: Sequence[Step]) -> Wave:
    """Return the wave that computes its `own` steps and reads the parts of the steps `before`."""
    read = {name for step in own for name in step.depends}
    place = {"device": "cpu", "cpus": decode.cpus, "workers": decode.workers, "gpus": 0.0, "group": ""}
    recalled = [replace(step.placed(**place), recalled=True) for step in before if step.name in read]
    inputs = {name for step in own for name in step.stage.received}
    kept = [name for name in decode.columns if name in inputs]
    drops = tuple(name for name in decode.columns if name not in inputs)
    steps = with_drops(order_by_process([*recalled, *own]), kept)  # decoding reads the parts of those before
    adopters = steps if any(step.others for step in own) else ()
    decode = replace(decode, drops=drops, narrowed=_find_narrowed(own), adopters=adopters)
    return Wave(decode=decode, steps=steps)


def _find_narrowed(steps: Sequence[Step]) -> dict[str, tuple[tuple[Condition, ...], ...]]:
    """Return the pixel columns that only some frames need, with the conditions of each reader."""
    found: dict[str, list[tuple[Condition, ...]]] = {}
    for step in steps:
        early = tuple(each for each in step.narrowing if each.rule is not None or each.sets)  # before pixels are made
        if step.stage.halo:
            early = ()  # it also reads frames after the chosen ones
        for name in filter(is_pixel_column, step.stage.inputs):
            found.setdefault(name, []).append(early)
    return {name: tuple(readers) for name, readers in found.items() if all(readers)}


def wave_numbers(steps: Sequence[Step], waves: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return each step's wave; a step outside all waves runs as early as its producers allow.

    Raises ConfigError: the waves name a step twice, or before a step that it reads.
    """
    named: dict[str, int] = {}
    for number, names in enumerate(waves):
        for name in names:
            if name in named:
                raise ConfigError(
                    f"The profile's waves name step {name!r} twice; remove one of them.", code="FK-WAVE-STEP-TWICE"
                )
            named[name] = number
    numbers: dict[str, int] = {}
    for step in steps:
        earliest = max((numbers[other] for other in step.depends if other in numbers), default=0)
        numbers[step.name] = named.get(step.name, earliest)
        if numbers[step.name] < earliest:
            late = next(other for other in step.depends if numbers.get(other, 0) > numbers[step.name])
            raise ConfigError(
                f"The profile's waves have {step.name!r} before {late!r}, which it reads; move it to that wave or "
                "later.",
                code="FK-WAVE-TOO-EARLY",
            )
    order = {number: i for i, number in enumerate(sorted(set(numbers.values())))}  # a run may leave steps out
    return {name: order[number] for name, number in numbers.items()}


def process_name(step: Step) -> str:
    """Return the process name of a step with a model: its group, else its own name."""
    return f"group {step.placement.group}" if step.placement.group else step.name


def processes(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Return steps by process name, in order."""
    members: dict[str, list[Step]] = {}
    for step in steps:
        members.setdefault(process_name(step), []).append(step)
    return members


def combined_placement(steps: Sequence[Step]) -> Placement:
    """Return the needs of one process for these steps: they take turns on its cores, and share its memory."""
    placements = [step.placement for step in steps]
    return replace(
        placements[0],
        cpus=max(placement.cpus for placement in placements),
        gpus=min(1.0, sum(placement.gpus for placement in placements)),
        vram_gb=sum(placement.vram_gb for placement in placements),
        linger_ms=min(placement.linger_ms for placement in placements),
    )


def order_by_process(steps: Sequence[Step]) -> list[Step]:
    """Return first-pass steps with each group's members side by side, otherwise those without a model first.

    Raises ConfigError: a step outside a group must run between its members, or its members differ in `_SAME`.
    """
    members = processes(steps)
    _check_same(members)
    names = sorted(members, key=lambda name: any(step.keeps_model for step in members[name]))
    home = {step.name: name for name in names for step in members[name]}
    order, waiting = ordered(
        {name: [home.get(other, other) for other in _collect_needs(members[name])] for name in names}
    )
    done = [step for name in order for step in members[name]]
    if waiting:
        group = next(name for name in waiting if len(members[name]) > 1)
        between = sorted(_collect_needs(members[group]) - {step.name for step in done})
        raise ConfigError(
            f"The steps of {group} cannot share a process: {', '.join(map(repr, between))} must run between its "
            "members; put it into the group too, or split the group.",
            code="FK-GROUP-SPLIT",
        )
    return done


def _collect_needs(members: Sequence[Step]) -> set[str]:
    return {name for step in members for name in step.depends} - {step.name for step in members}


def _check_same(processes: dict[str, list[Step]]) -> None:
    for process, members in processes.items():
        for key in _SAME:
            values = {step.name: getattr(step.placement, key) for step in members}
            if len(set(values.values())) > 1:
                differing = ", ".join(f"{step} {value}" for step, value in values.items())
                raise ConfigError(
                    f"The steps of {process} share a process but differ in {key!r} ({differing}); set one value.",
                    code="FK-GROUP-DIFFERS",
                )
