"""Seconds of processors that a step with a condition takes of a film, against the same step on all its frames.

    python -m benchmarks.conditions [--step categorize] [--on "{per_second: 1}"] [--seconds 20] [FILM]

Both runs have one process, with random weights where real ones are missing. Set-up is left out: it is the
same for an hour as for a second. Without a film, one of 25 frames a second is made.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

import framekiln
from benchmarks.films import make_film

ONE_CORE = {"decode": {"workers": 1}, "defaults": {"workers": 1}}


def compute(film: Path, out: Path, step: str, settings: dict[str, Any]) -> tuple[float, float, int]:
    """Return the seconds of decoding, those of the step, and the rows that the step computed."""
    profile = ONE_CORE
    framekiln.run(film, out, profile=profile, stages=[step], settings=settings, engine="local", missing_weights="dummy")
    figures = json.loads((out / "run.json").read_text())["figures"]
    return figures["decode"]["busy_s"], figures[step]["busy_s"], figures[step]["rows"]


def main() -> None:
    """Print both, the ratio of the step alone, and that of the whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--step", default="categorize")
    parser.add_argument("--on", default="{per_second: 1}")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("film", type=Path, nargs="?")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        film = options.film or Path(folder) / "film.mp4"
        if options.film is None:
            make_film(film, options.seconds)
        whole = compute(film, Path(folder) / "whole", options.step, {})
        chosen = compute(
            film, Path(folder) / "chosen", options.step, {options.step: {"on": yaml.safe_load(options.on)}}
        )
    for name, (decode, step, rows) in (("all frames", whole), (options.on, chosen)):
        print(f"{name:<20} {rows:6,} rows  decode {decode:8.2f} s  {options.step} {step:8.2f} s")
    print(f"{options.step} 1/{whole[1] / chosen[1]:.1f}, with decoding 1/{sum(whole[:2]) / sum(chosen[:2]):.1f}")


if __name__ == "__main__":
    main()
