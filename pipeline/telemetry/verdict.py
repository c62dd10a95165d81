"""Which step holds a run up, why that is so, and what to try: rules over figures, the first that applies speaks.

A run is a line of processes that wait for each other, so the one that never waits sets the pace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pipeline.failure import DECODE
from pipeline.telemetry.cores import TAKEN, taken
from pipeline.telemetry.measures import StepMeasures

LEAST_PACKETS = 4  # of the step that took most: below that a pattern is an accident
BUSY = 0.75  # share of its time from which a step sets the pace; what is left goes to Ray between packets
HELD = 0.3  # share of its time from which a step suffers from being held up
FULL = 0.8  # GPU utilisation from which the card itself is what is short
START_UP = 0.5  # share of a run from which set-up is the matter


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found."""

    rule: str  # too-short, start-up, later, busy, held, idle
    step: str  # the bottleneck; empty where it is no step
    reason: str
    change: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.change}."


def verdict(steps: Sequence[StepMeasures], full: Collection[str] = ()) -> Verdict:
    """The first rule that applies; the last one always does.

    Args:
        steps: figures of the run.
        full: steps for another of whose workers no core is left; see `pipeline.placing.full`.
    """
    if not steps or max(steps, key=lambda one: one.seconds).packets < LEAST_PACKETS:
        return Verdict(
            rule="too-short",
            step="",
            reason=f"Fewer than {LEAST_PACKETS} packets went through the step that took most of the time",
            change="take more files, or longer ones, to see a pattern",
        )
    return next(found for rule in _RULES if (found := rule(steps, full)) is not None)


def _start_up(steps: Sequence[StepMeasures], _: Collection[str]) -> Verdict | None:
    length = max(one.end for one in steps) - min(one.begin for one in steps)
    slowest = max(steps, key=lambda one: one.set_up_s)
    if slowest.set_up_s < START_UP * (length + slowest.set_up_s):
        return None
    took = f"The set-up of {slowest.step} took {slowest.set_up_s:.0f} s, and all packets together {length:.0f} s"
    return Verdict(rule="start-up", step=slowest.step, reason=took, change="take more files in one run")


def _later(steps: Sequence[StepMeasures], full: Collection[str]) -> Verdict | None:
    """Steps of the second pass run one after the other, when the first pass is over."""
    first = [one for one in steps if not one.later]
    length = max((one.end for one in first), default=0.0) - min((one.begin for one in first), default=0.0)
    slow = max((one for one in steps if one.later), key=lambda one: one.end - one.begin, default=None)
    if slow is None or slow.end - slow.begin <= length:
        return None
    took = f"{slow.step} of the second pass took {slow.end - slow.begin:.0f} s, the whole first pass {length:.0f} s"
    if why := taken(slow.cpu_use, full=slow.step in full):
        return Verdict(rule="later", step=slow.step, reason=f"{took}, and {why}", change=_instead(slow))
    more = "its cpus" if slow.packets == 1 else f"{slow.step}'s workers, or its cpus"  # all rows may be one call
    return Verdict(rule="later", step=slow.step, reason=took, change=f"raise {more}")


def _busy(steps: Sequence[StepMeasures], full: Collection[str]) -> Verdict | None:
    """The step that takes most of the busiest processes."""
    first = [one for one in steps if not one.later]
    top = max((one.process_busy for one in first), default=0.0)
    if top < BUSY:
        return None
    step = max((one for one in first if one.process_busy > top - 0.02), key=lambda one: one.busy)
    reason = f"{step.step} is busy {_percent(step.busy)} of its time"
    if step.busy < step.process_busy - 0.02:
        reason += f", the most of its process, which is busy {_percent(step.process_busy)}"
    change, why = _change(step), taken(step.cpu_use, full=step.step in full)
    if why and "worker" in change:
        reason, change = f"{reason}, and {why}", _instead(step)
    return Verdict(rule="busy", step=step.step, reason=_suffering(step, first) + reason, change=change)


def _suffering(step: StepMeasures, first: Sequence[StepMeasures]) -> str:
    """Who is held up by a step: those after it, which began later, wait for input; those before it cannot hand on."""
    place = [one.step for one in first].index(step.step)
    after, before = (
        [one for one in side if not set(one.workers) & set(step.workers)] for side in (first[place:], first[:place])
    )
    hungry = max(after, key=lambda one: one.starved, default=None)
    if hungry is not None and hungry.starved >= HELD:
        return f"{hungry.step} waits {_percent(hungry.starved)} of its time for input while "
    stuck = max(before, key=lambda one: one.held, default=None)
    if stuck is not None and stuck.held >= HELD:
        return f"{stuck.step} spends {_percent(stuck.held)} of its time handing packets on while "
    return ""


def _held(steps: Sequence[StepMeasures], _: Collection[str]) -> Verdict | None:
    """Nobody is at the limit, and yet packets are not taken."""
    step = max((one for one in steps if not one.later), key=lambda one: one.held, default=None)
    if step is None or step.held < HELD:
        return None
    return Verdict(
        rule="held",
        step=step.step,
        reason=f"{step.step} spends {_percent(step.held)} of its time handing packets on, and no step is at its limit",
        change="give Ray's object store more memory, or read smaller pictures such as frame_1024, so that less travels",
    )


def _idle(steps: Sequence[StepMeasures], _: Collection[str]) -> Verdict:
    top = max(steps, key=lambda one: one.process_busy)
    return Verdict(
        rule="idle",
        step="",
        reason=f"No step is at its limit; the busiest, {top.step}, works {_percent(top.process_busy)} of its time",
        change="take more files at once: between few or small packets Ray's own work is what shows",
    )


_Rule = Callable[[Sequence[StepMeasures], Collection[str]], Verdict | None]
_RULES: tuple[_Rule, ...] = (_start_up, _later, _busy, _held, _idle)


def _change(step: StepMeasures) -> str:
    """What to try first, by what the step's time goes to."""
    phase = max(step.phases, key=lambda name: step.phases[name])
    if phase == "write":
        return "write to a faster disk; its files take most of its time"
    if step.step == DECODE:
        return "raise decode's workers, or lower its cost with smaller pictures such as frame_1024"
    if step.device == "cuda":
        return _on_gpu(step, phase)
    if step.beside_decode:
        return f"raise decode's workers, whose processes it shares, or lower {step.step}'s cost by its settings"
    return f"raise {step.step}'s workers, or lower its cost by its settings"


def _instead(step: StepMeasures) -> str:
    """What to try where more workers would find no core."""
    less = "with smaller pictures such as frame_1024" if step.step == DECODE else "by its settings"
    ways = [f"lower {step.step}'s cost {less}"]
    if step.cpu_use is not None and step.cpu_use < TAKEN:
        ways.append("lower `cpus` in the profile, so that more find a place")
    ways.append("take a machine with more cores")
    if step.device == "cpu" and step.step != DECODE:
        ways.append("run it on a GPU where it can use one")
    return f"more workers will not help; {', or '.join(ways)}"


def _on_gpu(step: StepMeasures, phase: str) -> str:
    if phase in ("upload", "download"):
        return "set pin_memory: true, so that copies are fast"
    if phase != "infer":
        return f"give {step.step} one more worker on the card: most of its time is not the model's but {phase}"
    if step.gpu_use is not None and step.gpu_use >= FULL:
        return "lower its precision, take a smaller model, or add a card: this one is full"
    return "raise its batch, or set compile: true, so that the card has more to do at once"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
