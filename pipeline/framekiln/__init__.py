"""Framekiln: photos and clips in, one table row a frame out, and a record of where the time went.

    import framekiln

    output = framekiln.run("photos", "out", missing_weights="skip")
    output.table("frames").to_table().to_pandas()

docs/python.md shows more. What a stage of one's own needs beyond `stage`, `Stage` and `field` is in
`framekiln.contract`. Names are loaded when they are asked for, so that an import costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framekiln.api.bench import BenchResult, bench
    from framekiln.api.compare import RunComparison, compare
    from framekiln.api.output import Output
    from framekiln.api.output import open_output as open
    from framekiln.api.plan import RunPlan, plan
    from framekiln.api.run import run
    from framekiln.contract.columns import field
    from framekiln.contract.errors import FramekilnError, UserError
    from framekiln.contract.function_stage import stage
    from framekiln.contract.stage import Stage

    __version__: str

_PLACES = {
    "BenchResult": "framekiln.api.bench:BenchResult",
    "RunComparison": "framekiln.api.compare:RunComparison",
    "FramekilnError": "framekiln.contract.errors:FramekilnError",
    "Output": "framekiln.api.output:Output",
    "RunPlan": "framekiln.api.plan:RunPlan",
    "Stage": "framekiln.contract.stage:Stage",
    "UserError": "framekiln.contract.errors:UserError",
    "bench": "framekiln.api.bench:bench",
    "compare": "framekiln.api.compare:compare",
    "field": "framekiln.contract.columns:field",
    "open": "framekiln.api.output:open_output",
    "plan": "framekiln.api.plan:plan",
    "run": "framekiln.api.run:run",
    "stage": "framekiln.contract.function_stage:stage",
}

__all__ = [
    "BenchResult",
    "FramekilnError",
    "Output",
    "RunComparison",
    "RunPlan",
    "Stage",
    "UserError",
    "__version__",
    "bench",
    "compare",
    "field",
    "open",
    "plan",
    "run",
    "stage",
]


def __getattr__(name: str) -> Any:
    """Load a name of `__all__` when it is first asked for."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("framekiln")
    elif name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        value = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
