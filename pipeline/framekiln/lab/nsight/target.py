"""Calls of one model for Nsight's tools: `python -m framekiln.lab.nsight.target TARGET`, a `Target` as JSON.

Each call is an NVTX range, named by its number. With --range, only the calls after the warm-up lie between start and
stop of CUDA's profiler interface.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from framekiln.device import torch
from framekiln.lab.bench import recipes
from framekiln.lab.nsight.session import Target
from framekiln.planning.manifest import read_pipeline

_WARM_UP = 3  # calls: the first loads kernels and chooses algorithms


def main(words: Sequence[str]) -> int:
    """Make the calls, and return their number."""
    target = TypeAdapter(Target).validate_json(words[0])
    profiler: Any = torch.cuda.profiler
    pipeline, ranged = read_pipeline(target.pipeline), "--range" in words[1:] and target.device != "cpu"
    with recipes([target.model], pipeline, target.device, target.inputs, target.weights_dir) as (model,):
        batch = (model.about()["axes"].get("batch") or 1) if target.own_batch else target.cell.batch
        prepared = model.prepare(replace(target.cell, batch=batch), target.device)
        for number in range(_WARM_UP):
            _mark(target.device, f"warm-up {number + 1}", prepared.call)
        prepared.wait()
        if ranged:
            profiler.start()
        for number in range(target.calls):
            _mark(target.device, f"call {number + 1}", prepared.call)
            prepared.wait()
        if ranged:
            profiler.stop()
        return target.calls


def _mark(device: str, name: str, call: Callable[[], object]) -> None:
    with torch.cuda.nvtx.range(name) if device != "cpu" else nullcontext():
        call()


if __name__ == "__main__":
    main(sys.argv[1:])
