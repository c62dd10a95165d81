"""What records cost: a worker's time on small packets with and without them, in turns, in one process.

    python benchmarks/profiling.py [--packets 600]

A packet is 16 reduced photos (224 px), far smaller than what a run makes (128 MB or 512 rows), so that records are as
frequent as they ever get; `lighting` is the cheapest stage there is. Both workers write their parts to one disk. They
take turns packet by packet, so that what else the machine does hits both; the aim is less than 1 %. Last comes what
live figures cost outside of the workers: the board's metrics for each packet, the driver's figures at each look.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import cv2
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.columns import pack
from pipeline.machines import ROOMY
from pipeline.manifest import ProfileFile, read_pipeline
from pipeline.packet import Packet, packet_schema
from pipeline.plan import Choices, Plan, make_plan
from pipeline.sample import Sample
from pipeline.storage import Store
from pipeline.telemetry.live import Live
from pipeline.worker import FAILED, Worker
from samples.make import photos

ROWS = 16
WARM = 20  # packets before it counts


def packet(columns: tuple[str, ...]) -> Packet:
    """Rows of one photo, as they reach a step."""
    image = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    small = cv2.resize(image, (336, 224), interpolation=cv2.INTER_AREA)
    numbers = range(ROWS)
    source = {
        "media_id": [f"{i}.jpg" for i in numbers],
        "frame_index": [0] * ROWS,
        "media_type": ["photo"] * ROWS,
        "clip_index": [0] * ROWS,
        "time_s": [None] * ROWS,
        "fps": [None] * ROWS,
        "height": [small.shape[0]] * ROWS,
        "width": [small.shape[1]] * ROWS,
    }
    given = source | {name: pack([small] * ROWS) for name in columns} | {"halo": [False] * ROWS}
    rows = pa.table(given, schema=packet_schema(columns))
    rows = rows.append_column(FAILED, pa.array([[]] * ROWS, pa.list_(pa.string())))
    return Packet(unit="", start=0, stop=ROWS, rows=rows)


def worker(plan: Plan, folder: str, run: str) -> Worker:
    """One whose store belongs to a run, so that it keeps records; or to none."""
    store = Store(f"{folder}/{run}").of_run(run) if run else Store(f"{folder}/none")
    store.prepare()
    return Worker(plan.first, store, lambda _: None)


def seconds(who: Worker, one: Packet) -> tuple[float, float]:
    """Wall and processor time of one packet, taken in and handed on."""
    begin, work = time.perf_counter(), time.process_time()
    done = who.apply(one, 0.0)
    with who.recorder.handing_on("lighting", done.unit, done.start, done.stop):
        done.seal()
    return time.perf_counter() - begin, time.process_time() - work


def live(packets: int = 200, calls: int = 32) -> tuple[float, float]:
    """Processor seconds of a packet's metrics, and of one look at a step with so many packets in its window."""
    from pipeline.engine.metrics import Exporter

    exporter, figures, now = Exporter("benchmark"), Live(), time.time()
    about = {"step": "a", "rows": 512, "seconds": 0.05, "phases": {"infer": 0.03, "preprocess": 0.01}}
    about |= {"calls": (0.001,) * calls, "around": {"wait": 0.01, "fetch": 0.001, "write": 0.002}}
    some = [Sample(worker=f"host:{i % 4}", started=now - 9 * i / packets, **about) for i in range(packets)]  # type: ignore[arg-type]
    for one in some:
        figures.add(one)
    begin = time.process_time()
    for one in some:
        exporter.add(one)
    middle = time.process_time()
    for _ in range(packets):
        figures.step("a", now)
    return (middle - begin) / packets, (time.process_time() - middle) / packets


def main() -> None:
    """Give packets to both in turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--packets", type=int, default=600, help="of each worker")
    words = parser.parse_args()
    plan = make_plan(read_pipeline(None), ProfileFile(), Choices(stages=("lighting",)), [ROOMY])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        workers = {kind: worker(plan, folder, run) for kind, run in (("with", "0123456789ab"), ("without", ""))}
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in workers}
        one = packet(plan.decode.columns)
        for number in range(words.packets + WARM):
            for kind in sorted(workers, reverse=bool(number % 2)):
                found[kind].append(seconds(workers[kind], replace(one, unit=f"u{number}")))
    both = [list(zip(*found[kind][WARM:], strict=True)) for kind in ("with", "without")]
    print(f"{words.packets} packets of {ROWS} rows, {1000 * statistics.median(both[1][0]):.2f} ms each without records")
    for name, (kept, bare) in zip(("wall", "processor"), zip(*both, strict=True), strict=True):
        ratio, middle = sum(kept) / sum(bare), statistics.median(kept) / statistics.median(bare)
        print(f"with records, {name} time: {middle:.4f} of that without by the median, {ratio:.4f} by the sum")
    exported, looked = live()
    print(f"metrics of a packet of 32 calls {1e6 * exported:.0f} µs, a look at 200 packets {1e3 * looked:.2f} ms")


if __name__ == "__main__":
    main()
