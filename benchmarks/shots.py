"""Milliseconds of a core a frame that `shots` and `flow` take of a film, against PySceneDetect's ContentDetector.

    pip install scenedetect
    python -m benchmarks.shots [--seconds 10] [FILM]

Decoding is included on both sides. Without a film, one of 1920x1080 is made, as in `benchmarks.films`.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from benchmarks.films import make_film
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode, keep_freed_memory, use_one_thread
from framekiln.media.units import form_units
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import this_machine
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller


def look_for_cuts(film: Path) -> int:
    """Return the frames of a film after PySceneDetect has looked for its cuts."""
    scenedetect = importlib.import_module("scenedetect")
    cv2.setNumThreads(1)
    video, manager = scenedetect.open_video(str(film)), scenedetect.SceneManager()
    manager.add_detector(scenedetect.ContentDetector())
    return int(manager.detect_scenes(video))


def compute(film: Path, stages: tuple[str, ...]) -> int:
    """Return the frames of a film after decoding and the first pass of these stages; the second takes no pixels."""
    plan = make_plan(read_pipeline(None), read_profile("cpu-only"), PlanOptions(stages=stages), [this_machine()])
    for step in plan.first:
        set_up(step)
    callers, frames = [PacketCaller(step) for step in plan.first], 0
    (unit,) = form_units(list_media(str(film)), slots=1)
    for packet in decode(unit, plan.decode.columns, plan.decode.halo, plan.decode.config):
        rows = packet.rows
        frames += rows.num_rows
        for caller in callers if rows.num_rows else ():
            caller.run(rows, np.zeros(rows.num_rows, bool))
    return frames


def main() -> None:
    """Print the milliseconds of each, the second time, and their ratio to PySceneDetect's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("film", type=Path, nargs="?")
    options = parser.parse_args()
    use_one_thread()
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        film = options.film or Path(folder) / "film.mp4"
        if options.film is None:
            make_film(film, options.seconds)
        base = 0.0
        for stages in ((), ("shots",), ("flow",), ("flow", "shots")):
            for _ in range(2):
                begin = time.process_time()
                frames = compute(film, stages) if stages else look_for_cuts(film)
                took = 1000 * (time.process_time() - begin) / frames
            base = base or took
            print(
                f"{'+'.join(stages) or 'PySceneDetect':<14} {took:6.2f} ms a frame, {took / base:.2f} of PySceneDetect"
            )


if __name__ == "__main__":
    main()
