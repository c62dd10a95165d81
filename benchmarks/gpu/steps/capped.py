"""All stages with a model on a GPU of 8 GB: a run with that limit, which shares the GPU between them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu.options import GpuOptions, Record
from benchmarks.gpu.stage_steps import STAGES, WORK
from benchmarks.gpu.steps.engine import run, run_settings

CAP_GB = 8.0
_PHOTOS = 48


def measure(options: GpuOptions, record: Record) -> None:
    """Record the run's rate and its peak of memory, which must be below the limit."""
    settings = [word for setting in WORK["faces"] for word in ("--set", setting)]
    settings += run_settings(options, STAGES)
    gpu = [] if options.device == "cpu" else ["--profile", "memory-constrained", "--vram-cap", f"{CAP_GB:g}"]
    limit = [] if options.small else ["--limit", str(_PHOTOS)]
    result = run(options, Path(options.folder) / "capped", STAGES, *gpu, *limit, *settings)
    peak = result["vram_peak_gb"]
    record(limit_gb=CAP_GB if gpu else None, ok=not gpu or (peak is not None and peak <= CAP_GB), **result)
