"""A server of weights for a machine that has none."""

from __future__ import annotations

import pytest

from tests.support.machine.fetch_factory import CONTENT
from tests.support.machine.range_server import serving


@pytest.fixture
def site(no_weights):
    """A server on 127.0.0.1 with one file of weights."""
    with serving() as server:
        server.files["/toy.bin"] = CONTENT
        yield server
