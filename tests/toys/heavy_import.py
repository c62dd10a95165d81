"""A stage whose module imports torch at the top, which `check_imports` refuses."""

from __future__ import annotations

import torch

from tests.toys.rule_breakers import Good


class Heavy(Good):
    """`check_imports`."""

    dtype = torch.float32
