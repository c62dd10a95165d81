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


@pytest.fixture(scope="module")
def configured_gpu():
    """The GPU as a process of a run has it: fp32 is no TF32."""
    import torch

    from framekiln.device import configure_gpu

    cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, cublas.allow_tf32
    configure_gpu()
    yield
    cudnn.allow_tf32, cublas.allow_tf32 = before
