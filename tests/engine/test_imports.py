"""Processes of a run import what they need, and no more."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, framekiln.engine.ray.{}; print(*sorted({{'pandas', 'ray.data', 'torch'}} & set(sys.modules)))"


def test_the_coordinator_needs_no_ray_data() -> None:
    assert _heavy_imports("coordinator") == []  # the next test shows that these names are found


def test_ray_data_is_imported_before_a_session_silences_its_loggers() -> None:
    assert "ray.data" in _heavy_imports("session")


def _heavy_imports(module: str) -> list[str]:
    command = [sys.executable, "-c", LOADED.format(module)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
