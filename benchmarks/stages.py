"""What a stage keeps of its model's rate, as a worker runs it: random weights, the published architectures.

    python benchmarks/stages.py --device cuda                          # full size: what a GPU is bought for
    python benchmarks/stages.py --small                                # minutes on two cores, smaller models
    python benchmarks/stages.py --stages categorize --batches 1,64,256 --precisions full,bf16 --compile both

The worker's rate counts whole calls on decoded photos of 1 MP in memory: preprocessing, copies, the model,
postprocessing. The ceiling is the model alone: the calls that the worker made of it, made again on their input, which
lies on the device already. Weights that are at hand are used, others are random.
Figures are medians of `--repeats` turns of at least `--seconds` each. Reading and decoding files are not part of it.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.calls import Caller
from pipeline.columns import SOURCE, Image, is_pixels, pack, reduction, short_side
from pipeline.device import overheard, wait
from pipeline.machines import ROOMY
from pipeline.manifest import PipelineFile, ProfileFile, read_pipeline
from pipeline.packet import HALO
from pipeline.plan import Choices, make_plan
from pipeline.readiness import set_up
from pipeline.recorder import Notes
from pipeline.step import Step
from samples.make import photos
from stages.nets.masks import MASK, encode

PHOTO = (800, 1280)  # height and width, 1 MP
STAGES = ("categorize", "faces", "segment", "inpaint")
SETTINGS: dict[str, dict[str, Any]] = {"faces": {"model": "arcface-r50", "runtime": "torch"}}
"""Without the detector's weights each picture has the same four faces, which are then cut and embedded."""

SMALL: dict[str, dict[str, Any]] = {
    "faces": {"model": "mobilefacenet", "runtime": "torch"},
    "categorize": {"model": "clip-vit-b32"},
    "segment": {"model": "sam2.1-hiera-tiny", "points_per_side": 4},
}
"""Settings by which two cores measure each stage within a minute."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run one stage."""

    stage: str
    batch: int
    precision: str
    compile: bool
    device: str
    small: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """Rates in rows a second; gigabytes on a GPU."""

    worker: float
    ceiling: float
    share: float
    peak: float | None
    set_up: float  # seconds, the first call included: that is when a model is compiled


def _settings(case: Case) -> dict[str, Any]:
    return SETTINGS.get(case.stage, {}) | (SMALL.get(case.stage, {}) if case.small else {})


def step_of(case: Case) -> Step:
    """The step of the shipped pipeline, placed as the case says."""
    entry = {"device": case.device, "batch": case.batch, "precision": case.precision, "compile": case.compile}
    profile = {"steps": {case.stage: {**entry, "gpus": 0.0, "with": _settings(case)}}}
    steps = {name: step.model_dump(by_alias=True) for name, step in read_pipeline(None).steps.items()}
    files = PipelineFile.model_validate({"steps": steps}), ProfileFile.model_validate(profile)
    choices = Choices(stages=(case.stage,), missing_weights="dummy", accept_license=True)
    plan = make_plan(*files, choices, [ROOMY], calibrated=False)  # the case says the batch
    return next(step for step in plan.first if step.name == case.stage)


def rows_for(step: Step, count: int) -> pa.Table:
    """Decoded photos as a packet has them, with the columns of other steps that this one reads."""
    pictures = list(windows(count))
    known = {
        "media_id": [f"{i}.jpg" for i in range(count)],
        "height": [PHOTO[0]] * count,
        "width": [PHOTO[1]] * count,
        "frame_index": [0] * count,
        "clip_index": [0] * count,
        "masks": [[mask()]] * count,
    }
    types = {item.name: item.type for item in SOURCE} | {"masks": pa.list_(MASK)}
    names = dict.fromkeys(("media_id", "frame_index", "clip_index", "height", "width", *step.stage.inputs))
    columns = {
        name: pack([reduced(image, name) for image in pictures])
        if is_pixels(name)
        else pa.array(known[name], types[name])
        for name in names
    }
    return pa.table({**columns, HALO: pa.array([False] * count)})


