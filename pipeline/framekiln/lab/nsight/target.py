"""Calls of one model for Nsight's tools: `python -m framekiln.lab.nsight.target MODEL`.

Each call is an NVTX range, named by its number. With --range only the calls after the warm-up are between the start
and the stop of CUDA's profiler interface.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from framekiln.device import torch

_WARM_UP = 3  # calls: the first loads kernels and chooses algorithms


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the calls, and return how many."""
    from framekiln.lab.bench import recipes
    from framekiln.lab.output.cells import Cell
    from framekiln.planning.manifest import read_pipeline

    args = _parser().parse_args(arguments)
    place = {"pipeline": read_pipeline(args.pipeline), "inputs": args.input, "weights_dir": args.weights_dir}
    with recipes([args.model], device=args.device, **place) as (recipe,):
        model = recipe.build()
        own = {"batch": model.about()["axes"].get("batch") or 1}
        prepared = model.prepare(Cell(**own | args.cell), args.device)
        for number in range(_WARM_UP):
            _marked(args.device, f"warm-up {number + 1}", prepared.call)
        prepared.wait()
        _profiler(args, "start")
        for number in range(args.calls):
            _marked(args.device, f"call {number + 1}", prepared.call)
            prepared.wait()
        _profiler(args, "stop")
        return int(args.calls)


def _marked(device: str, name: str, call: Any) -> None:
    with torch.cuda.nvtx.range(name) if device != "cpu" else nullcontext():
        call()


def _profiler(args: argparse.Namespace, what: str) -> None:
    if args.range and args.device != "cpu":
        getattr(torch.cuda.profiler, what)()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cell", type=json.loads, default={}, help="fields of a bench's cell, as JSON")
    parser.add_argument("--calls", type=int, default=10)  # enough to see what repeats, few enough to read
    parser.add_argument("--weights-dir", type=Path)
    parser.add_argument("--pipeline", help="with the step that MODEL may be")
    parser.add_argument("--input", action="append", default=[], help="media for a step")
    parser.add_argument("--range", action="store_true")
    return parser


if __name__ == "__main__":
    main()
