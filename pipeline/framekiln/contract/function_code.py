"""The version of a plain function: a hash of its code, so that an edited function is computed again.

The hash covers compiled code and constants, so comments, docstrings, the order of a module and file names do not
change it. It follows what the code names: functions of the same module, plain values, arrays, defaults and closures.
Everything else is taken by its name: a function of another module, a class, an open file.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_DIGITS = 12


def code_version(function: Callable[..., Any], *declared: Any) -> str:
    """Return `code` and twelve hex digits, which change with a function's code, what it uses, and what is `declared`.

    They also change with Python's minor version, which compiles to other code.

    >>> code_version(lambda x: x + 1) == code_version(lambda x: x + 1)
    True
    >>> code_version(lambda x: x + 1) == code_version(lambda x: x + 2)
    False
    """
    facts = _Facts(function.__module__)
    found = repr([facts.of(item) for item in (function, *declared)])
    return f"code {hashlib.sha256(found.encode(errors='backslashreplace')).hexdigest()[:_DIGITS]}"


class _Facts:
    """Nested tuples of texts for functions and values of one module."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._seen: set[int] = set()  # functions, which may call each other in a circle

    def of(self, value: Any) -> Any:
        """Return a value's facts; equal ones mean that it does the same."""
        value = inspect.unwrap(value) if callable(value) else value  # a function under `functools.cache`
        match value:
            case FunctionType():
                facts: Any = self._of_function(value)
            case CodeType():
                constants = [self.of(constant) for constant in value.co_consts]
                facts = value.co_code.hex(), value.co_exceptiontable.hex(), value.co_names, constants
            case set() | frozenset():
                facts = sorted(repr(self.of(item)) for item in value)  # their order differs from process to process
            case tuple() | list():
                facts = [self.of(item) for item in value]
            case dict():
                facts = [(self.of(key), self.of(item)) for key, item in value.items()]
            case np.ndarray() | np.generic() if not value.dtype.hasobject:
                facts = str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
            case None | bool() | int() | float() | complex() | str() | bytes():
                facts = repr(value)
            case _:
                facts = str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
        return type(value).__name__, facts

    def _of_function(self, function: FunctionType) -> Any:
        name = f"{function.__module__}.{function.__qualname__}"
        if function.__module__ != self._module or id(function) in self._seen:
            return name
        self._seen.add(id(function))
        cells = [_content(cell) for cell in function.__closure__ or ()]
        defaults = (function.__defaults__, function.__kwdefaults__)
        used = {
            name: function.__globals__[name]
            for name in sorted(set(_names(function.__code__)))
            if name in function.__globals__
        }
        code = function.__code__
        if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        return self.of(code), self.of(defaults), self.of(cells), self.of(used)


def _content(cell: Any) -> Any:
    """Return what a closure's cell holds; the cell of a name that is bound later is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function's code and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
