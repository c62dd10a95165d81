"""The time of a model's modules by path, from hooks on each module down to a depth.

Hooks cost about 2 us a module on a CPU. So the depth is limited, and totals are never timed with hooks on. Compiled
models bypass hooks: the table is for eager mode. On a GPU, times lie between events in its stream. If launches are
slower than kernels, they measure Python.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from framekiln.contract.phases import PhaseClock
from framekiln.device import clock_of, torch
from framekiln.lab.output.cells import Layer

if TYPE_CHECKING:
    from torch import nn

WHOLE = "(model)"
"""Path of everything outside the listed modules."""


@contextmanager
def around_modules(
    roots: Mapping[str, nn.Module], depth: int, before: Callable[..., None], after: Callable[..., None]
) -> Iterator[None]:
    """In this block, call functions before and after each call of a module, even if it raises.

    They get the module's path first, then what torch gives its hooks.
    """
    with ExitStack() as stack:
        for path, module, _ in modules_to(roots, depth):
            stack.callback(module.register_forward_pre_hook(partial(before, path), prepend=True).remove)
            stack.callback(module.register_forward_hook(partial(after, path), always_call=True).remove)
        yield


@contextmanager
def hooked(roots: Mapping[str, nn.Module], depth: int, clock: PhaseClock) -> Iterator[Counter[str]]:
    """Time modules in this block; yields the number of uses by path, which keeps counting."""
    uses = Counter[str]()

    def after(path: str, *_: object) -> None:
        uses[path] += 1
        clock.end(path)

    with around_modules(roots, depth, lambda *_: clock.begin(), after):
        yield uses


def modules_to(roots: Mapping[str, nn.Module], depth: int) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield each module once, with its path and depth: named roots at 0, their children at 1.

    Lists of modules are never called themselves. They take no level, so that an encoder's blocks are its children.
    """
    seen: set[int] = set()
    waiting = [(name, root, 0) for name, root in reversed(list(roots.items()))]
    while waiting:
        path, module, level = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        is_list = type(module).forward is torch.nn.Module.forward
        if path and not is_list:
            yield path, module, level
        below = level if is_list else level + 1
        if below <= depth:
            children = [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
            waiting += [(name, child, below) for name, child in reversed(children)]


def measure_layers(
    call: Callable[[], Any], roots: Mapping[str, nn.Module], depth: int, device: str, calls: int
) -> list[Layer]:
    """Return a model's modules with their times, parents before children, after one untimed call in eager mode.

    `roots`: its modules by path (empty path: the module is the model). `depth`: levels of children. A module's time
    includes the paths below it.
    """
    clock = clock_of(device)
    seconds: list[Mapping[str, float]] = []
    with hooked(roots, depth, clock) as uses:
        call()
        clock.take()
        uses.clear()
        for _ in range(calls):
            clock.begin()
            try:
                call()
            finally:
                clock.end(WHOLE)
            seconds.append(dict(clock.take()))
    whole = [1000 * sum(call.values()) for call in seconds]
    mean = statistics.fmean(whole)
    rows = [_make_layer(WHOLE, "", 0, 1, whole, [1000 * call.get(WHOLE, 0.0) for call in seconds], mean)]
    for path, module, level in modules_to(roots, depth):
        if path in uses:
            own = [1000 * call.get(path, 0.0) for call in seconds]
            below = [1000 * sum(s for name, s in call.items() if name.startswith(f"{path}.")) for call in seconds]
            total = [a + b for a, b in zip(own, below, strict=True)]
            rows.append(_make_layer(path, type(module).__name__, level, round(uses[path] / calls), total, own, mean))
    return rows


def slowest(layers: Sequence[Layer], count: int = 5) -> list[Layer]:
    """Return the layers with the most own time, slowest first."""
    return sorted((layer for layer in layers if layer.path != WHOLE), key=lambda layer: -layer.own_ms)[:count]


def _make_layer(
    path: str, kind: str, depth: int, uses: int, total: Sequence[float], own: Sequence[float], whole: float
) -> Layer:
    return Layer(
        path=path,
        kind=kind,
        depth=depth,
        uses=uses,
        mean_ms=statistics.fmean(total),
        std_ms=statistics.stdev(total) if len(total) > 1 else None,
        own_ms=statistics.fmean(own),
        share=statistics.fmean(total) / whole if whole else 0.0,
    )
