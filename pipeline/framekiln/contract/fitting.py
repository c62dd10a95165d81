"""The check that values fit a column.

Arrow itself cuts without a word: fractions of whole numbers and times, fields that a struct lacks, numbers beyond a
float, and texts into letters where a list is wanted.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

Check = Callable[[Any], bool]
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}  # of units coarser than Python's


def check_fit(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise ArrowInvalid if Arrow would store less of a value than it holds. `values`: those that Arrow takes.

    >>> check_fit([{"x": 1.0}, None], pa.struct([("x", pa.int32())]))
    >>> check_fit([{"X": 1.0}], pa.struct([("x", pa.int32())]))
    Traceback (most recent call last):
    ...
    pyarrow.lib.ArrowInvalid: {'X': 1.0} does not fit struct<x: int32>
    """
    fits = _make_check(kind)
    for value in values:
        if not fits(value):
            raise pa.ArrowInvalid(f"{str(value)[:200]} does not fit {kind}")


def _make_check(kind: pa.DataType) -> Check:
    """Return the function that tells whether a value fits."""
    check = next((make(kind) for is_of, make in _MAKERS if is_of(kind)), lambda _: True)
    return lambda value: value is None or check(value)


def _make_struct_check(kind: pa.DataType) -> Check:
    fits = {item.name: _make_check(item.type) for item in kind}

    def check(value: Any) -> bool:
        pairs = value.items() if isinstance(value, Mapping) else zip(fits, value, strict=False)
        return all(name in fits and fits[name](item) for name, item in pairs)

    return check


def _make_map_check(kind: pa.DataType) -> Check:
    fits_key, fits = _make_check(kind.key_type), _make_check(kind.item_type)

    def check(value: Any) -> bool:
        pairs = value.items() if isinstance(value, Mapping) else value
        return all(fits_key(key) and fits(item) for key, item in pairs)

    return check


def _make_list_check(kind: pa.DataType) -> Check:
    fits = _make_check(kind.value_type)

    def check(value: Any) -> bool:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":  # its extremes and a fraction tell of all numbers
            finite = value[np.isfinite(value)]
            value = [*finite[finite % 1 != 0][:1], *([finite.min(), finite.max()] if finite.size else [])]
        return not isinstance(value, str | bytes) and all(map(fits, value))

    return check


def _make_integer_check(kind: pa.DataType) -> Check:
    """Return a check of fractions; Arrow knows the limits of whole numbers."""
    signed = types.is_signed_integer(kind)
    low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) if signed else (0, 2**kind.bit_width)
    return lambda value: not isinstance(value, float | np.floating) or (value % 1 == 0 and low <= value < high)


def _make_float_check(kind: pa.DataType) -> Check:
    most: float = np.finfo(kind.to_pandas_dtype()).max.item()
    return lambda value: not isinstance(value, int | float | np.number) or not most < abs(float(value)) < float("inf")


def _make_time_check(kind: pa.DataType) -> Check:
    unit = _MICROSECONDS.get(getattr(kind, "unit", ""), 1)

    def check(value: Any) -> bool:
        if isinstance(value, float | np.floating):
            return bool(value % 1 == 0)
        if isinstance(value, timedelta):
            return value.microseconds % unit == 0
        if types.is_date(kind) and isinstance(value, datetime):
            return value.replace(tzinfo=None) == datetime.combine(value, datetime.min.time())
        return bool(getattr(value, "microsecond", 0) % unit == 0)

    return check


_MAKERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Check]]] = [
    (types.is_struct, _make_struct_check),
    (types.is_map, _make_map_check),
    (types.is_list, _make_list_check),
    (types.is_large_list, _make_list_check),
    (types.is_fixed_size_list, _make_list_check),
    (types.is_integer, _make_integer_check),
    (types.is_floating, _make_float_check),
    (types.is_temporal, _make_time_check),
]
