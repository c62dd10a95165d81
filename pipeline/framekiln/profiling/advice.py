"""Advice: what holds a run up, the evidence for it, and what to change.

`bottleneck` judges a whole run by its records. `live_advice` judges the last seconds of a run in progress, by one of
the same rules. The processes of a run wait for each other, so the step that never waits sets the pace. All thresholds
are first settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framekiln.contract.row_errors import DECODE
from framekiln.planning.processes.placement import Room
from framekiln.planning.step import Step
from framekiln.profiling.stats.live import WINDOW_SECONDS
from framekiln.profiling.stats.steps import StepStatistics

MIN_PACKETS = 4  # packets of the step: fewer show no pattern, and the first packets are slow
MIN_SECONDS = WINDOW_SECONDS  # s since a step's first packet: earlier GPU load says nothing about the step
BUSY = 0.75  # share of time from which a process is full; Ray needs the rest between packets
HELD = 0.3  # share of time from which waits for a neighbour count as being held up
STARVED = 0.5  # share of time from which a model waits more than it works
IDLE_GPU = 0.5  # utilisation below which a GPU could do twice the work
FULL_GPU = 0.8  # utilisation from which the GPU itself is the limit
SET_UP = 0.5  # share of a run from which set-up dominates it
SATURATED = 0.9  # use of all cores from which another worker finds hardly any free core
UNEVEN = 0.2  # share of processes' time unused by a step, from which its work is divided badly
OTHERS = 0.2  # share of all cores from which other programs are named as slowing the run
_SAME = 0.02  # difference of shares, or relative difference of times, that is ignored
_DECODE_LESS = "read smaller images (a step's `size`) or fewer frames of films (`decode.every_nth`)"
_COST = "lower {0}'s cost by `--set` (`framekiln steps {0}` lists its settings)"
_BOOK_LESS = "lower {0}'s cpus (`--set {0}.cpus=...`), so that more of its workers run"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A finding about a run, its evidence, and the change to try."""

    rule: str  # the finding: too-short, start-up, uneven, later, busy, held, idle
    step: str = ""  # the step concerned; empty for no single step
    reason: str  # the evidence, without a full stop
    change: str  # the fix, without a full stop
    others: str = ""  # a sentence on other programs, with a trailing space, or empty

    def __str__(self) -> str:
        return f"{self.others}{self.reason}: {self.change}."


def bottleneck(steps: Sequence[StepStatistics], rooms: Mapping[str, Room], others: float | None = None) -> Advice:
    """Return the advice of the first rule that applies; the last one always does.

    `rooms` comes from the plan, if known. `others` is the use of all cores by other programs, 0 to 1; None
    if it was not measured.
    """
    if not steps or max(steps, key=lambda step: step.seconds).packets < MIN_PACKETS:
        reason = f"Fewer than {MIN_PACKETS} packets went through the step that took most of the time"
        found = Advice(rule="too-short", reason=reason, change="take more files, or longer ones, to see a pattern")
    else:
        found = next(advice for rule in _RULES if (advice := rule(steps, rooms)) is not None)
    if others is None or others < OTHERS:
        return found
    told = f"Other programs took {_show_share(others)} of the machine's cores meanwhile"
    return replace(found, others=f"{told}: first measure again without them. ")


def _check_start_up(steps: Sequence[StepStatistics], _: Mapping[str, Room]) -> Advice | None:
    length, slowest = _measure_length(steps), max(steps, key=lambda step: step.set_up_s)
    if slowest.set_up_s < SET_UP * (length + slowest.set_up_s):
        return None
    reason = f"The set-up of {slowest.step} took {slowest.set_up_s:.0f} s, and all packets together {length:.0f} s"
    return Advice(rule="start-up", step=slowest.step, reason=reason, change="take more files in one run")


def _check_second_pass(steps: Sequence[StepStatistics], rooms: Mapping[str, Room]) -> Advice | None:
    """Steps of the second pass run one after the other, after the whole first pass."""
    first_pass = _measure_length([step for step in steps if not step.later])
    slow = max((step for step in steps if step.later), key=lambda step: step.lasted, default=None)
    if slow is None or slow.lasted <= first_pass:
        return None
    took = f"{slow.step} of the second pass took {slow.lasted:.0f} s, the whole first pass {first_pass:.0f} s"
    change = f"raise {slow.step}'s workers, or its cpus" if slow.packets > 1 else "raise its cpus"  # one call takes all
    if unused := _describe_unused(slow, rooms):
        took, change = f"{took}, and {unused}", "take more files in one run: each call takes one file"
    elif full := _explain_saturation(slow, rooms):
        took, change = f"{took}, and {full}", _advise_without_workers(slow)
    return Advice(rule="later", step=slow.step, reason=took, change=change)


