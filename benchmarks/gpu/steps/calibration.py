"""A calibration of `categorize`, and what it predicts: of the engine's run on this GPU, and of other GPUs."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu.options import GpuOptions, Record
from benchmarks.gpu.steps.engine import framekiln, photos, run, run_settings
from framekiln.lab.predict.gpu_specs import gpu_by_driver_name, gpu_by_name, read_gpus
from framekiln.lab.predict.predict import predict
from framekiln.lab.predict.source_run import read_source
from framekiln.planning.gpu.calibration_file import Calibration, read_calibration

TARGETS = ("rtx-5080", "rtx-4060")
_WITHIN = 0.15  # relative error of the predicted rate of the run on this GPU


def measure(options: GpuOptions, record: Record) -> None:
    """Record the calibration, then the errors of its predictions where a GPU was measured."""
    calibration = _calibrated(options)
    figures = calibration.steps["categorize"]
    about = {"device": calibration.device, "context_gb": calibration.context_gb, "weights_gb": figures.weights_gb}
    batches = {"fastest_batch": figures.fastest_batch, "largest_batch": figures.largest_batch}
    rates = {str(trial.batch): trial.rows_per_s for trial in figures.trials}
    line = figures.memory.model_dump() if figures.memory is not None else None
    record(**about, **batches, rows_per_s=rates, memory=line)
    if options.device != "cpu":
        _predict(options, calibration, record)


def _calibrated(options: GpuOptions) -> Calibration:
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
    framekiln("calibrate", "--input", source, *profile, *policy, *limits, "--save", str(folder))
    (path,) = folder.glob("*.json")
    return read_calibration(path)


def _predict(options: GpuOptions, calibration: Calibration, record: Record) -> None:
    known = read_gpus(None)
    prediction = predict(
        read_source(str(_run_to_predict(options))),
        calibration,
        gpu_by_driver_name(calibration.device, known),
        {name: gpu_by_name(name, known) for name in TARGETS},
    )
    tests = {name: asdict(errors) for name, errors in prediction.tested.items()}
    error = prediction.run_error
    is_close = error is not None and abs(error) <= _WITHIN
    checks = {} if options.small else {"ok": is_close}  # a small run has no steady rate
    record(run_error=error, **checks, back_tests=tests, why=prediction.not_shown)
    for estimate in prediction.gpus:
        rate = asdict(estimate.rate) if estimate.rate is not None else None
        record(gpu=estimate.gpu, rows_per_s=rate, limit=estimate.limit, why=estimate.why_not)


def _run_to_predict(options: GpuOptions) -> Path:
    """Return the output of the engine's run; where it did not run, of one of its own."""
    for name in ("warm", "cold"):
        if (options.folder / name / "run.json").exists():
            return options.folder / name
    run(options, options.folder / "cold", ["categorize"], *run_settings(options, ["categorize"]))
    return options.folder / "cold"
