"""Share of a GPU's time that a process with a model uses, on a simulated GPU, through the real engine.

    python -m benchmarks.gpu_process [--photos 1500] [--repeats 3]
    python -m benchmarks.gpu_process --operations 150 [--in-flight 8] [--repeats 8]

The simulated GPU computes a batch in a stated time, in the thread that calls it, without the interpreter's lock, as a
GPU does. The work around the model is real: each row keeps a core busy before and after, for 80 % of the GPU's time
together. Each case runs with one packet at a time (`in_flight: 1`) and with several, in turns in one call.

The share is the GPU's time for all rows in full batches, by the time between a fifth and four fifths of the rows. So
batches that are not full count as waste, as on a GPU with compiled models.

With `--operations` a batch is that many small operations of torch, as a network launches them, beside threads that
compute in Python; then the GPU works for 10 ms. Who waits without the interpreter's lock must get it back before the
next launch. Switch intervals of the interpreter are compared in turns; no engine is started.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import torch

from framekiln.contract import Placement, Stage, Weights, columns
from framekiln.device import Batches, CallScheduler, wait
from framekiln.job import Job
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan_options import PlanOptions
from framekiln.runtime.run.request import RunRequest

BATCH = 64
GPU_S = 0.64  # of a batch: 100 rows a second, so that two cores keep up
HOST_SHARE = 0.8  # of the GPU's time, before and after the model together
PYTHON_S = 0.008  # a packet's work in Python before a batch
DEVICE_S = 0.01  # of a batch of many operations
INTERVALS = (5e-3, 2e-4)  # s: the interpreter's own, and that of a process with an owner thread
SIDES = ((800, 1280), (1600, 2560), (400, 640), (1000, 1000))  # px: packets of 43 rows, and of 10 to 174


class Simulated(Stage):
    """A model that takes a stated time for a batch, and work of a core before and after it."""

    devices = ("cpu", "cuda")
    dummy_weights = True
    thread_safe = True
    inputs = ("frame",)
    weights = ("clip-vit-b32",)  # a stage with weights has a process of its own

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The times of a batch, and where each batch is noted."""

        log: str
        column: str = "answer"
        gpu_s: float = GPU_S
        host_share: float = HOST_SHARE

    @property
    def outputs(self) -> pa.Schema:
        """One column."""
        return pa.schema([columns.field(self.config.column, pa.float32(), "what the model returns: the row's level")])

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Measure how much work keeps a core busy for a row's share."""
        begin = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"row", b"", 20_000)
        rate = 20_000 / (time.perf_counter() - begin)
        self._rounds = max(1, int(rate * self.config.host_share * self.config.gpu_s / placement.batch / 2))
        if placement.in_flight > 1 and not Batches.calls.has_owner:  # as its process has one on a GPU
            Batches.calls = CallScheduler(placement.device, placement.linger_ms / 1000)
        self._batches = Batches(self._compute, placement)
        self._rows = placement.batch

    def _compute(self, levels: Any) -> Any:
        time.sleep(self.config.gpu_s)  # a batch that is not full takes as long as a full one
        with Path(self.config.log).open("a") as log:
            log.write(json.dumps([time.time(), len(levels)]) + "\n")
        return levels

    def _host_work(self, rows: int) -> None:
        for _ in range(rows):
            hashlib.pbkdf2_hmac("sha256", b"row", b"", self._rounds)  # without the interpreter's lock

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Work, call the model, and work again."""
        with self.phase("preprocess"):
            levels = torch.tensor([float(image[0, 0, 0]) for image in columns.views(batch["frame"])])
            self._host_work(len(levels))
        with self.phase("infer"):
            answer = self._batches(levels)
            wait("cpu")
        with self.phase("postprocess"):
            self._host_work(len(levels))
            return pa.table([pa.array(answer.numpy(), pa.float32())], schema=self.outputs)


def make_photos(folder: Path, count: int, *, mixed: bool) -> None:
    """Write photos of one colour, which are quick to decode, of one size or of four."""
    folder.mkdir(parents=True)
    for i in range(count):
        height, width = SIDES[i // 50 % len(SIDES) if mixed else 0]
        cv2.imwrite(str(folder / f"{i:05}.jpg"), np.full((height, width, 3), i % 256, np.uint8))


def share(folder: Path, steps: int, in_flight: int) -> tuple[float, float]:
    """Return the GPU's share in the steady state, and over the whole time from the first batch to the last."""
    with tempfile.TemporaryDirectory() as out:
        log = Path(out) / "batches.jsonl"
        use = "benchmarks.gpu_process:Simulated"
        entries = {
            f"model{i}": {"use": use, "with": {"log": str(log), "column": f"answer{i}", "gpu_s": GPU_S / steps}}
            for i in range(steps)
        }
        place = {"batch": BATCH, "in_flight": in_flight, "cpus": 0.5, "group": "gpu"}
        Job(
            RunRequest(
                inputs=(str(folder),),
                output=str(Path(out) / "out"),
                pipeline=PipelineFile.model_validate({"steps": entries}),
                profile=ProfileFile.model_validate({"steps": dict.fromkeys(entries, place)}),
                profile_name="simulated",
                options=PlanOptions(missing_weights="dummy"),
            )
        ).run()
        times, rows = np.array([json.loads(line) for line in log.read_text().splitlines()]).T
    used, done = rows * GPU_S / steps / BATCH, np.cumsum(rows)
    first, last = np.searchsorted(done, [0.2 * done[-1], 0.8 * done[-1]])
    steady = used[first + 1 : last + 1].sum() / (times[last] - times[first])
    return float(steady), float(used[1:].sum() / (times[-1] - times[0]))


