"""Prove on a GPU what Framekiln claims; each step in a process of its own, with a limit.

    python -m benchmarks.gpu --out results                      # all steps
    python -m benchmarks.gpu --only equality,shares             # some
    python -m benchmarks.gpu --device cpu --small               # a trial of the steps themselves, without a GPU
    python -m benchmarks.gpu --dry-run                          # which steps, and how long at most

A step that fails or exceeds its limit ends alone. Each result is printed as it comes, on standard error. The document
of all results is printed on standard output, and written to DIR/gpu.json after each step. The exit code is 1 if a step
failed. Media and weights are made here; Framekiln's other needs are torch, transformers and, for three steps, Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.options import ROOMY_GB, GpuOptions, gpu_gb, rounded
from benchmarks.gpu.runner import STEPS, GpuStep, StepResult, document, run_steps
from framekiln.weights.checksums import cache_root

LIMIT_S = 570.0  # of all steps: ten minutes, less what starting and reporting take


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0], prog="python -m benchmarks.gpu"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu only for a trial with --small")
    parser.add_argument("--small", action="store_true", help="small models, few rows, nothing compiled")
    parser.add_argument("--compile", action="store_true", help="with --small: compiled models too")
    parser.add_argument("--eager", action="store_true", help="no compiled models")
    parser.add_argument("--only", metavar="STEP,...", help="these steps, in their usual order")
    parser.add_argument("--cases", metavar="WORD,...", help="only cases with one of these words in their titles")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for gpu.json")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder for files of the steps, kept for later calls")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="of all steps; 570 without it")
    parser.add_argument("--dry-run", action="store_true", help="print the steps with their times at most, and end")
    parser.add_argument("--gb", type=float, metavar="GB", help="with --dry-run: memory of a GPU that is not here")
    return parser.parse_args(words)


def chosen(only: str | None) -> list[GpuStep]:
    """Return the steps of `--only`; all without it."""
    names = {step.name for step in STEPS}
    wanted = set(only.split(",")) if only else names
    if unknown := sorted(wanted - names):
        raise SystemExit(
            f"--only: there is no step {unknown[0]!r}; choose from {', '.join(step.name for step in STEPS)}."
        )
    return [step for step in STEPS if step.name in wanted]


def print_plan(steps: Sequence[GpuStep], limit_s: float, gigabytes: float) -> None:
    """Print when each step begins at the latest on a GPU, and the command that gives all of them their time."""
    begin, at_once = 0.0, 5 if gigabytes >= ROOMY_GB else 1
    for step in steps:
        most_s = step.most_s(at_once)
        late = "" if begin < limit_s else " *"
        print(f"{begin / 60:4.0f} min  {step.name:12} {most_s:4.0f} s at most  {step.about}{late}")
        begin += most_s
    if begin > limit_s:
        print(f"* begins within --limit {limit_s:.0f} only if others take less than their most.")
    print(f"Times for {gigabytes:.0f} GB of GPU memory (--gb); they are three times as long below {ROOMY_GB:.0f} GB.")
    only = f" --only {','.join(step.name for step in steps)}" if len(steps) < len(STEPS) else ""
    print(f"All of it: python -m benchmarks.gpu{only} --work WORK --out RESULTS --limit {begin:.0f}")


def main() -> None:
    """Run the chosen steps."""
    words = arguments()
    steps = chosen(words.only)
    if words.dry_run:
        print_plan(steps, words.limit, words.gb or gpu_gb() or ROOMY_GB)
        if words.cases:
            print("--cases: each step looks for its cases when it runs, and is skipped if it has none of them.")
        return
    if words.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; add --device cpu --small for a trial of the steps without one.")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))  # for later steps and calls
    if sys.dont_write_bytecode or not Path(cache_from_source(torch.__file__)).exists():
        _show({"note": "Python keeps no bytecode here, so each process takes longer: unset PYTHONDONTWRITEBYTECODE."})
    with _work_folder(words.work) as folder:
        options = GpuOptions(
            folder=folder,
            device=words.device,
            small=words.small,
            compile=words.compile or not (words.small or words.eager),
            words=tuple(words.cases.split(",")) if words.cases else (),
        )
        results: list[StepResult] = []
        for result in run_steps(steps, options, words.limit, _show):
            summary = {key: value for key, value in asdict(result).items() if key != "results"}
            _show(rounded(summary))
            results.append(result)
            if words.out is not None:
                words.out.mkdir(parents=True, exist_ok=True)
                (words.out / "gpu.json").write_text(json.dumps(document(options, results), indent=1) + "\n")
        print(json.dumps(document(options, results)))
    sys.exit(any(result.outcome in ("failed", "timeout") for result in results))


def _show(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=sys.stderr, flush=True)


@contextmanager
def _work_folder(wanted: Path | None) -> Iterator[Path]:
    """Give the steps a folder; a temporary one if none is wanted."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted
        return
    with tempfile.TemporaryDirectory(prefix="framekiln-gpu-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
