"""The processor time of a JPEG photo from its file to a packet, against simplejpeg alone.

    python -m benchmarks.photos [--repeats 5]

Both read the same files, one after the other, in turns, in a process that keeps freed memory. The last column is the
packet's way through `lighting`, too. Medians of the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import simplejpeg

from benchmarks.made_rows import write_photos
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode, keep_freed_memory, use_one_thread
from framekiln.media.units import Unit
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import this_machine
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller

SIZES = {"4,096 pixels": (64, 64, 2000), "1 MP": (800, 1280, 60), "12 MP": (3000, 4000, 6)}  # height, width, photos


def decode_alone(media: Sequence[MediaFile]) -> None:
    """Read and decode the files."""
    for item in media:
        simplejpeg.decode_jpeg(Path(item.path).read_bytes())


def run(media: Sequence[MediaFile], column: str, callers: Sequence[PacketCaller] = ()) -> None:
    """Make packets of the files, and call steps on them."""
    for packet in decode(Unit(name="photos", media=tuple(media)), (column,), 0, DecodeConfig()):
        for caller in callers if packet.rows.num_rows else ():
            caller.run(packet.rows, np.zeros(packet.rows.num_rows, bool))


def measure(ways: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return the median processor seconds of each way, done in turns; the first turn is left out."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}


def main() -> None:
    """Make photos of three sizes, and print their times and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_one_thread()
    keep_freed_memory()
    plan = make_plan(read_pipeline(None), read_profile("cpu-only"), PlanOptions(stages=("lighting",)), [this_machine()])
    for step in plan.first:
        set_up(step)
    callers = [PacketCaller(step) for step in plan.first]
    for name, (height, width, count) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            write_photos(Path(folder) / "in", count, (height, width), distinct=6)
            media = list_media(f"{folder}/in")
            ways: dict[str, Callable[[], None]] = {
                "simplejpeg alone": partial(decode_alone, media),
                "frame": partial(run, media, "frame"),
                "frame_224": partial(run, media, "frame_224"),
                "frame_224, lighting": partial(run, media, "frame_224", callers),
            }
            taken = measure(ways, options.repeats)
        print(f"{name}, {count} photos, ms each and times simplejpeg alone")
        for way, seconds in taken.items():
            print(f"  {way:<20} {1000 * seconds / count:7.3f}  {seconds / taken['simplejpeg alone']:.2f}", flush=True)


if __name__ == "__main__":
    main()
