"""Waves of the first pass: where a GPU does not hold all models at once, the first pass reads the media several times.

Each wave decodes again and runs some of the steps. Results of steps in earlier waves are read from their parts. Packets
are cut by the pixels that all steps ask for, so that they are the same in every wave. Columns that no step of a wave
reads are counted for the cut and not produced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framekiln.contract.errors import ConfigError
from framekiln.planning.lineage import with_drops
from framekiln.planning.processes.process_groups import by_process, order_by_process
from framekiln.planning.step import DecodeStep, Step


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

    def groups(self) -> list[tuple[Step, ...]]:
        """Return its steps by the process they share; the first process decodes, and may do nothing else."""
        return by_process(self.decode, self.steps)


def split_into_waves(decode: DecodeStep, steps: Sequence[Step], numbers: Mapping[str, int]) -> tuple[Wave, ...]:
    """Return first-pass steps, producers before readers, as waves; they are numbered from 0, without gaps."""
    count = max(numbers.values(), default=0) + 1
    return tuple(_make_wave(decode, steps, numbers, number) for number in range(count))


def wave_numbers(steps: Sequence[Step], waves: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the number of each step's wave; a step that no wave names runs as early as its producers allow.

    Raises:
        ConfigError: the waves name a step twice, or before one that it reads.
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


def _make_wave(decode: DecodeStep, steps: Sequence[Step], numbers: Mapping[str, int], number: int) -> Wave:
    own = [step for step in steps if numbers[step.name] == number]
    read = {name for step in own for name in step.depends}
    before = [step for step in steps if step.name in read and numbers[step.name] < number]
    place = {"device": "cpu", "cpus": decode.cpus, "workers": decode.workers, "gpus": 0.0, "group": ""}
    before = [replace(step.placed(**place), recalled=True) for step in before]  # where decoding reads their parts
    inputs = {name for step in own for name in step.stage.inputs}
    drops = tuple(name for name in decode.columns if name not in inputs)
    kept = [name for name in decode.columns if name in inputs]
    return Wave(decode=replace(decode, drops=drops), steps=with_drops(order_by_process([*before, *own]), kept))
