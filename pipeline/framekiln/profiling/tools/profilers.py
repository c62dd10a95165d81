"""Profilers of single steps, from torch, NVIDIA and py-spy.

    --torch-profiler, --memory-timeline   OUT/profile/torch/, memory/    in the step's process (`torch_profiler`)
    --nvtx                                ranges for Nsight Systems      in every process with a GPU
    --nsight                              OUT/profile/nsight/            Ray starts the step's processes under nsys
    --py-spy                              OUT/profile/py-spy/            a process beside the step's (`py_spy`)

All options are checked before anything starts. Steps without a profiler are called as usual.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.output_names import PROFILE
from framekiln.output.object_store import Store
from framekiln.planning.step import Step
from framekiln.profiling.records import worker_name
from framekiln.profiling.tools import py_spy
from framekiln.profiling.tools.torch_profiler import (
    FAILED,
    CallProfiler,
    CallRecorder,
    NvtxRanges,
    ProfiledStage,
    record_memory,
    record_trace,
)

if TYPE_CHECKING:
    from framekiln.planning.plan import Plan

TORCH, MEMORY, NSIGHT, PY_SPY = (f"{PROFILE}/{name}" for name in ("torch", "memory", "nsight", "py-spy"))
_FOLDERS = {"--torch-profiler": TORCH, "--memory-timeline": MEMORY, "--nsight": NSIGHT, "--py-spy": PY_SPY}
CALLS = 5  # recorded calls: enough to show a pattern, few enough to read


@dataclass(frozen=True, kw_only=True)
class ProfiledCalls:
    """A step and the number of its calls to record."""

    step: str
    calls: int = CALLS

    @classmethod
    def parse(cls, option: str, text: str) -> Self:
        """Parse an option's value such as `faces` or `faces:3`. Raises ConfigError: the number is not above 0."""
        step, colon, number = text.partition(":")
        if colon and not (number.isdecimal() and int(number)):
            problem = f"{option} {text!r} is not of the form STEP or STEP:CALLS, as in {option} faces:3."
            raise ConfigError(problem, code="FK-PROFILER-CALLS")
        return cls(step=step, calls=int(number) if colon else CALLS)


@dataclass(frozen=True, kw_only=True)
class ProfilerOptions:
    """The profilers of a run; none by default."""

    torch_profiler: ProfiledCalls | None = None
    memory_timeline: ProfiledCalls | None = None
    nvtx: bool = False
    nsight: tuple[str, ...] = ()
    py_spy: str = ""

    def check(self, plan: Plan, store: Store, *, here: bool) -> str:
        """Check before a run that all profilers can record. Return a sentence for each that may record nothing.

        `here`: its processes will run on this machine. Raises ConfigError: a step is unknown, or a tool is
        missing or not permitted.
        """
        steps = {step.name: step for step in plan.first}
        for option, name in self._list_named():
            if name not in steps:
                later = name in (step.name for step in plan.second)
                why = " of the first pass; the second cannot be profiled." if later else "."
                problem = f"{option} {name}: there is no such step{why}{did_you_mean(name, steps)}"
                raise ConfigError(problem, code="FK-PROFILER-STEP")
        users: dict[str, str] = {}
        for option, name in self._list_named():  # two profilers of torch for one call, one inside the other, killed it
            if option != "--py-spy" and (other := users.setdefault(name, option)) != option:
                problem = f"{other} and {option} cannot record one step ({name}) together; use them in two runs."
                raise ConfigError(problem, code="FK-PROFILERS-TOGETHER")
        if self.nsight:
            _check_nsight([steps[name] for name in self.nsight], here=here)
        if (self.nsight or self.py_spy) and not store.appends:
            problem = f"--nsight and --py-spy write to a disk, and {store.root!r} is none; give another --output."
            raise ConfigError(problem, code="FK-PROFILER-OUTPUT")
        if self.py_spy and here:
            py_spy.check()
        doubts = []
        if self.nvtx and not any(step.placement.device == "cuda" for step in steps.values()):
            doubts.append("--nvtx marks nothing: no step of the first pass runs on a GPU.")
        timeline = self.memory_timeline.step if self.memory_timeline is not None else ""
        if timeline and "cuda" not in steps[timeline].stage.devices:  # it may still use torch on the CPU
            no_gpu = "it cannot run on a GPU"
            doubts.append(f"--memory-timeline {timeline} shows nothing unless the step uses torch; {no_gpu}.")
        return " ".join(doubts)

    def caller(self, step: Step, store: Store) -> ProfiledStage | None:
        """Return the caller of a step's stage that records; None for a step without profilers."""
        name = f"{step.name}-{store.run}-{worker_name().replace(':', '-').replace('/', '_')}"
        device, profilers = step.placement.device, list[CallProfiler]()
        if self.py_spy == step.name:
            profilers.append(py_spy.PySpy(store, f"{PY_SPY}/{name}"))
        if self.nvtx and device == "cuda":
            profilers.append(NvtxRanges(step.name))
        recorders = ((self.torch_profiler, record_trace, TORCH), (self.memory_timeline, record_memory, MEMORY))
        for profiled, record, folder in recorders:
            if profiled is not None and profiled.step == step.name:
                profilers.append(CallRecorder(record, step.name, device, profiled.calls, store, f"{folder}/{name}"))
        return ProfiledStage(profilers) if profilers else None

    def ray_options(self, steps: Sequence[Step], store: Store) -> dict[str, Any]:
        """Return options for Ray to start the process of these steps under nsys; empty without --nsight."""
        names = [step.name for step in steps if step.name in self.nsight]
        if not names:
            return {}
        folder = store.folder / NSIGHT
        folder.mkdir(parents=True, exist_ok=True)
        file = f"{folder}/{'+'.join(names)}-{store.run}-%p"
        file = re.sub(r"([\s!\"#$&'()*;<>?\[\\\]^`{|}~])", r"\\\1", file)  # Ray takes a quoted path for a relative one
        options = {"t": "cuda,cudnn,cublas,nvtx", "o": file, "stop-on-exit": "true", "force-overwrite": "true"}
        # Ray has nsys start the first "python" on the PATH
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        return {"runtime_env": {"nsight": options, "env_vars": {"PATH": path}}}

    def report(self, store: Store) -> Iterator[str]:
        """Yield a line for each folder with recordings of this run, and the reason for each missing recording."""
        if self.py_spy:
            py_spy.finish(store, PY_SPY)
        for option in dict.fromkeys(option for option, _ in self._list_named()):
            folder = _FOLDERS[option]
            names = [name for name in store.names(folder) if f"-{store.run}-" in name]
            failed = [name for name in names if name.endswith(FAILED)]
            yield from (f"{option}: {store.read(f'{folder}/{name}').decode()}" for name in failed)
            if len(names) > len(failed):
                yield f"{option}: {len(names) - len(failed)} files in {store.url(folder)}"
            elif not names:
                yield f"{option}: nothing was recorded: the step had too few calls, or ran on another machine."

    def _list_named(self) -> Iterator[tuple[str, str]]:
        recorders = {"--torch-profiler": self.torch_profiler, "--memory-timeline": self.memory_timeline}
        for option, profiled in recorders.items():
            if profiled is not None:
                yield option, profiled.step
        yield from (("--nsight", name) for name in self.nsight)
        if self.py_spy:
            yield "--py-spy", self.py_spy


