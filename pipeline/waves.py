"""The first pass in waves: where a card does not hold all models at once, it goes over the media several times.

Each wave decodes again and runs some of the steps; what steps of earlier waves made is read from their parts. Packets
are cut by the pixels that all steps ask for, so that they are the same in every wave; what no step of a wave reads is
counted, and not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.errors import ConfigError
from pipeline.grouping import gathered, processes
from pipeline.lineage import with_drops
from pipeline.step import DecodeStep, Step


@dataclass(frozen=True, kw_only=True)
class Wave:
    """One way over the media."""

    decode: DecodeStep
    steps: tuple[Step, ...]  # in order; those that are recalled were computed by waves before

    @property
    def own(self) -> tuple[Step, ...]:
        """What it computes."""
        return tuple(step for step in self.steps if not step.recalled)

    @property
    def folders(self) -> tuple[str, ...]:
        """Where the parts lie that are all there once it is over, the decoder's first."""
        return (self.decode.folder, *(step.folder for step in self.steps))

    def groups(self) -> list[tuple[Step, ...]]:
        """Its steps by the process they share; the first one decodes, and may do nothing else."""
        return processes(self.decode, self.steps)


def in_waves(decode: DecodeStep, steps: Sequence[Step], numbers: Mapping[str, int]) -> tuple[Wave, ...]:
    """First-pass steps as waves.

    Args:
        decode: before them.
        steps: producers before readers.
        numbers: of the wave of each step, from 0, without gaps.
    """
    count = max(numbers.values(), default=0) + 1
    return tuple(_wave(decode, steps, numbers, number) for number in range(count))


def numbered(steps: Sequence[Step], said: Sequence[Sequence[str]]) -> dict[str, int]:
    """Each step's wave, from those that are said; a step that is not named comes as early as what it reads.

    Raises:
        ConfigError: a name comes twice, or before what it reads.
    """
    known = {step.name: step for step in steps}
    named: dict[str, int] = {}
    for number, names in enumerate(said):
        for name in names:
            if name in named:
                raise ConfigError(f"The profile's waves name step {name!r} twice; leave one of them out.")
            named[name] = number
    found: dict[str, int] = {}
    for name, step in known.items():
        earliest = max((found[other] for other in step.depends if other in found), default=0)
        found[name] = named.get(name, earliest)
        if found[name] < earliest:
            late = next(other for other in step.depends if found.get(other, 0) > found[name])
            raise ConfigError(f"The profile's waves have {name!r} before {late!r}, which it reads; put it later.")
    order = {number: i for i, number in enumerate(sorted(set(found.values())))}  # steps may be left out of a run
    return {name: order[number] for name, number in found.items()}


def _wave(decode: DecodeStep, steps: Sequence[Step], numbers: Mapping[str, int], number: int) -> Wave:
    own = [step for step in steps if numbers[step.name] == number]
    read = {name for step in own for name in step.depends}
    before = [_recalled(step, decode) for step in steps if step.name in read and numbers[step.name] < number]
    asked = {name for step in own for name in step.stage.inputs}
    drops = tuple(name for name in decode.columns if name not in asked)
    kept = [name for name in decode.columns if name in asked]
    return Wave(decode=replace(decode, drops=drops), steps=with_drops(gathered([*before, *own]), kept))


def _recalled(step: Step, decode: DecodeStep) -> Step:
    """A step whose parts are read where files are decoded."""
    there = replace(step.placement, device="cpu", cpus=decode.cpus, workers=decode.workers, gpus=0.0, group="")
    return replace(step, placement=there, recalled=True)
