"""Fixtures that tests of several stages share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """One thread in torch, for many small calls: on a busy machine its threads would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