NO_PROFILERS = ProfilerOptions()


def _check_nsight(steps: list[Step], *, here: bool) -> None:
    for step in steps:
        if not step.keeps_model:
            raise ConfigError(
                f"--nsight {step.name}: this step has no process of its own; give it a `group` in the profile, or "
                "choose one with a model.",
                code="FK-NSIGHT-PROCESS",
            )
    if here:
        program = require_tool(NSYS, "--nsight")[0]
        if shutil.which(Path(program).name) != shutil.which(program):  # Ray searches the PATH only
            os.environ["PATH"] = os.pathsep.join((str(Path(program).parent), os.environ.get("PATH", "")))


@dataclass(frozen=True, kw_only=True)
class NsightTool:
    """A tool and the places of its installations."""

    name: str
    title: str
    variable: str  # environment variable: a path, or a command with arguments such as "sudo -E nsys"
    places: Sequence[str]  # glob patterns below the root
    code: str
    package: str


# *: versions and platforms; target-linux-tegra-armv8 and linux-v4l_l4t* are JetPack's
NSYS = NsightTool(
    name="nsys",
    title="Nsight Systems",
    variable="NSYS_CMD",
    places=(
        "usr/local/cuda*/bin/nsys",
        "opt/nvidia/nsight-systems*/bin/nsys",
        "opt/nvidia/nsight-systems*/*/bin/nsys",
        "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    ),
    code="FK-NSIGHT-MISSING",
    package="nsight-systems-cli",
)
NCU = NsightTool(
    name="ncu",
    title="Nsight Compute",
    variable="NCU_CMD",
    places=(
        "usr/local/cuda*/bin/ncu",
        "usr/local/cuda*/nsight-compute*/ncu",
        "opt/nvidia/nsight-compute/*/ncu",
        "opt/nvidia/nsight-compute/*/target/linux-*/ncu",
    ),
    code="FK-NCU-MISSING",
    package="nsight-compute",
)


def named_command(tool: NsightTool) -> list[str]:
    """Return the words of the command in the environment, which may belong to another machine; empty without one."""
    return shlex.split(os.environ.get(tool.variable, ""))


def find_tool(tool: NsightTool, root: Path = Path("/")) -> list[str] | None:
    """Return the words of the command that starts a tool; None if it is missing.

    Raises ConfigError: the command in the environment does not exist.
    """
    if command := named_command(tool):
        if shutil.which(command[0]) is None:
            raise ConfigError(
                f"{tool.variable} is {command[0]!r}, which is no program; give the path of {tool.name}, or unset it.",
                code="FK-NSIGHT-COMMAND",
            )
        return command
    if (path := shutil.which(tool.name)) is not None:
        return [path]
    for pattern in tool.places:
        found = [place for place in root.glob(pattern) if os.access(place, os.X_OK) and place.is_file()]
        if found:
            numbers = {place: [[*map(int, re.findall(r"\d+", part))] for part in place.parts] for place in found}
            return [str(max(found, key=lambda place: numbers[place]))]  # so that 2025.10 is above 2025.9
    return None


def require_tool(tool: NsightTool, option: str, root: Path = Path("/")) -> list[str]:
    """Return the words of the command that starts a needed tool. Raises ConfigError: it is missing."""
    command = find_tool(tool, root)
    if command is None:
        raise ConfigError(missing(tool, option), code=tool.code)
    return command


def missing(tool: NsightTool, option: str) -> str:
    """Return the sentence about a missing tool."""
    return (
        f"{option} needs {tool.title}, but found no {tool.name} on the PATH or in the folders of CUDA and JetPack; "
        f"install {tool.package} from developer.nvidia.com, or set {tool.variable} to its path."
    )