def launching(operations: int, threads: int, interval: float, seconds: float = 1.0) -> tuple[float, float]:
    """Return the seconds that a batch takes beyond the GPU's time in the median, and the batches a second."""
    begin, taken = time.perf_counter(), list[float]()
    count = int(1e5 * PYTHON_S / timeit.timeit(lambda: _count(100_000), number=3) * 3)

    def launch(levels: Any) -> Any:
        started = time.perf_counter()
        for _ in range(operations):
            levels = levels + 1
        time.sleep(DEVICE_S)
        taken.append(time.perf_counter() - started - DEVICE_S)
        return levels

    def packets() -> None:
        while time.perf_counter() < begin + seconds:
            with calls.packet():
                _count(count)
                batches(torch.zeros(8, 1))

    calls = Batches.calls = CallScheduler("cpu", 0.0)
    sys.setswitchinterval(interval)
    batches, begin = Batches(launch, Placement(batch=8)), time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(threads):
            pool.submit(packets)
    calls.close()
    return statistics.median(taken), len(taken) / (time.perf_counter() - begin)


def _count(rounds: int) -> int:
    number = 0
    for i in range(rounds):
        number += i
    return number


def compare_intervals(operations: int, threads: int, repeats: int) -> None:
    """Print a line for each switch interval, in pairs of runs, and one for launching beside no thread."""
    pairs = [[launching(operations, threads, interval) for interval in INTERVALS] for _ in range(repeats)]
    for number, interval in enumerate(INTERVALS):
        times, rates = zip(*(pair[number] for pair in pairs), strict=True)
        print(
            f"{1e3 * interval:4.1f} ms   beyond the GPU's time {1e3 * statistics.median(times):6.2f} ms "
            f"({1e3 * min(times):.2f} to {1e3 * max(times):.2f})   {statistics.median(rates):6.1f} batches/s"
        )
    faster = sum(new[0] < old[0] for old, new in pairs), sum(new[1] > old[1] for old, new in pairs)
    alone = launching(operations, 1, INTERVALS[0])[0]
    print(f"of {repeats} pairs less time in {faster[0]}, more batches in {faster[1]}; one thread {1e3 * alone:.2f} ms")


def main() -> None:
    """Print a table: a line for each case, with the shares and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--photos", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=16)  # as on the largest GPU
    parser.add_argument("--operations", type=int, default=0, help="small operations a batch; see above")
    options = parser.parse_args()
    if options.operations:
        compare_intervals(options.operations, options.in_flight, options.repeats)
        return
    cases = {  # mixed sizes, models in the process
        "one model": (False, 1),
        "photos of four sizes": (True, 1),
        "three models in one process": (True, 3),
    }
    print(f"{'':28} one packet  {options.in_flight} packets  ratio   whole run, with its end")
    with tempfile.TemporaryDirectory() as folder:
        for name, (mixed, steps) in cases.items():
            photos = Path(folder) / name.replace(" ", "-")
            make_photos(photos, options.photos, mixed=mixed)
            runs = [
                [share(photos, steps, in_flight) for in_flight in (1, options.in_flight)]
                for _ in range(options.repeats)
            ]
            before, after = (statistics.median(run[i][0] for run in runs) for i in (0, 1))
            whole = [statistics.median(run[i][1] for run in runs) for i in (0, 1)]
            print(f"{name:28} {before:10.3f} {after:10.3f} {after / before:6.2f}   {whole[0]:.3f} {whole[1]:.3f}")


if __name__ == "__main__":
    main()
