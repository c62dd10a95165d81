"""A server of weights for a machine that has none."""

from __future__ import annotations

import pytest

from framekiln.weights import download
from tests.support.machine.fetch_factory import CONTENT
from tests.support.machine.range_server import serving


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Failed requests are repeated at once."""
    monkeypatch.setattr(download, "_RETRY", download._RETRY.new(backoff_factor=0.0))


@pytest.fixture
def site(no_weights):
    """A server on 127.0.0.1 with one file of weights."""
    with serving() as server:
        server.files["/toy.bin"] = CONTENT
        yield server
