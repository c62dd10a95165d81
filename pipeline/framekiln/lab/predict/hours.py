"""The hours of a plan from the seconds of its steps: those of each step on its processes, and of all beside each other.

`pace` says how steps share a GPU and processes. Here it gets the processes of the plan, not those of the run
that was measured.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope
from framekiln.device.cores import usable_cores
from framekiln.engine.local.engine import count_processes
from framekiln.lab.predict.measured import DRAWS, Draws
from framekiln.lab.predict.pace import pace
from framekiln.lab.predict.source_run import SourceStep
from framekiln.planning.plan import Plan
from framekiln.planning.processes.waves import Wave
from framekiln.planning.step import Step


def place_steps(plan: Plan, known: Mapping[str, SourceStep], *, local: bool) -> list[list[SourceStep]]:
    """Return the measured steps of each wave, decoding first, with the processes that a plan gives them."""
    return [_place_wave(wave, number, known, local=local) for number, wave in enumerate(plan.waves)]


def _place_wave(wave: Wave, number: int, known: Mapping[str, SourceStep], *, local: bool) -> list[SourceStep]:
    processes = count_processes(wave, wave.steps) if local else 0
    placed = []
    for place, group in enumerate(wave.groups()):
        first = group[0].placement if place and group else None
        workers = processes or (first.workers if first else wave.decode.workers)
        names = [step.name for step in group if not step.recalled]
        for name in [DECODE, *names] if place == 0 else names:
            if name in known:
                process = f"{number}" if local else f"{number}.{place}"
                in_flight = first.in_flight if first and not local else 1
                placed.append(replace(known[name], process=process, workers=workers, in_flight=in_flight))
    return placed


def count_later_processes(step: Step) -> int:
    """Return the processes of a step of the second pass: one where a call takes the whole run."""
    if step.stage.scope is Scope.DATASET:
        return 1
    return step.placement.workers if step.keeps_model else max(1, int(usable_cores() / step.placement.cpus))


def whole_hours(waves: list[list[SourceStep]], seconds: Mapping[str, Draws]) -> tuple[Draws, str]:
    """Return the hours of all waves, and what sets the pace in each; `seconds` are those of all rows of a step."""
    hours = np.zeros(1 + DRAWS)
    limits = []
    for steps in waves:
        busy = [step for step in steps if seconds[step.name][0] > 0]
        for draw in range(1 + DRAWS) if any(step.name != DECODE for step in busy) or (busy and steps == busy) else ():
            scaled = [_scale(step, float(seconds[step.name][draw])) for step in busy]
            on_gpu = {step.name: step.sample.model_s + step.sample.copies_s for step in scaled if step.on_gpu}
            rate, limit = pace(scaled, on_gpu)
            hours[draw] += 1 / rate / 3600
            if not draw:
                limits.append(limit)
    return hours, ", then ".join(limits)


def _scale(step: SourceStep, seconds: float) -> SourceStep:
    """Return a step of which one row takes so many seconds."""
    whole = max(sum(step.sample.phases.values()), 1e-9)
    phases = {name: value * seconds / whole for name, value in step.sample.phases.items()}
    return replace(step, sample=step.sample.model_copy(update={"phases": phases}))
