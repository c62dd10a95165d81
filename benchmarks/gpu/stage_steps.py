"""Steps of the shipped pipeline by the profile for this GPU, with random weights, and objects in child processes.

Objects are set up side by side, and then measured one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from queue import SimpleQueue
from threading import Barrier, Semaphore
from typing import Any, Protocol

from benchmarks.gpu.options import GpuOptions
from benchmarks.made_rows import Size
from framekiln.device import take_failures
from framekiln.lab.sweep.runner import CellChild, reason_of
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.planning.step import Step
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import HUNG, ChildDied
from framekiln.runtime.recovery.child_tasks import not_set_up

STAGES = ("categorize", "faces", "segment", "instances", "inpaint")
"""First-pass steps with a model that runs on a GPU."""

WORK: Mapping[str, Sequence[str]] = {  # so that random weights have the work of trained ones
    "segment": (
        "segment.pred_iou_thresh=0",
        "segment.stability_score_thresh=0",
        "segment.box_nms_thresh=1.0",
        "segment.max_masks=100",
    ),
    "faces": ("faces.model=arcface-r50", "faces.runtime=torch", "faces.keep_crops=true"),
}
SMALL: Mapping[str, Sequence[str]] = {  # with which two cores run each stage within seconds
    "categorize": ("categorize.model=clip-vit-b32", "categorize.categories=[cat, dog]"),
    "instances": ("instances.model=clip-vit-b32", "instances.categories=[cat, dog]"),
    "faces": ("faces.model=mobilefacenet",),
    "segment": ("segment.model=sam2.1-hiera-tiny", "segment.points_per_side=2", "segment.max_masks=4"),
    "inpaint": ("inpaint.implementation=eager",),
}
_TIMEOUT_S = 200.0  # of one call, below the limit of a step: others of its group wait for it
_SLOW = 3  # multiple of it where processes have the machine one after the other: 16 GB, two cores


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run a stage."""

    stage: str
    sizes: Sequence[Size]  # of the photos of a packet
    masks: int = 1
    settings: Sequence[str] = ()
    placement: Mapping[str, Any] | None = None  # fields that replace the profile's


def step_of(case: Case, options: GpuOptions) -> Step:
    """Return the step of the shipped pipeline, not set up, as the profile for this GPU places it."""
    settings = (*WORK.get(case.stage, ()), *(SMALL.get(case.stage, ()) if options.small else ()), *case.settings)
    choices = PlanOptions(
        stages=(case.stage,), settings=settings, missing_weights="dummy", accept_license=True, device=options.device
    )
    plan = make_plan(read_pipeline(None), read_profile(options.profile), choices, [ROOMY], calibrated=False)
    step = next(step for step in plan.first if step.name == case.stage)
    changed: dict[str, Any] = {} if options.compile else {"compile": False}
    return not_set_up(replace(step, placement=replace(step.placement, **changed | dict(case.placement or {}))))


class MeasureError(Exception):
    """The reason why a child process gave no figures."""


def call(child: CellChild, method: str, *arguments: object, timeout_s: float = _TIMEOUT_S) -> Any:
    """Return the result of a method of the object that a child process holds.

    Raises:
        MeasureError: it raised, took too long, or its process died, now or before.
    """
    if not child.is_there:
        raise MeasureError("its process had ended before")
    answer = child.call(method, *arguments, timeout_s=timeout_s)
    if isinstance(answer, ChildDied) and answer.how == HUNG:
        raise MeasureError(f"it took longer than {timeout_s:.0f} s")
    if isinstance(answer, ChildDied | CapturedError):
        raise MeasureError(reason_of(answer))
    return answer


class Held(Protocol):
    """An object that a child process holds; it is pickled before use."""

    @property
    def parts(self) -> Sequence[str]:
        """What is measured, by title."""

    def prepare(self) -> None:
        """Set it up."""

    def measure(self, part: str, /) -> Mapping[str, Any]:
        """Return the figures of a part."""


def measured(
    held: Mapping[str, Held], at_once: int, *, alone: bool = True
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, part and figures, or why there are none, as soon as they are there.

    Objects are prepared in `at_once` processes side by side, which compiles on the CPU. With `alone` parts are measured
    while no other process uses the device.
    """
    waiting, timeout_s = iter(held.items()), _TIMEOUT_S * (1 if at_once > 1 else _SLOW)
    while group := dict(islice(waiting, at_once)):
        answers = SimpleQueue[tuple[str, str, Mapping[str, Any]]]()
        ready, turn = Barrier(len(group) if alone else 1), Semaphore(1 if alone else at_once)

        def work(name: str, child: CellChild) -> None:
            failure = _figures(child, timeout_s, "prepare")
            ready.wait()  # noqa: B023 - its own group's
            with turn:  # noqa: B023
                for part in held[name].parts:
                    answers.put((name, part, failure or _figures(child, timeout_s, "measure", part)))  # noqa: B023
                child.end()  # its memory is the next one's

        with ExitStack() as stack, ThreadPoolExecutor(len(group)) as pool:
            children = {name: stack.enter_context(CellChild.of(one)) for name, one in group.items()}
            for name, child in children.items():
                pool.submit(work, name, child)
            for _ in range(sum(len(one.parts) for one in group.values())):
                yield answers.get()


def uncompiled() -> Mapping[str, Any]:
    """Return a failed check where a model of this process was to be compiled and runs uncompiled."""
    return {"ok": False, "why": f"uncompiled: {reasons[0]}"} if (reasons := take_failures()) else {}


def _figures(child: CellChild, timeout_s: float, method: str, *arguments: object) -> Mapping[str, Any]:
    try:
        return call(child, method, *arguments, timeout_s=timeout_s) or {}
    except MeasureError as error:
        return {"ok": False, "why": str(error)}
