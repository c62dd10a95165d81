"""The command line over photos: start-up, steady rate and tail, by the records of the run.

All stages also run with the limits of GPUs of 8 and of 16 GB, which they share. Runs, and a calibration of
`categorize`, predict rates on this GPU and on others.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks.gpu.options import GpuOptions, Recorder, used_gb
from benchmarks.gpu.stage_steps import SMALL, STAGES, WORK
from benchmarks.gpu.steps.ceilings import ceilings
from benchmarks.made_rows import write_photos
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import read_calibration
from framekiln.planning.gpu.scheduler import CONTEXT_GB
from framekiln.planning.processes.resources import gpu_names
from framekiln.profiling.record_log import CALLS, NODES, read
from framekiln.profiling.records import PACKET
from framekiln.profiling.run_profile import choose_run
from framekiln.profiling.stats.speed import ends
from framekiln.profiling.stats.steps import step_statistics
from framekiln.profiling.targets import gpu_figures

PHOTOS, SMALL_PHOTOS = 6000, 8
_DISTINCT = 64  # photos that are made; the others are links to them
CAPS = {"memory-constrained": 8.0, "high-throughput": 16.0}  # GB
# Packets of ten photos, three for each of the 4 or 8 in work at a time: the middle 60 % must last longer than a packet.
_PHOTOS = {"memory-constrained": 120, "high-throughput": 240, "cpu-only": 48}
_SMALL_CAPPED = 2  # LaMa takes a core ten seconds a photo
TARGETS = ("rtx-5080", "rtx-4060")
_WITHIN = 0.15  # relative error of the predicted rate of the run on this GPU, beyond its interval


class CommandError(Exception):
    """The end of the output of a command that failed."""


def photos(options: GpuOptions) -> Path:
    """Return a folder of JPEG photos, made at the first use."""
    folder = options.folder / "photos"
    if not folder.exists():
        write_photos(folder, SMALL_PHOTOS if options.small else PHOTOS, options.photo, distinct=_DISTINCT)
    return folder


def framekiln(options: GpuOptions, *words: str) -> str:
    """Run a command, and return what it printed.

    Raises:
        CommandError: it failed, or it took so long that the step would be ended without a word of it.
    """
    command = [sys.executable, "-m", "framekiln", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.left_s)
    except subprocess.TimeoutExpired as error:
        printed = b"".join(filter(None, (error.stdout, error.stderr))).decode(errors="replace")
        raise CommandError(f"{words[0]} took longer than {error.timeout:.0f} s: {printed[-2000:]}") from None
    if done.returncode:
        raise CommandError(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def run(options: GpuOptions, out: Path, stages: Sequence[str], *more: str) -> dict[str, Any]:
    """Run stages over the photos, and return figures of the run.

    Raises:
        CommandError: it failed.
    """
    cap = [] if options.vram_cap is None or "--vram-cap" in more else ["--vram-cap", f"{options.vram_cap:.1f}"]
    profile = [] if "--profile" in more else ["--profile", options.profile]
    policy = ["--missing-weights", "dummy", "--accept-license", "--stages", ",".join(stages)]
    source = str(photos(options))
    shutil.rmtree(out, ignore_errors=True)  # of an earlier call: nothing would be left to do
    began = time.time()
    framekiln(options, "run", "--input", source, "--output", str(out), *profile, *policy, *cap, *more)
    ended = time.time()
    return {"command_s": ended - began, **figures(out, stages[0], began, ended)}


def run_settings(options: GpuOptions, stages: Sequence[str]) -> list[str]:
    """Return the words of a command that make stages small, or leave their models eager, where that is wanted."""
    small = [setting for stage in stages for setting in SMALL[stage] if options.small]
    eager = [f"{stage}.compile=false" for stage in stages if not options.compile]
    return [word for setting in small + eager for word in ("--set", setting)]


def figures(out: Path, stage: str, began: float, ended: float) -> Mapping[str, Any]:
    """Return a run's figures from its records.

    Args:
        out: the output.
        stage: of which the packets count.
        began: of the command, seconds since the epoch.
        ended: of the command.
    """
    store = Store(str(out))
    name = choose_run(store, None)
    calls, nodes = read(store, CALLS, name), read(store, NODES, name)
    (step,) = (step for step in step_statistics(calls, nodes) if step.step == stage)
    whole = calls.filter((pc.field("kind") == PACKET) & (pc.field("step") == stage) & (pc.field("rows") > 0))
    gpu = gpu_figures(calls, nodes)
    used = [each["memory_gb"] or 0.0 for gpus in nodes["gpus"].to_pylist() for each in gpus or ()]
    return {
        "rows": step.rows,
        "packets": step.packets,
        "rows_per_s_whole": step.rows / (ended - began),
        "rows_per_s_steady": step.steady_rows_per_s,
        "first_result_s": ends(whole).min() - began,
        "tail_s": ended - step.end,
        "gpu_use_percent": gpu["gpu_use"],
        "vram_peak_gb": max(used, default=None),
        "allocated_peak_gb": pc.max(calls["vram_peak_gb"]).as_py(),
    }


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record a run of `categorize` over all photos, as shipped; then again, with warm caches."""
    settings = run_settings(options, ["categorize"])
    for name in ("cold", "warm"):
        result = run(options, options.folder / name, ["categorize"], *settings)
        limit = ceilings(options).get("clip")
        steady = result["rows_per_s_steady"]
        expected = len(list(photos(options).iterdir()))
        share = steady / limit if limit and steady else None
        record(caches=name, share=share, ok=result["rows"] == expected, **result)
        if options.small:
            return


