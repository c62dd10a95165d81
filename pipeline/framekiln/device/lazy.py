"""torch under a name that imports it at its first use, because the driver plans without it.

Modules imported for planning write `from framekiln.device import torch`. An annotation would import torch at once, so
such modules keep annotations as text: `from __future__ import annotations`.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        """Return a name of the module, and keep it: the next use needs no call."""
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch as torch  # noqa: PLC0414 - so that type checkers let others import it from here
else:
    torch = LazyModule("torch")
