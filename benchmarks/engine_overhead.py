"""Overhead of the engine: the same CPU stages in the engine, in a bare loop, and in a minimal Ray Data script.

    python -m benchmarks.engine_overhead [--photos 4000] [--clips 16] [--repeats 3]

The bare loop decodes the same units and calls the same stages in one process for each core, and writes nothing: it is
the limit. The minimal script is `read_images` and a `map_batches` that calls the same stage. All run in turns in one
call. Rates are those of the steady state: between a fifth and four fifths of the rows, by the ends of packets.
Start-up, to the start of the first packet, is separate. Processor seconds are those of all processes, by kind; where
other programs share the machine, they tell more than rates.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from benchmarks.made_rows import write_photos
from benchmarks.processor_time import processor_seconds
from framekiln.job import Job
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode, keep_freed_memory, use_one_thread
from framekiln.media.samples import pan, photos, tone, write_clip
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import this_machine
from framekiln.profiling.record_log import CALLS, read
from framekiln.profiling.run_profile import choose_run
from framekiln.profiling.stats.speed import steady_rows_per_s
from framekiln.profiling.stats.steps import step_statistics
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller
from tests.support.runs.units import ensure_units


@dataclass(frozen=True)
class Rate:
    """A run's figures."""

    steady: float  # rows a second
    start_up: float  # s
    used: Mapping[str, float]  # processor seconds by kind of process


CLIP_FRAMES = 250
Moment = tuple[float, int]  # when a packet ended, in seconds since the epoch, and its rows


def make_clips(folder: Path, count: int) -> None:
    """Write H.264 clips of 480x360."""
    folder.mkdir(parents=True)
    image = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    write_clip(folder / "0.mp4", pan(image, CLIP_FRAMES), tone(CLIP_FRAMES / 25, 440))
    for i in range(1, count):
        shutil.copyfile(folder / "0.mp4", folder / f"{i}.mp4")


def order(folder: Path, out: Path, stages: Sequence[str]) -> RunRequest:
    """Return the request of `run --profile cpu-only --stages ...`."""
    return RunRequest(
        inputs=(str(folder),),
        output=str(out),
        pipeline=read_pipeline(None),
        profile=read_profile("cpu-only"),
        profile_name="cpu-only",
        options=PlanOptions(stages=tuple(stages)),
    )


def engine(folder: Path, stages: Sequence[str]) -> Rate:
    """Run the engine, which also writes the tables and the report."""
    with tempfile.TemporaryDirectory() as out, processor_seconds() as used:
        begin = time.time()
        Job(order(folder, Path(out), stages)).run()
        store = Store(out)
        steps = step_statistics(read(store, CALLS, choose_run(store, None)))
        (last,) = (step for step in steps if step.step == stages[-1])
        return Rate(last.steady_rows_per_s or math.nan, min(step.begin for step in steps) - begin, used)


def bare(folder: Path, stages: Sequence[str]) -> Rate:
    """Run a loop in one process for each core, without output."""
    plan = make_plan(read_pipeline(None), read_profile("cpu-only"), PlanOptions(stages=tuple(stages)), [this_machine()])
    media = list_media(str(folder))
    begin = time.time()
    pool = multiprocessing.get_context("spawn").Pool(plan.decode.workers)
    with tempfile.TemporaryDirectory() as out, pool, processor_seconds() as used:
        units = ensure_units(Store(out), media, media, slots=plan.decode.workers)
        pool.map(_warm, [plan] * plan.decode.workers, chunksize=1)
        start = time.time()
        ends = [end for unit in pool.imap_unordered(_unit, [(plan, unit) for unit in units]) for end in unit]
    return Rate(_steady(ends), start - begin, used)


_ready: dict[str, list[PacketCaller]] = {}


def _warm(plan: Plan) -> None:
    if not _ready:
        use_one_thread()
        keep_freed_memory()
        for step in plan.first:
            set_up(step)
        _ready["callers"] = [PacketCaller(step) for step in plan.first]
        time.sleep(0.5)  # so that each process takes one task


def _steady(ends: Sequence[Moment]) -> float:
    times, rows = np.array(ends, float).T
    return steady_rows_per_s(times, rows, np.zeros(len(rows))) or math.nan  # of many packets


def _unit(work: tuple[Plan, Unit]) -> list[Moment]:
    """Return when each packet of a unit ended, and its rows."""
    plan, unit = work
    _warm(plan)
    ends = []
    for packet in decode(unit, plan.decode.columns, plan.decode.halo, plan.decode.config):
        if packet.rows.num_rows:
            for caller in _ready["callers"]:
                caller.run(packet.rows, np.zeros(packet.rows.num_rows, bool))
        ends.append((time.time(), packet.stop - packet.start))
    return ends


def minimal_script(folder: Path) -> Rate:
    """Run `read_images`, then the lighting stage on its images."""
    import pyarrow as pa
    import ray

    from framekiln.contract.columns import pack
    from framekiln_stages.lighting.stage import Lighting

    stage = Lighting()

    def light(batch: dict[str, np.ndarray]) -> pa.Table:
        return stage(pa.table({"frame_224": pack(list(batch["image"]))}))

    from framekiln.engine.ray.session import session

    begin = time.time()
    with processor_seconds() as used, session(None):
        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = ray.data.read_images(str(folder), mode="RGB").map_batches(light, batch_size=16)
        blocks = dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        seen = [(time.time(), block.num_rows) for block in blocks]
    return Rate(_steady(seen), seen[0][0] - begin, used)


def compare(title: str, runs: dict[str, Callable[[], Rate]], repeats: int) -> None:
    """Run all in turns and print medians, and ratios to the first."""
    results: dict[str, list[Rate]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            results[name].append(run())
    print(f"\n{title}")
    first = next(iter(results))
    for name, rates in results.items():
        ratios = [one.steady / base.steady for one, base in zip(rates, results[first], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rate = statistics.median(one.steady for one in rates)
        start_up = statistics.median(one.start_up for one in rates)
        print(
            f"  {name:<28}{rate:8.1f} rows/s   {statistics.median(ratios):.2f} of {first} ({spread})   "
            f"start-up {start_up:.1f} s"
        )
        kinds = {kind: statistics.median(one.used.get(kind, 0.0) for one in rates) for kind in rates[0].used}
        used = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1]))
        print(f"    processor seconds, start-up included: {sum(kinds.values()):.1f} ({used})")


def main() -> None:
    """Make media, run everything, print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--photos", type=int, default=4000)
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        images, clips = Path(work) / "photos", Path(work) / "clips"
        write_photos(images, options.photos)
        make_clips(clips, options.clips)
        title = (
            f"{options.photos} photos of 1 MP, lighting (full-size pixels in the script, which has no reduced decode)"
        )
        runs = {
            "bare loop": lambda: bare(images, ["lighting"]),
            "engine": lambda: engine(images, ["lighting"]),
            "minimal Ray Data script": lambda: minimal_script(images),
        }
        compare(title, runs, options.repeats)
        title = f"{options.clips} clips of {CLIP_FRAMES} frames, 480x360, lighting and flow"
        both = ["lighting", "flow"]
        compare(title, {"bare loop": lambda: bare(clips, both), "engine": lambda: engine(clips, both)}, options.repeats)


if __name__ == "__main__":
    main()
