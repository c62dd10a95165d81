"""The choice between Ray and this machine alone, and the chosen engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from framekiln.contract.errors import ConfigError, FramekilnError
from framekiln.engine.base import Engine, RunContext
from framekiln.media.units import Unit
from framekiln.planning.plan import Plan
from framekiln.runtime.run.request import RunRequest

if TYPE_CHECKING:
    from framekiln.engine.local.engine import WorkerProcess

SMALL_BYTES = 2_000_000_000
"""Input files that `auto` computes without Ray.

5,000 photos of 130 KB with `lighting` took 16 s on two cores, and 24 s with Ray, whose start takes 8 s. With over three
times as many, the start is less than a tenth of a run, and Ray's dashboard and live metrics are of more use.
"""
_UNKNOWN_BYTES = 130_000  # bytes counted for a file on a web server: the size of the photos above
_LOCAL = "one process a core, each with all steps"


def choose(request: RunRequest, plan: Plan, units: Sequence[Unit]) -> tuple[Literal["local", "ray"], str]:
    """Choose the engine for these units; the sentence says why."""
    if request.engine == "local":
        return "local", f"Engine: local, as asked: {_LOCAL}."
    if request.engine == "ray":
        return "ray", "Engine: Ray, as asked."
    sizes = [media.size or _UNKNOWN_BYTES for unit in units for media in unit.media]
    unknown = sum(not media.size for unit in units for media in unit.media)
    if reason := _needs_ray(request):
        return "ray", f"Engine: Ray, since {reason}."
    if on_gpu := [step.name for step in plan.steps if step.placement.device != "cpu"]:
        return "ray", f"Engine: Ray, since {on_gpu[0]} runs on a GPU."
    if (size := sum(sizes)) > SMALL_BYTES:
        guess = f", {unknown:,} of them of unknown size and taken for {_UNKNOWN_BYTES / 1e6:g} MB each,"
        told = f"{size / 1e9:.1f} GB of files{guess if unknown else ''}"
        return "ray", f"Engine: Ray, since {told} are more than {SMALL_BYTES / 1e9:.0f} GB."
    return "local", f"Engine: local, since the work is small: {_LOCAL} (--engine ray for Ray)."


def _needs_ray(request: RunRequest) -> str:
    if request.address is not None:
        return f"a cluster is named ({request.address})"
    return "--nsight starts processes through Ray" if request.profilers.nsight else ""


@contextmanager
def started_ahead(request: RunRequest) -> Iterator[list[WorkerProcess]]:
    """Start a process of the local engine if it may be chosen: it imports libraries while the run is planned.

    An engine takes over the process; otherwise it is ended after the block.

    Raises ConfigError: the local engine is requested for something that needs Ray.
    """
    if request.engine == "local" and (problem := _needs_ray(request)):
        raise ConfigError(f"--engine local: {problem}; leave out one of the two.", code="FK-ENGINE-LOCAL")
    ahead: list[WorkerProcess] = []
    if request.engine != "ray" and not _needs_ray(request):
        from framekiln.engine.local.engine import WorkerProcess

        ahead.append(WorkerProcess())
    try:
        yield ahead
    finally:
        while ahead:
            ahead.pop().end()


def make_engine(
    name: Literal["local", "ray"],
    context: RunContext,
    ahead: list[WorkerProcess],
    stop: Callable[[FramekilnError], None],
) -> Engine:
    """Return an engine, to be closed; Ray must be connected.

    `ahead` comes from `started_ahead`. `stop` ends the run with an error, from another thread.
    """
    if name == "local":
        from framekiln.engine.local.engine import LocalEngine

        return LocalEngine(context, [ahead.pop() for _ in range(len(ahead))])
    from framekiln.engine.ray.datasets import RayEngine

    return RayEngine(context, stop)
