"""Work that a block gives to its device, counted on the CPU: launches, waits, and the most bytes held at once.

A launch is an operation of torch that is not a view; on a GPU each is at least one kernel or copy. A wait is a call for
which the CPU waits for a GPU: a download, a value or a size that depends on data, or an upload from memory that is not
page-locked.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FREE = {"detach", "alias", "lift_fresh", "is_same_size", "empty", "empty_like", "new_empty", "empty_strided"}
_VALUES = {"item", "equal", "__bool__", "__int__", "__float__", "tolist", "cpu"}
_WAITS = _VALUES | {"nonzero", "unique", "masked_select", "argwhere"}
_MAKERS = {"tensor", "as_tensor", "new_tensor"}  # of Python numbers, that are then copied to the device


class DeviceWork(TorchDispatchMode):
    """Counter of the operations in its block, in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.held = self.peak = 0  # bytes made in the block
        self._seen: set[int] = set()
        self._calls = _Calls(self.waits)

    def __enter__(self) -> DeviceWork:
        self._calls.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._calls.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _FREE:
            self.launches[name] += 1
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._hold(leaf.untyped_storage())
        return result

    def _hold(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._seen or not storage.nbytes():
            return
        self._seen.add(id(storage))
        self.held += storage.nbytes()
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._free, id(storage), storage.nbytes())

    def _free(self, number: int, size: int) -> None:
        self._seen.discard(number)
        self.held -= size


class _Calls(TorchFunctionMode):
    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name in _WAITS | _MAKERS:
            self._waits[name] += 1
        elif name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(_waits(part) for part in index):
                self._waits["index"] += 1
        return func(*args, **(kwargs or {}))


def _waits(index: Any) -> bool:
    """Return whether a part of an index is copied to the device, or has a size that depends on data."""
    if isinstance(index, torch.Tensor):
        return index.dtype == torch.bool
    return isinstance(index, (list, np.ndarray))
