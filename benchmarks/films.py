"""One film on several decode slots.

    python -m benchmarks.films [--seconds 40] [--slots 1,2,4,16]

The tasks of the film are planned as the engine does, for each number of slots, and each is done in this process with
the first-pass steps of lighting, flow and shots; what each takes of a core a frame is printed. Their processor seconds
are then laid on simulated slots: each slot takes the next task when it has ended one. So the times are those of a
machine with so many free cores, without the engine's own costs between tasks. *Before* is one task
for the film, as in versions that cut films by bytes alone. Rows are compared.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import cv2
import numpy as np

from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode, use_one_thread
from framekiln.media.samples import photos
from framekiln.media.units import Unit, form_units, split_unit, task_bytes
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import this_machine
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller

WIDTH, HEIGHT, RATE, KEY = 1920, 1080, 25, 50
STEPS = ("lighting", "flow", "features", "shots")


def make_film(path: Path, seconds: int) -> None:
    """Write an H.264 film: a slow pan over a sample photo with noise, a key frame every two seconds."""
    scene = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    scene = cv2.resize(scene, (WIDTH + 1000, HEIGHT + 500), interpolation=cv2.INTER_CUBIC)
    noise = np.random.default_rng(0).integers(-4, 5, (HEIGHT, WIDTH, 3), np.int16)
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "g": str(KEY)})
        track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(seconds * RATE):
            top, left = number % 1000 // 2, number % 1000
            image = scene[top : top + HEIGHT, left : left + WIDTH] + np.roll(noise, 7 * number, axis=1)
            out.mux(track.encode(av.VideoFrame.from_ndarray(np.clip(image, 0, 255).astype(np.uint8), format="rgb24")))
        out.mux(track.encode(None))


def tasks_of(
    unit: Unit, plan: Plan, callers: Sequence[PacketCaller], each: int, spent: dict[str, float]
) -> Iterator[tuple[float, list[int]]]:
    """Do each task of the film; yield processor seconds, and a checksum of the rows of each packet.

    `spent` receives the processor seconds of decoding and of each step.
    """
    how = plan.decode
    for wanted in split_unit(unit, each):
        begin, sums = time.process_time(), []
        for packet in decode(unit, how.columns, how.halo, how.config, wanted):
            if packet.rows.num_rows:
                for step, caller in zip(plan.first, callers, strict=True):
                    before = time.process_time()
                    caller.run(packet.rows, np.zeros(packet.rows.num_rows, bool))
                    spent[step.name] += time.process_time() - before
                sums.append(zlib.crc32(str(packet.rows.drop_columns(list(how.columns)).to_pylist()).encode()))
        yield time.process_time() - begin, sums


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Return when the last slot ends."""
    free = [0.0] * slots
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def on_slots(path: Path, slots: Sequence[int]) -> None:
    """Print the film's time on each number of slots against one task."""
    options = PlanOptions(stages=STEPS)
    plan = make_plan(read_pipeline(None), read_profile("cpu-only"), options, [this_machine()])
    for step in plan.first:
        set_up(step)
    callers, (unit,) = [PacketCaller(step) for step in plan.first], form_units(list_media(str(path)), slots=1)
    list(
        tasks_of(unit, plan, callers, 1 << 60, defaultdict(float))
    )  # once before, as later tasks find loaded libraries
    spent, frames = defaultdict[str, float](float), _decoded_alone(path)
    ((before, rows),) = tasks_of(unit, plan, callers, 1 << 60, spent)
    by_part = {"decode": before - sum(spent.values()), **spent}
    parts = ", ".join(f"{name} {1000 * seconds / frames:.1f}" for name, seconds in by_part.items())
    print(f"  {1000 * before / frames:.1f} ms of a core a frame: {parts}")
    print(f"  before: {before:.1f} s on any number of slots, {len(rows)} packets")
    for number in slots:
        done = list(tasks_of(unit, plan, callers, task_bytes([unit], plan.decode.config, number), defaultdict(float)))
        assert [one for _, sums in done for one in sums] == rows, "rows depend on the number of slots"
        took, work = makespan([seconds for seconds, _ in done], number), sum(seconds for seconds, _ in done)
        used = sum(bool(sums) for _, sums in done)
        print(
            f"  {number:>2} slots: {took:6.2f} s, {before / took:5.2f} times as fast; {len(done)} tasks, "
            f"{used} in segments, {work / before:.2f} of the work of one task"
        )


def _decoded_alone(path: Path) -> int:
    with av.open(str(path)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return sum(1 for _ in container.decode(video=0))


def main() -> None:
    """Make a film, and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--slots", default="1,2,4,16")
    options = parser.parse_args()
    use_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        make_film(path, options.seconds)
        print(f"film of {options.seconds} s, {WIDTH}x{HEIGHT}, {path.stat().st_size / 1e6:.1f} MB: {', '.join(STEPS)}")
        on_slots(path, [int(number) for number in options.slots.split(",")])


if __name__ == "__main__":
    main()
