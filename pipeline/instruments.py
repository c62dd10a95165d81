"""Instruments that a person asks for by name: profilers of single steps, from torch, NVIDIA and py-spy.

    --torch-profiler, --memory-timeline   OUT/profile/torch/, memory/    in the step's process (`device.recording`)
    --nvtx                                marks for Nsight Systems       in every process with a GPU
    --nsight                              OUT/profile/nsight/            Ray starts the step's processes under nsys
    --py-spy                              OUT/profile/py-spy/            a process beside the step's (`spying`)

What was asked is checked before anything starts; a step that nobody asked about is called as ever.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import spying
from pipeline.device.recording import Calls, Marks, MemoryTimeline, Probe, TorchProfiler
from pipeline.errors import ConfigError, did_you_mean
from pipeline.journal import worker_name
from pipeline.step import Step
from pipeline.storage import Store

if TYPE_CHECKING:
    from pipeline.plan import Plan

TORCH, MEMORY, NSIGHT, PY_SPY = (f"profile/{name}" for name in ("torch", "memory", "nsight", "py-spy"))
FAILED = ".failed.txt"
"""Ending of a file that says in a sentence why an instrument gave nothing."""

CALLS = 5  # that are recorded: enough to see what repeats, few enough to be read


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A step, and how many of its calls."""

    step: str
    calls: int = CALLS

    @classmethod
    def read(cls, option: str, text: str) -> Counted:
        """From words such as `faces` or `faces:3`.

        Raises:
            ConfigError: the number is none.
        """
        step, colon, number = text.partition(":")
        if colon and not (number.isdecimal() and int(number)):
            raise ConfigError(f"{option} {text!r} is not of the form STEP or STEP:CALLS, as in {option} faces:3.")
        return cls(step=step, calls=int(number) if colon else CALLS)


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What was asked for; by itself nothing."""

    torch_profiler: Counted | None = None
    memory_timeline: Counted | None = None
    nvtx: bool = False
    nsight: tuple[str, ...] = ()
    py_spy: str = ""

    def check(self, plan: Plan, store: Store, *, here: bool) -> str:
        """Make sure that all of it can be done, before anything starts.

        Args:
            plan: with the steps.
            store: the output.
            here: whether the run's processes will be on this machine; on others nobody can look for tools.

        Returns:
            A sentence about each that will show nothing, or may not; empty for none.

        Raises:
            ConfigError: a step is unknown, or a tool is missing or may not be used.
        """
        steps = {step.name: step for step in plan.first}
        for option, name in self._named():
            if name not in steps:
                later = name in (step.name for step in plan.second)
                why = " of the first pass: the second cannot be looked into." if later else "."
                raise ConfigError(f"{option} {name}: there is no such step{why}{did_you_mean(name, steps)}")
        self._check_together()
        if self.nsight:
            _check_nsight([steps[name] for name in self.nsight], here=here)
        if (self.nsight or self.py_spy) and not store.appends:
            raise ConfigError(
                f"--nsight and --py-spy write to a disk, and {store.root!r} is none; give another --output."
            )
        if self.py_spy and here:
            spying.check()
        return " ".join(self._doubts(steps))

    def probe(self, step: Step, store: Store) -> Probe | None:
        """What calls a step's stage instead of its worker; None where nobody asked."""
        name = f"{step.name}-{store.run}-{worker_name().replace(':', '-').replace('/', '_')}"
        device, around = step.placement.device, list[Calls]()
        if self.py_spy == step.name:
            around.append(spying.Spy(store, f"{PY_SPY}/{name}"))
        if self.nvtx and device == "cuda":
            around.append(Marks(step.name))
        if self.torch_profiler is not None and self.torch_profiler.step == step.name:
            around.append(TorchProfiler(step.name, device, self.torch_profiler.calls, store, f"{TORCH}/{name}"))
        if self.memory_timeline is not None and self.memory_timeline.step == step.name:
            around.append(MemoryTimeline(step.name, device, self.memory_timeline.calls, store, f"{MEMORY}/{name}"))
        return Probe(around) if around else None

    def started(self, steps: Sequence[Step], store: Store) -> dict[str, Any]:
        """What Ray is told beside when it starts the processes that these steps share: nothing, or to use nsys."""
        names = [step.name for step in steps if step.name in self.nsight]
        if not names:
            return {}
        folder = Path(store.root.removeprefix("file://")) / NSIGHT
        folder.mkdir(parents=True, exist_ok=True)
        options = {"t": "cuda,cudnn,cublas,nvtx", "o": _escaped(f"{folder}/{'+'.join(names)}-{store.run}-%p")}
        options |= {"stop-on-exit": "true", "force-overwrite": "true"}
        # Ray has nsys start whichever "python" is found first
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        return {"runtime_env": {"nsight": options, "env_vars": {"PATH": path}}}

    def said(self, store: Store) -> Iterator[str]:
        """A line for each folder that instruments of this run wrote to, and a sentence for each that gave nothing."""
        if self.py_spy:
            spying.finish(store, PY_SPY)
        for option, folder in self._folders():
            names = [name for name in store.names(folder) if f"-{store.run}-" in name]
            failed = [name for name in names if name.endswith(FAILED)]
            yield from (f"{option}: {store.read(f'{folder}/{name}').decode()}" for name in failed)
            if len(names) > len(failed):
                yield f"{option}: {len(names) - len(failed)} files in {store.url(folder)}"
            elif not names:
                yield f"{option}: nothing was recorded: the step was called too seldom, or on another machine."

    def _doubts(self, steps: Mapping[str, Step]) -> Iterator[str]:
        """What will show nothing, or may not: a step that cannot run on a GPU may still compute by torch on the CPU."""
        if self.nvtx and not any(step.placement.device == "cuda" for step in steps.values()):
            yield "--nvtx marks nothing: no step of the first pass runs on a GPU."
        watched = self.memory_timeline.step if self.memory_timeline is not None else ""
        if watched and "cuda" not in steps[watched].stage.devices:
            yield f"--memory-timeline {watched} shows nothing unless the step computes by torch; it has none for a GPU."

    def _check_together(self) -> None:
        """One profiler a call: of two of torch's, one inside the other, the process died."""
        deep = [(option, name) for option, name in self._named() if option != "--py-spy"]
        for i, (option, name) in enumerate(deep):
            if other := next((one for one, same in deep[:i] if same == name), None):
                raise ConfigError(f"{other} and {option} cannot look at one step ({name}) together; ask in two runs.")

    def _named(self) -> Iterator[tuple[str, str]]:
        """Options and the steps that they name."""
        for option, one in (("--torch-profiler", self.torch_profiler), ("--memory-timeline", self.memory_timeline)):
            if one is not None:
                yield option, one.step
        yield from (("--nsight", name) for name in self.nsight)
        if self.py_spy:
            yield "--py-spy", self.py_spy

    def _folders(self) -> Iterator[tuple[str, str]]:
        places = {"--torch-profiler": TORCH, "--memory-timeline": MEMORY, "--nsight": NSIGHT, "--py-spy": PY_SPY}
        return iter({option: places[option] for option, _ in self._named()}.items())


NONE = Instruments()


def _check_nsight(steps: list[Step], *, here: bool) -> None:
    for step in steps:
        if not step.keeps_model:
            raise ConfigError(
                f"--nsight {step.name}: this step has no process of its own; give it a `group` in the profile, or "
                "choose one with a model."
            )
    if here and shutil.which("nsys") is None:
        raise ConfigError(
            "--nsight needs Nsight Systems, and there is no nsys on the PATH; install nsight-systems-cli from "
            "developer.nvidia.com/nsight-systems."
        )


def _escaped(path: str) -> str:
    """A path for the shell command that Ray puts together; quoted, it would not be absolute to Ray any more."""
    return re.sub(r"([\s!\"#$&'()*;<>?\[\\\]^`{|}~])", r"\\\1", path)
