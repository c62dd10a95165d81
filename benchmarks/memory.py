"""Peak memory of driver and workers for collections of 1, 4 and 16 times as many photos.

    python -m benchmarks.memory [--files 2000] [--factors 1,4,16]

Photos of 1 MP are links to a few files, which saves disk space. Each run is a separate process, sampled four times a
second. Ray's object store, a fixed share of the machine, is not counted. With fewer than 2,000 photos units are
smaller, since all slots share them, and so are the packets.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.made_rows import write_photos

ROOT = Path(__file__).resolve().parents[1]
_EVERY = 0.25  # s
_DIFFERENT = 8  # photos
_PIPELINE = "steps: {lighting: {use: 'framekiln_stages.lighting:Lighting'}}\n"


def peaks(command: list[str]) -> tuple[float, float, int]:
    """Return the peak private memory of the driver, and of all its children together, in MB, and the seconds."""
    start, driver, workers = time.monotonic(), 0.0, 0.0
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    parent = psutil.Process(run.pid)
    while run.poll() is None:
        with suppress(psutil.Error):
            driver = max(driver, parent.memory_full_info().uss / 1e6)
            workers = max(workers, sum(_private(child) for child in parent.children(recursive=True)))
        time.sleep(_EVERY)
    if run.returncode:
        sys.exit(f"the run ended with {run.returncode}")
    return driver, workers, round(time.monotonic() - start)


def _private(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(process.memory_full_info().uss) / 1e6
    return 0.0


def main() -> None:
    """Run each collection and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--factors", default="1,4,16")
    options = parser.parse_args()
    print("  files   driver MB   all workers MB   s   (ratio to the first)")
    first: tuple[float, float] | None = None
    for factor in map(int, options.factors.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            source = place / "in"
            write_photos(source, factor * options.files, distinct=_DIFFERENT)
            (place / "pipeline.yaml").write_text(_PIPELINE)
            words = ["--input", str(source), "--output", str(place / "out"), "--pipeline", str(place / "pipeline.yaml")]
            driver, workers, seconds = peaks([sys.executable, str(ROOT / "pipeline" / "run.py"), *words, "--quiet"])
        first = first or (driver, workers)
        ratio = f"({driver / first[0]:.2f}, {workers / first[1]:.2f})"
        print(f"{factor * options.files:7}   {driver:9.0f}   {workers:14.0f}   {seconds:3}   {ratio}", flush=True)


if __name__ == "__main__":
    main()