def measure_capped(options: GpuOptions, record: Recorder) -> None:
    """Record each run's peak of memory beside the limit and the plan, and its rate beside the prediction from it.

    Models are not compiled: ten shapes of LaMa take longer than the runs, and memory is planned for uncompiled ones.
    """
    chosen = [word for setting in WORK["faces"] for word in ("--set", setting)]
    chosen += run_settings(replace(options, compile=False), STAGES)
    caps = options.wanted(CAPS) if options.device != "cpu" else {"cpu-only": None}
    policy = ["--missing-weights", "dummy", "--accept-license", "--stages", ",".join(STAGES)]
    places = [["--profile", name, *(["--vram-cap", f"{cap:g}"] if cap else [])] for name, cap in caps.items()]
    with ThreadPoolExecutor() as pool:
        plans = list(pool.map(lambda place: framekiln(options, "plan", *place, *policy, *chosen), places))
    measured = []
    for (profile, cap), place, plan in zip(caps.items(), places, plans, strict=True):
        planned = max(map(float, re.findall(r"need some ([\d.]+) of", plan)), default=None)
        limit = str(_SMALL_CAPPED if options.small else _PHOTOS[profile])
        others = used_gb() if cap else 0.0  # a driver keeps more for itself on a large GPU than on one of 8 GB
        try:
            result = run(options, options.folder / profile, STAGES, *place, "--limit", limit, *chosen)
        except CommandError as error:
            record(profile=profile, limit_gb=cap, ok=False, why=str(error))
            continue
        peak, held = result["vram_peak_gb"], result["allocated_peak_gb"] or 0.0  # without what torch's allocator keeps
        needs, is_kept = held + CONTEXT_GB, cap is None or (peak is not None and peak - others <= cap)
        against = {"planned_gb": planned, "needs_of_planned": needs / planned if planned else None}
        record(profile=profile, limit_gb=cap, others_gb=others, ok=is_kept, **against, **result)
        measured.append(profile)
    with ThreadPoolExecutor() as pool:  # last, as they take the cores only: each counts for half a minute
        runs = [options.folder / profile for profile in measured if options.device != "cpu"]
        list(pool.map(lambda run: _predict(options, run, None, record), runs))


def measure_calibration(options: GpuOptions, record: Recorder) -> None:
    """Record the calibration, then the errors of its predictions where a GPU was measured."""
    path = _calibrated(options)
    calibration = read_calibration(path)
    figures = calibration.steps["categorize"]
    about = {"device": calibration.device, "context_gb": calibration.context_gb, "weights_gb": figures.weights_gb}
    batches = {"fastest_batch": figures.fastest_batch, "largest_batch": figures.largest_batch}
    rates = {str(trial.batch): trial.rows_per_s for trial in figures.trials}
    line = figures.memory.model_dump() if figures.memory is not None else None
    record(**about, **batches, rows_per_s=rates, memory=line)
    if options.device != "cpu":
        _predict(options, _run_to_predict(options), path, record)


def _calibrated(options: GpuOptions) -> Path:
    folder, limits = options.folder / "calibration", ["--most-batch", "4" if options.small else "128", "--rows", "8"]
    policy = [
        "--missing-weights",
        "dummy",
        "--accept-license",
        "--stages",
        "categorize",
        *run_settings(options, ["categorize"]),
    ]
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier call
    source, profile = str(photos(options)), ["--profile", options.profile]
    framekiln(options, "calibrate", "--input", source, *profile, *policy, *limits, "--save", str(folder))
    (path,) = folder.glob("*.json")
    return path


def _predict(options: GpuOptions, run: Path, calibration: Path | None, record: Recorder) -> None:
    """Record a run's measured rate on this GPU and what is predicted from its records, here and for `TARGETS`."""
    gpus, given = ",".join([gpu_names()[0], *TARGETS]), ["--calibration", str(calibration)] if calibration else []
    choices = json.loads(framekiln(options, "predict", str(run), "--for", gpus, *given, "--json"))["gpus"]
    rate, bound, measured = choices[0]["rate"], choices[0]["bound"], _steady_rows_per_s(run)
    is_close = rate is not None and rate["low"] / (1 + _WITHIN) <= (measured or 0) <= rate["high"] * (1 + _WITHIN)
    is_right = is_close and (bound is None or (measured or 0) <= bound)
    record(run=run.name, measured=measured, **({"ok": is_right} if measured else {}))
    for choice in choices:
        told = {"rows_per_s": choice["rate"], **{key: choice[key] for key in ("bound", "limit", "why_not")}}
        record(run=run.name, gpu=choice["gpu"], **told)


def _steady_rows_per_s(run: Path) -> float | None:
    """Return the rate of the slowest step; None for a short run, whose steps have none and whose start counts."""
    store = Store(str(run))
    steps = step_statistics(read(store, CALLS, choose_run(store, None)))
    rates = [step.steady_rows_per_s for step in steps if not step.later]
    return None if None in rates else min(rate for rate in rates if rate)


def _run_to_predict(options: GpuOptions) -> Path:
    """Return the output of the engine's run; where it did not run, of one of its own."""
    for name in ("warm", "cold"):
        if (options.folder / name / "run.json").exists():
            return options.folder / name
    run(options, options.folder / "cold", ["categorize"], *run_settings(options, ["categorize"]))
    return options.folder / "cold"
