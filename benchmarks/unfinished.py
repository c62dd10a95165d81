"""Cost of tables, run.json and the report while a run is at work: processor seconds with and without them.

    python -m benchmarks.unfinished [--photos 10000] [--side 240] [--pairs 10] [--stages lighting] [--against CHECKOUT]

Runs with the local engine, in turns, each a process of its own into a new output. Seconds are user and system time of
all its processes, which the system counts when each is reaped. Without: the first tables would come after the run. With
--against, runs of another checkout of Framekiln take turns, too. The ratio has an interval of 95 % over pairs.

The last line needs no pairs: it adds up the seconds that looks at finished files, the start of the writing process,
run.json and the report took, as a share of the run's processor seconds. The tables themselves are left out, since the
end of the run is spared them. A second of waiting counts as one of work, so the share is an upper bound.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.made_rows import write_photos

ROOT = Path(__file__).resolve().parents[1]
RUN = "from framekiln.cli.app import main; import sys; main(sys.argv[1:])"
WITH = f"""
import framekiln.job.interim as interim
publish = interim.Interim._publish

def counted(*arguments, **options):
    seconds = publish(*arguments, **options)
    with open("{{log}}", "a") as log:
        print(sum(seconds), file=log)
    return seconds

interim.Interim._publish = counted
{RUN}
"""
WITHOUT = f"import framekiln.job.interim as interim; interim.FIRST_S = 1e6; {RUN}"
_T_95 = 1.96  # of a normal distribution, for ten pairs or more


def run_once(checkout: Path, code: str, source: Path, stages: str) -> tuple[float, float]:
    """Return the processor seconds and the seconds of one run."""
    with tempfile.TemporaryDirectory() as out:
        words = ["run", "-i", str(source), "-o", f"{out}/out", "--stages", stages, "--engine", "local", "-q"]
        paths = os.pathsep.join(str(checkout / name) for name in ("pipeline", "stages"))
        began = time.monotonic()
        run = subprocess.Popen([sys.executable, "-c", code, *words], env=os.environ | {"PYTHONPATH": paths})
        _, status, usage = os.wait4(run.pid, 0)
        if status:
            sys.exit(f"A run ended with {status}.")
        return usage.ru_utime + usage.ru_stime, time.monotonic() - began


def summary(title: str, first: Sequence[float], base: Sequence[float]) -> str:
    """Return a sentence on the ratio of pairs."""
    logs = [math.log(one / other) for one, other in zip(first, base, strict=True)]
    mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    low, high = (100 * math.expm1(mean + sign * _T_95 * error) for sign in (-1, 1))
    medians = statistics.median(first), statistics.median(base)
    return (
        f"{title}: {medians[0]:.1f} s against {medians[1]:.1f} s, {100 * math.expm1(mean):+.2f} % "
        f"({low:+.2f} to {high:+.2f} %)"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=240, help="of a photo, px")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--stages", default="lighting")
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    used: dict[str, list[float]]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "seconds"
        log.touch()  # a run that ends within 20 s writes no tables before
        kinds = {"with": (ROOT, WITH.format(log=log)), "without": (ROOT, WITHOUT)}
        kinds |= {"against": (options.against.resolve(), RUN)} if options.against else {}
        used = {name: [] for name in kinds}
        write_photos(Path(folder) / "in", options.photos, (options.side, options.side))
        for pair in range(options.pairs):
            for name in sorted(kinds, reverse=bool(pair % 2)):
                seconds, wall = run_once(*kinds[name], Path(folder) / "in", options.stages)
                used[name].append(seconds)
                print(f"{name}: {seconds:.1f} processor s, {wall:.1f} s", flush=True)
        spent = sum(map(float, log.read_text().split()))
    for name in (name for name in kinds if name != "with"):
        print(summary(f"with, and {name}", used["with"], used[name]))
    print(f"beside tables: {spent:.1f} s in {len(used['with'])} runs, {100 * spent / sum(used['with']):.2f} % at most")


if __name__ == "__main__":
    main()
