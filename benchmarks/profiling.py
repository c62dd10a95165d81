"""Overhead of records: a worker's time on small packets with and without them, in turns, in one process.

    python -m benchmarks.profiling [--packets 600]

A packet is 16 reduced photos (224 px), far smaller than those of a run (128 MB or 512 rows), which gives the highest
possible frequency of records. `lighting` is the cheapest stage. Both workers write their parts to one disk, and take
turns packet by packet, so that other load on the machine affects both. The target is less than 1 %. The last line is
the cost of live figures outside of the workers: metrics for each packet, and the driver's figures at each update.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace

import cv2
import pyarrow as pa

from framekiln.contract.columns import pack
from framekiln.contract.packet import Packet, packet_schema
from framekiln.media.samples import photos
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.profiling.records import StepEvent
from framekiln.profiling.stats.live import LiveWindow
from framekiln.runtime.step_results import FAILED
from framekiln.runtime.worker import Worker

ROWS = 16
WARM = 20  # packets that are not counted


def packet(columns: tuple[str, ...]) -> Packet:
    """Return rows of one photo, as they reach a step."""
    image = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    small = cv2.resize(image, (336, 224), interpolation=cv2.INTER_AREA)
    numbers = range(ROWS)
    source = {
        "media_id": [f"{i}.jpg" for i in numbers],
        "frame_index": [0] * ROWS,
        "media_type": ["photo"] * ROWS,
        "clip_index": [0] * ROWS,
        "height": [small.shape[0]] * ROWS,
        "width": [small.shape[1]] * ROWS,
    }
    table = source | {name: pack([small] * ROWS) for name in columns} | {"halo": [False] * ROWS}
    schema = packet_schema(columns)
    rows = pa.table({name: [None] * ROWS for name in schema.names} | table, schema=schema)
    rows = rows.append_column(FAILED, pa.array([[]] * ROWS, pa.list_(pa.string())))
    return Packet(unit="", start=0, stop=ROWS, rows=rows)


def worker(plan: Plan, folder: str, run: str) -> Worker:
    """Return a worker that keeps records for a run, or without a run keeps none."""
    store = Store(f"{folder}/{run}").of_run(run).begin() if run else Store(f"{folder}/none")
    store.prepare()
    return Worker(plan.first, store)


def seconds(who: Worker, one: Packet) -> tuple[float, float]:
    """Return the wall and processor seconds of one packet, taken in and handed on."""
    begin, work = time.perf_counter(), time.process_time()
    done = who.apply(one, 0.0)
    with who.recorder.handing_on("lighting", done.unit, done.start, done.stop):
        done.seal()
    return time.perf_counter() - begin, time.process_time() - work


def live(packets: int = 200, calls: int = 32) -> tuple[float, float]:
    """Return the processor seconds of a packet's metrics, and of one update with so many packets in the window."""
    from framekiln.engine.ray.coordinator import Coordinator

    coordinator, figures, now = Coordinator(Budgets()), LiveWindow(), time.time()
    about = {"step": "a", "rows": 512, "seconds": 0.05, "phases": {"infer": 0.03, "preprocess": 0.01}}
    about |= {"calls": (0.001,) * calls, "around": {"wait": 0.01, "fetch": 0.001, "write": 0.002}}
    events = [StepEvent(worker=f"host:{i % 4}", started=now - 9 * i / packets, **about) for i in range(packets)]  # type: ignore[arg-type]
    for event in events:
        figures.add(event)
    begin = time.process_time()
    for event in events:
        coordinator.add_event(event)
    middle = time.process_time()
    for _ in range(packets):
        figures.step("a", now)
    return (middle - begin) / packets, (time.process_time() - middle) / packets


def main() -> None:
    """Give packets to both workers in turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--packets", type=int, default=600, help="of each worker")
    options = parser.parse_args()
    plan = make_plan(read_pipeline(None), ProfileFile(), PlanOptions(stages=("lighting",)), [ROOMY])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        workers = {kind: worker(plan, folder, run) for kind, run in (("with", "0123456789ab"), ("without", ""))}
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in workers}
        one = packet(plan.decode.columns)
        for number in range(options.packets + WARM):
            for kind in sorted(workers, reverse=bool(number % 2)):
                times[kind].append(seconds(workers[kind], replace(one, unit=f"u{number}")))
    both = [list(zip(*times[kind][WARM:], strict=True)) for kind in ("with", "without")]
    print(
        f"{options.packets} packets of {ROWS} rows, {1000 * statistics.median(both[1][0]):.2f} ms each without records"
    )
    for name, (kept, bare) in zip(("wall", "processor"), zip(*both, strict=True), strict=True):
        ratio, middle = sum(kept) / sum(bare), statistics.median(kept) / statistics.median(bare)
        print(f"with records, {name} time: {middle:.4f} of that without by the median, {ratio:.4f} by the sum")
    exported, looked = live()
    print(f"metrics of a packet of 32 calls {1e6 * exported:.0f} µs, a look at 200 packets {1e3 * looked:.2f} ms")


if __name__ == "__main__":
    main()
