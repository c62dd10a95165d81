"""Functions compiled by torch for shapes that are known before the first call.

torch compiles a function again for each new shape, which takes seconds to minutes, and gives it up for good after a
number of shapes. So a compiled function is called here with the shapes of its warm-up only; a batch is padded to the
smallest of them that holds it. What fits none of them, and what torch cannot compile, runs uncompiled (eagerly).

If a network repeats a block, only regions are compiled: the block, and costly parts around it. Then torch compiles the
block once, not the whole network (docs/log.md, Compiled blocks).

The mode is torch's default one. CUDA graphs (`reduce-overhead`) are not used. They keep a pool of memory for each
shape, closed to other models of the process. The next call overwrites their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from framekiln.device.failures import is_broken_gpu, is_out_of_memory, release_memory
from framekiln.device.lazy import torch

LAZY_SHAPES = 8  # most graphs of a function without a warm-up: torch's own limit
SMALL = 16  # rows from which a second, smaller size is compiled; padding fewer rows costs less than another graph
_MOST_GRAPHS = 64  # recompilation limit of one code object, which the same network in several steps shares

_failures: list[str] = []


def batch_sizes(rows: int) -> tuple[int, ...]:
    """Return the sizes of compiled batches, ascending: all rows, and a quarter for a last, partial batch."""
    return (-(-rows // 4), rows) if rows >= SMALL else (rows,)


def take_failures() -> list[str]:
    """Return the reasons why functions ran uncompiled in this process since the last call."""
    taken = _failures[:]
    del _failures[: len(taken)]
    return taken


class Compiled:
    """A function of tensors with a common first axis, compiled for few shapes."""

    def __init__(self, function: Callable[..., torch.Tensor], regions: Sequence[torch.nn.Module]) -> None:
        """Wrap a function of tensors n ... to a tensor n ...; nothing is compiled yet.

        `function`: rows must not depend on each other. `regions`: the modules to compile, which are changed, unless
        they are compiled already; without any, the function is compiled as a whole.
        """
        from torch import compile as compile_by_torch

        torch._dynamo.config.recompile_limit = _MOST_GRAPHS
        # Guards are checked before each call, except those of torch's global state. That state includes the number of
        # CPU threads, which other libraries change in the middle of a run. All calls here are made in inference mode.
        # TF32 and autocast are set before the first call.
        guards = {"guard_filter_fn": lambda entries: [entry.guard_type != "GLOBAL_STATE" for entry in entries]}
        compiled = partial(compile_by_torch, dynamic=False, options=guards)
        for region in regions:  # not `Module.compile`: all classes share one code object there
            if not hasattr(region.forward, "_torchdynamo_orig_callable"):  # another step shares the network
                region.forward = compiled(region.forward)
        self._function, self._compiled = function, function if regions else compiled(function)
        self._sizes: dict[object, list[int]] = {}  # sizes of compiled batches, ascending, by the shape of their rows
        self._is_lazy = True  # until the first warm-up

    def warm_up(self, *row: torch.Tensor, most: int) -> None:
        """Compile for rows of this shape. From now on other shapes are compiled only by a warm-up of their own.

        `row`: the function's arguments with one row, 1 ...; their values do not matter. `most`: rows of a full batch.
        Raises RuntimeError: the GPU is lost.
        """
        self._is_lazy = False
        self._compile(row, most)

    def __call__(self, *tensors: torch.Tensor, most: int) -> torch.Tensor:
        """Return the function's result for all rows.

        `tensors`: n ..., contiguous or not. `most`: largest batch that fits into the memory.
        """
        count, key = len(tensors[0]), _make_key(tensors)
        if self._is_lazy and key not in self._sizes and len(self._sizes) < LAZY_SHAPES:
            self._compile(tuple(tensor[:1] for tensor in tensors), most)
        size = next((size for size in self._sizes.get(key, ()) if count <= size <= most), None)
        if size is None:
            with torch.compiler.set_stance("force_eager"):  # compiled regions run uncompiled
                return self._function(*tensors)
        result = self._compiled(*(_fill(tensor, size) for tensor in tensors))
        return result if count == size else result[:count]

    def _compile(self, row: tuple[torch.Tensor, ...], most: int) -> None:
        """Compile all sizes of a shape. A size that cannot be compiled is noted, and runs uncompiled."""
        sizes, wanted = self._sizes.setdefault(_make_key(row), []), batch_sizes(most)
        try:
            with torch.inference_mode():
                for size in wanted:
                    self._compiled(*(_fill(tensor, size) for tensor in row))
                    sizes.append(size)
        except Exception as error:  # no compiler, no Triton, an unsupported operator: errors of many classes
            if is_broken_gpu(error):
                raise
            _failures.append(_find_reason(error))
        if len(sizes) < len(wanted):
            release_memory()  # outside of the handler: the error's frames hold tensors


def _make_key(tensors: Sequence[torch.Tensor]) -> object:
    return tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors)


def _fill(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Return a tensor padded to a size with its last row, in the compiled layout.

    Another layout, or a tensor made outside of inference mode, would be compiled again.
    """
    if missing := size - len(tensor):
        return torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])])
    return tensor.contiguous() if tensor.is_inference() else tensor.contiguous().clone()


def _find_reason(error: Exception) -> str:
    """Return the cause of a failure in one line, without torch's advice and logs."""
    if is_out_of_memory(error):
        return "out of memory"
    error = getattr(error, "inner_exception", error)  # an attribute of torch's BackendCompilerFailed and InductorError
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
