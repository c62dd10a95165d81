"""Helpers of all checks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from framekiln.contract.stage import Stage
from framekiln.contract.testing.sample import StageSample

Check = Callable[[Stage, StageSample], None]
"""A function that raises an AssertionError where a stage breaks its rule."""


def require(condition: bool, rule: str) -> None:
    """Raise an AssertionError with this rule where the condition is false."""
    if not condition:
        raise AssertionError(rule)


def constructed(stage: Stage) -> Stage:
    """Return a stage of the same settings that was only constructed."""
    return type(stage)(stage.config)


def nearly_equal(a: Any, b: Any) -> bool:
    """Return whether values are equal, floats to 1e-4 of their size or 1e-5, those of float16 to its last digit.

    A batch of another size may be summed in another order, which changes the last digits of float32.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(nearly_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        digits = 2**-10 if _is_float16(a) and _is_float16(b) else 1e-4
        return math.isclose(a, b, rel_tol=digits, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _is_float16(value: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.float16(value) == value)
