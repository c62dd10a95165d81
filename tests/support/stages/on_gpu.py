"""The device of tests that compare a GPU with the CPU: files `test_*_gpu.py`.

They need torch and what the model needs, no trained weights, no real media and no other implementation. So all of them
run on a machine with a GPU and little else (docs/hardware/gpus.md). `FRAMEKILN_TEST_GPU=cpu` tries them without a GPU.
"""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = os.environ.get("FRAMEKILN_TEST_GPU", "cuda")
needs_gpu = [
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.usefixtures("configured_gpu"),
]
