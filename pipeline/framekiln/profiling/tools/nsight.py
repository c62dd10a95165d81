"""Nsight Systems and Nsight Compute on this machine.

Searched in order: the command in NSYS_CMD or NCU_CMD, the PATH, and the folders of CUDA toolkits, of NVIDIA's packages
and of JetPack. Of several versions in one place the newest is taken.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from framekiln.contract.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NsightTool:
    """A tool and the places of its installations."""

    name: str
    title: str
    variable: str  # of the environment; a path, or a command with arguments such as "sudo -E nsys"
    places: Sequence[str]  # patterns below the root
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
    """Return the words of the command in the environment, which may be another machine's; empty without one."""
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
            return [str(max(found, key=lambda place: numbers[place]))]  # so 2025.10 is above 2025.9
    return None


def require_tool(tool: NsightTool, option: str, root: Path = Path("/")) -> list[str]:
    """Return the words of the command that starts a tool, which an option needs. Raises ConfigError: it is missing."""
    command = find_tool(tool, root)
    if command is None:
        raise ConfigError(missing(tool, option), code=tool.code)
    return command


def missing(tool: NsightTool, option: str) -> str:
    """Return the sentence about a missing tool."""
    return (
        f"{option} needs {tool.title}, and there is no {tool.name} on the PATH or in the folders of CUDA and JetPack; "
        f"install {tool.package} from developer.nvidia.com, or set {tool.variable} to its path."
    )
