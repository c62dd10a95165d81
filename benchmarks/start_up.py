"""Seconds from the command to the first result of categorize, by phase, and of its set-up with and without a cache.

    python -m benchmarks.start_up [--against CHECKOUT] [--repeats 3] [--photos 8] [--set-up]

Runs: `framekiln run --stages categorize` with `cpu-only` and seeded random weights, each a process of its own into a
new output. Set-up (alone with --set-up): categorize with a file of random weights in a new process, first with an empty
FRAMEKILN_CACHE, then with the one that it left; it needs the tokenizer's file (`framekiln fetch`). Its seconds are
processor seconds. With --against, another checkout of Framekiln takes turns with this one, and the last column is the
ratio. Figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from framekiln.media.samples import photos
from framekiln.weights.resolver import resolve

ROOT = Path(__file__).resolve().parents[1]
PHASES = ("command to plan", "Ray, to the first process", "set-up of the model", "first call", "all")

SET_UP = """
import sys, time
from pathlib import Path
from framekiln.contract.placement import Placement
import framekiln.engine.ray.workers  # as in each process of a run
from framekiln.runtime.stage_setup import set_up_stage
from framekiln.weights.lockfile import WeightsEntry
from framekiln_stages.categorize.stage import Categorize
import torch
imported = time.process_time()
stage = Categorize(Categorize.Config(model="clip-vit-b32"))
paths = dict(zip(stage.weights, map(Path, sys.argv[1:]), strict=True))
entries = {name: WeightsEntry.model_construct(name=name, sha256=path.name) for name, path in paths.items()}
import framekiln.runtime.stage_setup as setup
setup.check_unchanged = lambda *_: None  # the names stand for hashes
set_up_stage(stage, "categorize", paths, Placement(), entries)
print(imported, time.process_time() - imported, len(sys.modules))
"""
SET_UP_FIGURES = ("imports, torch among them", "the stage, with what it imports", "modules")


def run_once(checkout: Path, folder: Path, count: int) -> dict[str, float]:
    """Return the seconds of each phase of one run of a checkout."""
    source, out = folder / "in", folder / "out"
    source.mkdir()
    for number in range(count):
        (source / f"{number}.jpg").write_bytes(photos()["china.jpg"].read_bytes())
    command = [sys.executable, "-m", "framekiln", "run", "--stages", "categorize", "-q", "--missing-weights", "dummy"]
    began = time.time()
    subprocess.run(
        [*command, "--input", str(source), "--output", str(out)],
        env=os.environ | {"PYTHONPATH": str(checkout), "FRAMEKILN_CACHE": str(folder / "cache")},
        cwd=folder,
        check=True,
    )
    return phases(began, out)


def phases(began: float, out: Path) -> dict[str, float]:
    """Return the seconds of each phase by the records of an output; the first two overlap with nothing."""
    import pyarrow.parquet as pq

    (records,) = (out / "profile").glob("calls-*.parquet")
    rows = [row for row in pq.read_table(records).to_pylist() if row["step"] in ("decode", "categorize")]
    set_up = next(row for row in rows if row["kind"] == "set-up")
    first = min((row for row in rows if row["kind"] == "call"), key=lambda row: row["started"])
    planned = datetime.fromisoformat(json.loads((out / "run.json").read_text())["started"]).timestamp()
    process = min(row["started"] for row in rows)
    answered = first["started"] + first["seconds"]
    seconds = (planned - began, process - planned, set_up["seconds"], first["seconds"], answered - began)
    return dict(zip(PHASES, seconds, strict=True))


def set_ups(checkouts: Mapping[str, Path], repeats: int) -> dict[str, dict[str, list[list[float]]]]:
    """Return `SET_UP_FIGURES` of each repeat, by the state of the cache and by checkout."""
    from safetensors.torch import save_file

    from framekiln_stages.nets.clip.architectures import MODELS
    from framekiln_stages.nets.clip.towers import build_model

    taken: dict[str, dict[str, list[list[float]]]] = {
        state: {name: [] for name in checkouts} for state in ("empty cache", "filled cache")
    }
    with tempfile.TemporaryDirectory() as folder:
        weights, words = Path(folder) / "weights", resolve(["clip-bpe"])["clip-bpe"]
        save_file(dict(build_model(MODELS["clip-vit-b32"], None).state_dict()), weights)
        for number in range(repeats):
            for by_checkout in taken.values():
                for name, figures in by_checkout.items():
                    cache = {
                        "FRAMEKILN_CACHE": str(Path(folder) / f"{name}{number}"),
                        "PYTHONPATH": str(checkouts[name]),
                    }
                    command = [sys.executable, "-c", SET_UP, str(weights), str(words)]
                    env = os.environ | cache
                    done = subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True, text=True)
                    figures.append([float(word) for word in done.stdout.split()])
    return taken


def _print(title: str, names: Sequence[str], figures: Mapping[str, Sequence[Sequence[float]]], form: str) -> None:
    """Print a table: a line for each figure, a column for each checkout, and their ratio."""
    print(f"| {title} | {' | '.join(figures)} |{' ratio |' if len(figures) > 1 else ''}")
    for i, name in enumerate(names):
        values = [statistics.median([each[i] for each in repeats]) for repeats in figures.values()]
        ratio = f" {values[0] / values[1]:.2f} |" if len(values) > 1 else ""
        print(f"| {name} | {' | '.join(format(value, form) for value in values)} |{ratio}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--photos", type=int, default=8)
    parser.add_argument("--set-up", action="store_true", help="measure set-ups only")
    options = parser.parse_args()
    checkouts = {"here": ROOT} | ({"against": options.against.resolve()} if options.against else {})
    runs: dict[str, list[list[float]]] = {name: [] for name in checkouts}
    for _ in range(0 if options.set_up else options.repeats):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as folder:
                runs[name].append([*run_once(checkout, Path(folder), options.photos).values()])
    if not options.set_up:
        _print("phase, s", PHASES, runs, ".1f")
    for state, figures in set_ups(checkouts, options.repeats).items():
        _print(f"{state}, processor s", SET_UP_FIGURES, figures, ".4g")


if __name__ == "__main__":
    main()
