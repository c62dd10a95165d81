"""Rate of a stage in a worker, as a share of its model's rate: published architectures, random weights if missing.

    python -m benchmarks.stages --device cuda                          # full size
    python -m benchmarks.stages --small                                # smaller models, minutes on two cores
    python -m benchmarks.stages --stages categorize --batches 1,64,256 --precisions full,bf16 --compile both

The worker's rate counts whole calls on decoded photos of 1 MP in memory: preprocessing, copies, the model,
postprocessing. The limit is the model alone: the worker's calls of it, repeated on input that is already on the
device. Figures are medians of `--repeats` turns of at least `--seconds` each, without reading and decoding of files.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.made_rows import PHOTO, rows_for
from framekiln.device import recorded_calls, wait
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.planning.manifest import PipelineFile, ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.planning.step import Step
from framekiln.profiling.step_work import StepWork
from framekiln.runtime.calls.packet_caller import PacketCaller
from framekiln.runtime.stage_setup import set_up

STAGES = ("categorize", "faces", "segment", "inpaint")
SETTINGS: dict[str, dict[str, Any]] = {"faces": {"model": "arcface-r50", "runtime": "torch"}}
"""Without the detector's weights each image has the same four faces, which are then cut and embedded."""

SMALL: dict[str, dict[str, Any]] = {
    "faces": {"model": "mobilefacenet", "runtime": "torch"},
    "categorize": {"model": "clip-vit-b32"},
    "segment": {"model": "sam2.1-hiera-tiny", "points_per_side": 4},
}
"""Settings with which two cores measure each stage within a minute."""


@dataclass(frozen=True, kw_only=True)
class StageCase:
    """One way to run one stage."""

    stage: str
    batch: int
    precision: str
    compile: bool
    device: str
    small: bool


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Rates in rows a second; GPU memory in GB."""

    worker: float
    limit: float
    share: float
    peak: float | None
    set_up: float  # seconds, with the first call, which compiles the model


def _settings(case: StageCase) -> dict[str, Any]:
    return SETTINGS.get(case.stage, {}) | (SMALL.get(case.stage, {}) if case.small else {})


def step_of(case: StageCase) -> Step:
    """Return the step of the shipped pipeline with the placement of a case."""
    entry = {"device": case.device, "batch": case.batch, "precision": case.precision, "compile": case.compile}
    profile = {"steps": {case.stage: {**entry, "gpus": 0.0, "with": _settings(case)}}}
    steps = {name: step.model_dump(by_alias=True) for name, step in read_pipeline(None).steps.items()}
    files = PipelineFile.model_validate({"steps": steps}), ProfileFile.model_validate(profile)
    choices = PlanOptions(stages=(case.stage,), missing_weights="dummy", accept_license=True)
    plan = make_plan(*files, choices, [ROOMY], calibrated=False)  # the case sets the batch
    return next(step for step in plan.first if step.name == case.stage)


def rate(call: Callable[[], object], rows: int, device: str, seconds: float) -> float:
    """Return the rows a second of calls repeated for some seconds, at least one."""
    wait(device)
    limits = TimeLimits(warmup=0, least=1, wanted=1, seconds=seconds)
    return timed(call, partial(wait, device), limits).rate(rows)


def measure(case: StageCase, seconds: float, repeats: int) -> Measurement:
    """Measure the worker and the limit in turns, after one call of each."""
    import torch

    start = time.perf_counter()
    step = step_of(case)
    torch.set_num_threads(max(1, int(step.placement.cpus)))  # as in a worker's process under Ray
    set_up(step)
    rows, caller = rows_for(step, [PHOTO] * case.batch), PacketCaller(step)
    nothing = np.zeros(case.batch, bool)

    peaks = list[float]()

    def work() -> None:
        counts = StepWork()  # reads the memory peak of each call, and resets it
        if failures := caller.run(rows, nothing, work=counts).failures:
            raise SystemExit(f"{case.stage}: {failures[0].kind}: {failures[0].message}")
        peaks.extend([] if counts.memory is None else [counts.memory[2]])

    work()
    started = time.perf_counter() - start
    with recorded_calls() as calls:
        work()

    def alone() -> None:
        with torch.inference_mode():
            for call in calls:
                call()

    alone()
    pairs = [
        (rate(work, case.batch, case.device, seconds), rate(alone, case.batch, case.device, seconds))
        for _ in range(repeats)
    ]
    shares = statistics.median(worker / limit for worker, limit in pairs)
    worker, limit = (statistics.median(values) for values in zip(*pairs, strict=True))
    return Measurement(worker=worker, limit=limit, share=shares, peak=max(peaks, default=None), set_up=started)


def machine(device: str) -> str:
    """Return the device and the versions that were measured."""
    import torch

    if device != "cpu":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
    return f"one CPU thread, torch {torch.__version__}, Python {platform.python_version()}"


def cases(options: argparse.Namespace) -> Iterator[StageCase]:
    """Yield all cases of the command line."""
    compiles = {"no": (False,), "yes": (True,), "both": (False, True)}[options.compile]
    for stage in options.stages.split(","):
        for batch in map(int, options.batches.split(",")):
            for precision in options.precisions.split(","):
                for compiled in compiles:
                    yield StageCase(
                        stage=stage,
                        batch=batch,
                        precision=precision,
                        compile=compiled,
                        device=options.device,
                        small=options.small,
                    )


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batches", default="1,8", help="rows of one call, as 1,16,256")
    parser.add_argument("--precisions", default="fp32", help="of fp32, auto, fp16, bf16")
    parser.add_argument("--compile", default="no", choices=("no", "yes", "both"))
    parser.add_argument("--small", action="store_true", help="smaller models, for a CPU")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args(words)


def main() -> None:
    """Measure each case and print a row of a Markdown table for it."""
    options = arguments()
    small = ", --small" if options.small else ""
    print(f"{time.strftime('%Y-%m-%d')}, {machine(options.device)}, random weights{small}\n")
    print("| stage | batch | precision | compiled | worker rows/s | model alone | share | peak VRAM GB | set-up s |")
    print("|---|--:|---|---|--:|--:|--:|--:|--:|")
    for case in cases(options):
        result = measure(case, options.seconds, options.repeats)
        peak = "" if result.peak is None else f"{result.peak:.1f}"
        title = f"{case.stage} | {case.batch} | {case.precision} | {'yes' if case.compile else ''}"
        rates = f"{result.worker:,.2f} | {result.limit:,.2f} | {result.share:.2f}"
        print(f"| {title} | {rates} | {peak} | {result.set_up:.1f} |", flush=True)


if __name__ == "__main__":
    main()
