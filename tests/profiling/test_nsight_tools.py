"""Nsight's tools are found by variable, PATH and the folders of CUDA and JetPack, the newest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.profiling.tools.profilers import NCU, NSYS, find_tool, require_tool


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing(monkeypatch):
    """No tool of this machine."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("NSYS_CMD", raising=False)
    monkeypatch.delenv("NCU_CMD", raising=False)


@pytest.mark.parametrize(
    ("tool", "older", "newer"),
    [
        (NSYS, "opt/nvidia/nsight-systems/2025.9.1/bin/nsys", "opt/nvidia/nsight-systems/2025.10.2/bin/nsys"),
        (
            NSYS,  # JetPack's
            "opt/nvidia/nsight-systems/2024.5.4/target-linux-tegra-armv8/nsys",
            "opt/nvidia/nsight-systems/2025.1.0/target-linux-tegra-armv8/nsys",
        ),
        (NCU, "usr/local/cuda-12.9/bin/ncu", "usr/local/cuda-13.0/bin/ncu"),
        (
            NCU,  # JetPack's
            "opt/nvidia/nsight-compute/2024.3.1/target/linux-v4l_l4t-t210-a64/ncu",
            "opt/nvidia/nsight-compute/2025.1.0/target/linux-v4l_l4t-t210-a64/ncu",
        ),
    ],
)
def test_the_newest_of_a_folder(tmp_path, tool, older, newer):
    assert find_tool(tool, tmp_path) is None
    for path in (newer, older):
        program(tmp_path / path)
    assert find_tool(tool, tmp_path) == [str(tmp_path / newer)]
    (tmp_path / newer).chmod(0o644)
    assert find_tool(tool, tmp_path) == [str(tmp_path / older)]


def test_the_variable_comes_before_the_path_and_the_path_before_folders(tmp_path, monkeypatch):
    place = program(tmp_path / "usr/local/cuda/bin/nsys")
    assert find_tool(NSYS, tmp_path) == [str(place)]
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin" / "nsys").parent))
    assert find_tool(NSYS, tmp_path) == [str(tmp_path / "bin" / "nsys")]
    mine = program(tmp_path / "my tools" / "nsys-2026")
    monkeypatch.setenv("NSYS_CMD", f"'{mine}' --color=false")
    assert find_tool(NSYS, tmp_path) == [str(mine), "--color=false"]


def test_a_variable_without_a_program_and_a_missing_tool_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError) as error:
        require_tool(NCU, "--ncu", tmp_path)
    assert error.value.code == "FK-NCU-MISSING" and "NCU_CMD" in str(error.value)
    monkeypatch.setenv("NCU_CMD", "/nowhere/ncu")
    with pytest.raises(ConfigError) as error:
        require_tool(NCU, "--ncu", tmp_path)
    assert error.value.code == "FK-NSIGHT-COMMAND"
