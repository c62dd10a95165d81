"""The version of a function or class: digits that change with its code, and with all values that it uses.

Old results must not stay after an edit, wherever the edit was made: in a helper, in a class, in a table or a model that
a function finds in a global. So values are followed as deeply as `pickle` would follow them.
Comments, docstrings, the order of a module and file names change nothing. By name alone count functions and classes of
other modules, modules, and what cannot be pickled (open files). Random generators do too, since each use changes them.
"""

import copyreg
import dis
import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Stage

_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
_PLAIN = {type(None), bool, int, float, complex, str}
_UNSAID = {"__dict__", "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__"}
"""Attributes of each class that say nothing of what it does."""


def version_of(stage: Stage) -> int | str:
    """Return a stage's version. A class of a notebook or script that states none has that of its code."""
    kind = type(stage)
    is_stated = any("version" in vars(base) for base in kind.__mro__ if base is not Stage)
    return stage.version if is_stated or kind.__module__ != "__main__" else code_version(kind)


def code_version(function: Callable[..., Any], *declared: Any) -> str:
    """Return `code` and twelve hex digits that change with a function's code, its dependencies and `declared`.

    The digits also change with Python's minor version, which compiles to other code.

    Raises:
        ConfigError: a value that the function uses is nested too deeply.

    >>> code_version(lambda x: x + 1) == code_version(lambda x: x + 1)
    True
    >>> code_version(lambda x: x + 1) == code_version(lambda x: x + 2)
    False
    """
    facts = _Facts(function.__module__)
    try:
        return f"code {_digest([facts.of(item) for item in (function, *declared)])[:12]}"
    except RecursionError:
        problem = f"The stage {function.__name__!r} uses a value that is nested too deeply to be compared"
        raise ConfigError(f"{problem}; give the decorator a version=.", code="FK-STAGE-FUNCTION") from None


class _Facts:
    """Digests of functions and values, as one module sees them."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._known: dict[int, tuple[Any, str]] = {}  # digest by id; the value is held, so that its id stays its own
        self._open: dict[int, int] = {}  # place in the current chain by id: values may lead back to themselves

    def of(self, value: Any) -> str:
        """Return the digest of a value; values with equal digests do the same."""
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}"
        key = id(value)
        if key in self._open:
            return f"circle {len(self._open) - self._open[key]}"
        if key in self._known:
            return self._known[key][1]
        self._open[key] = len(self._open)
        found = _digest((type(value).__qualname__, self._describe(value)))
        del self._open[key]
        if type(value) is not tuple:  # one of `pickle` may hold a copy of a large array
            self._known[key] = value, found
        return found

    def _describe(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return [self.of(item) for item in value]
        if type(value) is dict:
            return [(self.of(key), self.of(item)) for key, item in value.items()]
        ways = (way for kinds, way in self._ways.items() if isinstance(value, kinds))
        return next(ways, self._describe_object)(value)

    @cached_property
    def _ways(self) -> Mapping[Any, Callable[[Any], Any]]:
        """Descriptions of values, by their kinds; the first that fits counts."""
        return {
            FunctionType: self._describe_function,
            CodeType: self._describe_code,
            type: self._describe_class,
            property: lambda value: self.of((value.fget, value.fset, value.fdel)),
            (staticmethod, classmethod): lambda value: self.of(value.__func__),
            (ModuleType, BuiltinFunctionType): self._name,
            (set, frozenset): lambda value: sorted(map(self.of, value)),  # their order differs from process to process
            (bytes, bytearray): lambda value: hashlib.sha256(value).hexdigest(),
            (np.ndarray, np.generic): self._describe_array,
            _GENERATORS: lambda _: None,
            getattr(sys.modules.get("torch"), "Tensor", ()): self._describe_tensor,
        }

    def _describe_array(self, value: Any) -> Any:
        if value.dtype.hasobject:
            return self._describe_object(value)
        return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()

    def _describe_tensor(self, value: Any) -> Any:
        """Return a tensor's facts; `pickle` stores addresses with its numbers."""
        numbers = value.detach().cpu().reshape(-1).view(sys.modules["torch"].uint8).numpy()
        return str(value.dtype), tuple(value.shape), self.of(numbers)

    def _describe_code(self, code: CodeType) -> Any:
        constants = [self.of(constant) for constant in code.co_consts]
        return code.co_code.hex(), code.co_exceptiontable.hex(), code.co_names, constants

    def _describe_function(self, function: FunctionType) -> Any:
        if function.__module__ != self._module:
            return self._name(function)
        code = function.__code__
        if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        names = sorted(set(_find_names(code)) & function.__globals__.keys())
        used = [(name, self.of(function.__globals__[name])) for name in names]
        cells = [self.of(_read_cell(cell)) for cell in function.__closure__ or ()]
        return self.of(code), self.of((function.__defaults__, function.__kwdefaults__)), cells, used

    def _describe_class(self, value: type) -> Any:
        if value.__module__ != self._module:
            return self._name(value)
        own = [(key, self.of(item)) for key, item in sorted(vars(value).items()) if key not in _UNSAID]
        return self._name(value), self.of(value.__bases__), own

    def _describe_object(self, value: Any) -> Any:
        """Return what `pickle` would store of a value; of a function under `functools.cache` the function."""
        if (wrapped := inspect.getattr_static(value, "__wrapped__", None)) is not None:
            return self.of(type(value)), self.of(wrapped)
        parts = _reduce(value)
        if isinstance(parts, str):
            return parts
        maker, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        added = [self.of(list(part or ())) for part in (items, pairs)]
        return self.of(maker), self.of(arguments), self.of(state), added

    def _name(self, value: Any) -> str:
        module = getattr(value, "__module__", None)
        name = getattr(value, "__qualname__", None) or value.__name__
        return name if module == self._module else f"{module}.{name}"


def _digest(facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode(errors="backslashreplace")).hexdigest()


def _reduce(value: Any) -> Any:
    """Return how `pickle` makes a value again: a tuple, or a name. It is empty if `pickle` cannot."""
    reducer = copyreg.dispatch_table.get(type(value))
    try:
        return reducer(value) if reducer else value.__reduce_ex__(4)
    except RecursionError:
        raise
    except Exception:  # whatever a class raises that cannot be pickled
        return ""


def _read_cell(cell: Any) -> Any:
    """Return the content of a closure's cell; it is empty while its name is not bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _find_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals in a function's code and in the functions inside it."""
    yield from (item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _find_names(constant)
