"""An idle machine for tests of the bench: a busy one has a finding more."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _idle_machine(monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval=None, percpu=False: [0.0] if percpu else 0.0)