def _check_uneven(steps: Sequence[StepStatistics], rooms: Mapping[str, Room]) -> Advice | None:
    slow = _find_slowest([step for step in steps if not step.later])
    if slow is None or not (unused := _describe_unused(slow, rooms)):
        return None
    change = (
        "take more files in one run. Processes can share a long film if it is an MP4 or MOV with closed-GOP key "
        "frames: `ffmpeg -i FILM -c:v libx264 -c:a copy NEW.mp4` makes one (docs/media.md)"
    )
    reason = f"{slow.step} takes most of the time, and {unused}"
    return Advice(rule="uneven", step=slow.step, reason=reason, change=change)


def _find_slowest(first: Sequence[StepStatistics]) -> StepStatistics | None:
    """Return the costliest step of the busiest process; None if none is busy, as for a step that ends early."""
    if max((step.process_busy for step in first), default=0.0) < BUSY:
        return None
    longest = max(step.process_busy * step.lasted for step in first)
    # Each step of a process has its own first and last packet. So all its steps are candidates, not only the longest.
    near = [step for step in first if step.process_busy * step.lasted >= (1 - _SAME) * longest]
    processes = {one for step in near for one in step.workers}
    return max((step for step in first if processes & set(step.workers)), key=lambda step: step.working * step.lasted)


def _check_busy(steps: Sequence[StepStatistics], rooms: Mapping[str, Room]) -> Advice | None:
    first = [step for step in steps if not step.later]
    if (slow := _find_slowest(first)) is None:
        return None
    reason = f"{slow.step} is busy {_show_share(slow.busy)} of its time"
    if slow.busy < slow.process_busy - _SAME:
        reason += f", more than other steps of its process, which is busy {_show_share(slow.process_busy)}"
    change, full = _change(slow, rooms), _explain_saturation(slow, rooms)
    if full and "worker" in change:
        reason, change = f"{reason}, and {full}", _advise_without_workers(slow)
    return Advice(rule="busy", step=slow.step, reason=_name_held_up(slow, first) + reason, change=change)


def _name_held_up(slow: StepStatistics, first: Sequence[StepStatistics]) -> str:
    """Name the step that suffers most: a later step that waits for input, or an earlier one that cannot hand on."""
    place = [step.step for step in first].index(slow.step)
    sides = (
        (first[place:], "starved", "waits {} of its time for input"),
        (first[:place], "held", "spends {} of its time handing packets on"),
    )
    for side, share, text in sides:
        others = [step for step in side if not set(step.workers) & set(slow.workers)]
        worst = max(others, key=lambda step: getattr(step, share), default=None)
        if worst is not None and getattr(worst, share) >= HELD:
            return f"{worst.step} {text.format(_show_share(getattr(worst, share)))} while "
    return ""


def _check_held(steps: Sequence[StepStatistics], _: Mapping[str, Room]) -> Advice | None:
    step = max((step for step in steps if not step.later), key=lambda step: step.held, default=None)
    if step is None or step.held < HELD:
        return None
    reason = f"{step.step} spends {_show_share(step.held)} of its time handing packets on, and no step is at its limit"
    change = "give Ray's object store more memory, or read smaller images such as frame_1024, so that less travels"
    return Advice(rule="held", step=step.step, reason=reason, change=change)


def _describe_idle(steps: Sequence[StepStatistics], _: Mapping[str, Room]) -> Advice:
    top = max(steps, key=lambda step: step.process_busy)
    reason = f"No step is at its limit; the busiest, {top.step}, works {_show_share(top.process_busy)} of its time"
    change = "take more files in one run: with few or small packets most time passes between them"
    return Advice(rule="idle", reason=reason, change=change)


_RULES = (_check_start_up, _check_second_pass, _check_uneven, _check_busy, _check_held, _describe_idle)


def _change(step: StepStatistics, rooms: Mapping[str, Room]) -> str:
    phase = max((name for name in step.phases if name != "queue"), key=lambda name: step.phases[name])
    if phase == "write":
        return "write to a faster disk; its files take most of its time"
    more = _count_planned(step, rooms) + 1
    decoding = f"`decode: {{workers: {more}}}` in the profile"
    if step.step == DECODE:
        return f"raise decode's workers ({decoding}), or {_DECODE_LESS}"
    if step.device == "cuda":
        return _advise_on_gpu(step, phase, more)
    if step.beside_decode:
        return f"raise decode's workers ({decoding}), as it runs in their processes, or {_COST.format(step.step)}"
    return f"raise {step.step}'s workers (`--set {step.step}.workers={more}`), or {_COST.format(step.step)}"