def windows(count: int) -> Iterator[Image]:
    """Windows of a sample photo, enlarged."""
    source = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    source = cv2.resize(source, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    places = np.random.default_rng(0)
    for _ in range(count):
        top, left = (places.integers(0, whole - part) for whole, part in zip(source.shape[:2], PHOTO, strict=True))
        yield source[top : top + PHOTO[0], left : left + PHOTO[1]]


def reduced(image: Image, column: str) -> Image:
    """As decoding hands it to a stage that asks for this column."""
    factor = reduction(image.shape[0], image.shape[1], short_side(column))
    size = (-(-image.shape[1] // factor), -(-image.shape[0] // factor))
    return image if factor == 1 else cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def mask() -> dict[str, Any]:
    """An ellipse of a tenth of the picture, about as large as what is painted over."""
    rows, columns = np.ogrid[: PHOTO[0], : PHOTO[1]]
    inside = ((rows / PHOTO[0] - 0.5) / 0.18) ** 2 + ((columns / PHOTO[1] - 0.5) / 0.18) ** 2 < 1
    box = dict(zip(("x0", "y0", "x1", "y1"), (0.32, 0.32, 0.68, 0.68), strict=True))
    scores = {"predicted_iou": 0.9, "stability_score": 0.97, "point": {"x": 0.5, "y": 0.5}}
    return {"segmentation": encode([inside])[0], "area": int(inside.sum()), "box": box, **scores}


def rate(call: Callable[[], object], rows: int, device: str, seconds: float) -> float:
    """Rows a second of calls that go on for so long, and of one at least."""
    wait(device)
    start, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - start < seconds:
        call()
        done += rows
    wait(device)
    return done / (time.perf_counter() - start)


def measure(case: Case, seconds: float, repeats: int) -> Found:
    """The worker and the ceiling in turns, after one call of each."""
    import torch

    start = time.perf_counter()
    step = step_of(case)
    torch.set_num_threads(max(1, int(step.placement.cpus)))  # as many as Ray gives to a worker's process
    set_up(step)
    rows, caller = rows_for(step, case.batch), Caller(step)
    nothing = np.zeros(case.batch, bool)

    peaks = list[float]()

    def work() -> None:
        notes = Notes()  # reads the peak of each call, and begins anew
        if failures := caller.run(rows, nothing, notes=notes).failures:
            raise SystemExit(f"{case.stage}: {failures[0].kind}: {failures[0].message}")
        peaks.extend([] if notes.memory is None else [notes.memory[2]])

    work()
    started = time.perf_counter() - start
    with overheard() as calls:
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
    shares = statistics.median(worker / ceiling for worker, ceiling in pairs)
    worker, ceiling = (statistics.median(values) for values in zip(*pairs, strict=True))
    return Found(worker=worker, ceiling=ceiling, share=shares, peak=max(peaks, default=None), set_up=started)


def machine(device: str) -> str:
    """What the figures are of."""
    import torch

    if device != "cpu":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
    return f"one CPU thread, torch {torch.__version__}, Python {platform.python_version()}"


def cases(words: argparse.Namespace) -> Iterator[Case]:
    """All that the command line asks for."""
    compiles = {"no": (False,), "yes": (True,), "both": (False, True)}[words.compile]
    for stage in words.stages.split(","):
        for batch in map(int, words.batches.split(",")):
            for precision in words.precisions.split(","):
                for compiled in compiles:
                    yield Case(
                        stage=stage,
                        batch=batch,
                        precision=precision,
                        compile=compiled,
                        device=words.device,
                        small=words.small,
                    )


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batches", default="1,8", help="rows of one call, as 1,16,256")
    parser.add_argument("--precisions", default="full", help="of full, mixed, fp16, bf16")
    parser.add_argument("--compile", default="no", choices=("no", "yes", "both"))
    parser.add_argument("--small", action="store_true", help="smaller models, for a CPU")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args(given)


def main() -> None:
    """Measure each case and print a row of a Markdown table for it."""
    words = arguments()
    print(f"{time.strftime('%Y-%m-%d')}, {machine(words.device)}, random weights{', --small' if words.small else ''}\n")
    print("| stage | batch | precision | compiled | worker rows/s | model alone | share | peak VRAM GB | set-up s |")
    print("|---|--:|---|---|--:|--:|--:|--:|--:|")
    for case in cases(words):
        found = measure(case, words.seconds, words.repeats)
        peak = "" if found.peak is None else f"{found.peak:.1f}"
        how = f"{case.stage} | {case.batch} | {case.precision} | {'yes' if case.compile else ''}"
        rates = f"{found.worker:,.2f} | {found.ceiling:,.2f} | {found.share:.2f}"
        print(f"| {how} | {rates} | {peak} | {found.set_up:.1f} |", flush=True)


if __name__ == "__main__":
    main()