def _advise_on_gpu(step: StepStatistics, phase: str, more: int) -> str:
    if phase in ("upload", "download"):
        return f"make its copies faster: `--set {step.step}.pin_memory=true`"
    if phase != "infer":
        share = f"most of its time is outside of the model ({phase})"
        return f"give {step.step} one more worker on the GPU (`--set {step.step}.workers={more}`): {share}"
    if step.gpu_use is not None and step.gpu_use >= FULL_GPU:
        return f"add a GPU, since this one is full, or take a smaller model or `--set {step.step}.precision=fp16`"
    return f"raise its batch (`--set {step.step}.batch=...`), or compile it (`--set {step.step}.compile=true`)"


def _advise_without_workers(step: StepStatistics) -> str:
    """Return the change to try if another worker would find no free core."""
    less = _DECODE_LESS if step.step == DECODE else _COST.format(step.step)
    is_alone = step.step != DECODE and not step.beside_decode  # otherwise decoding sets the number of processes
    if is_alone and step.cpu_use is not None and step.cpu_use < SATURATED:
        return f"{_BOOK_LESS.format(step.step)}; or {less}"
    where = f", compute it for fewer frames (`--set {step.step}.where=...`, docs/conditions.md)"
    fewer = "" if step.step == DECODE else where
    return f"more workers will not help; {less}{fewer}, or take a machine with more cores"


def live_advice(steps: Sequence[Step], live: Mapping[str, StepStatistics], rooms: Mapping[str, Room]) -> Advice | None:
    """Return advice if a GPU or a model's processes are idle; None if they work, and in the first seconds.

    `steps` are those of the first pass without decoding. `live` and `rooms` include decoding.
    """
    kept = [live[step.name] for step in steps if step.keeps_model and step.name in live]
    ripe = [now for now in kept if now.packets >= MIN_PACKETS and now.lasted >= MIN_SECONDS]
    uses = [now.gpu_use for now in ripe if now.gpu_use is not None]
    is_idle = bool(uses) and max(uses) < IDLE_GPU  # the busiest GPU
    starves = any(now.starved >= STARVED and (is_idle or now.device == "cpu") for now in ripe)
    works = is_idle and any(now.gpu_use is not None and now.process_busy >= BUSY for now in ripe)
    if not (starves or works):
        return None
    decoding = live[DECODE].workers.keys() if DECODE in live else set()
    shared = {name for name, now in live.items() if name != DECODE and decoding & now.workers.keys()}
    every = [replace(now, beside_decode=name in shared) for name, now in live.items()]
    found = _check_busy(every, rooms)
    if found is None or not is_idle:
        return found
    return replace(found, reason=f"The GPU is used {_show_share(max(uses))}: {found.reason}")


def _describe_unused(step: StepStatistics, rooms: Mapping[str, Room]) -> str:
    """Describe the idle time of a step's processes, after their last packet or without any; empty if it is short.

    Processes above the planned number replaced others, as Ray's do.
    """
    number, ends = _count_planned(step, rooms), [one.end for one in step.workers.values()]
    idle = sum(step.end - end for end in ends) + (number - len(ends)) * step.lasted
    share = idle / max(1e-9, number * step.lasted)
    if len(ends) > number or share < UNEVEN:
        return ""
    return f"its work could not fill {number} processes, which were idle for {_show_share(share)} of their time"


def _count_planned(step: StepStatistics, rooms: Mapping[str, Room]) -> int:
    return rooms[step.step].processes if step.step in rooms else len(step.workers)


def _explain_saturation(now: StepStatistics, rooms: Mapping[str, Room]) -> str:
    """Explain why another worker would not help; empty if it might."""
    used = "" if now.cpu_use is None else f" (CPU {_show_share(now.cpu_use)})"
    if now.cpu_use is not None and now.cpu_use >= SATURATED:
        return f"all cores are taken{used}"
    is_full = now.step in rooms and rooms[now.step].is_full
    return f"the plan has no core for another process{used}" if is_full else ""


def _measure_length(steps: Sequence[StepStatistics]) -> float:
    return max((step.end for step in steps), default=0.0) - min((step.begin for step in steps), default=0.0)


def _show_share(share: float) -> str:
    return f"{100 * share:.0f} %"
