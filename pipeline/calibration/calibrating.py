"""A whole calibration: rows of the input, then each step with a model by itself, then what the file says."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from pipeline.calibration.figures import Calibration
from pipeline.calibration.measuring import Measured, measure
from pipeline.calibration.probe import written
from pipeline.calibration.rows import Sample, has_model, sample
from pipeline.calibration.search import Limits
from pipeline.errors import ConfigError, ResourceError, SetupError
from pipeline.machines import this_machine
from pipeline.plan import Plan
from pipeline.step import Step
from pipeline.telemetry.run_file import processor


class Watch(Protocol):
    """Told how far a calibration is."""

    def on_producer(self, step: Step) -> None:
        """A step with a model runs on the rows, since others read its columns."""

    def on_rows(self, found: Sample) -> None:
        """The rows are there."""

    def on_step(self, step: Step) -> None:
        """A step has its turn."""

    def on_measured(self, found: Measured, so_far: Calibration | None) -> None:
        """It is through; with what is known by now, where that is anything."""


def measurable(plan: Plan, names: Sequence[str]) -> list[Step]:
    """The steps that are measured: those with a model, on the GPU if any runs there.

    Args:
        plan: checked.
        names: what somebody asked for; empty for all.

    Raises:
        ConfigError: no such step has a model.
        ResourceError: they run on a GPU, and this machine has none.
    """
    models = [step for step in plan.first if has_model(step) and (not names or step.name in names)]
    on_gpu = [step for step in models if step.placement.device != "cpu"]
    if not models:
        left = f" ({', '.join(plan.skipped)} left out)" if plan.skipped else ""
        raise ConfigError(f"No first-pass step that was asked for has a model, so there is nothing to measure{left}.")
    if on_gpu and not this_machine().gpus:
        names_ = ", ".join(step.name for step in on_gpu)
        raise ResourceError(
            f"This machine has no GPU for {names_}; calibrate on the machine whose GPU it is, or give --device cpu for "
            "rates on this processor, without memory."
        )
    return on_gpu or models


def calibrate(plan: Plan, source: str, steps: Sequence[Step], limits: Limits, rows: int, watch: Watch) -> Calibration:
    """Measure steps alone on rows of the input.

    Raises:
        InputError: there is no input, or no frame in it.
        SetupError: no call of any step returned.
    """
    found = sample(source, plan, steps, rows, watch.on_producer)
    watch.on_rows(found)
    results: list[Measured] = []
    made: Calibration | None = None
    with tempfile.TemporaryDirectory(prefix="framemill-") as folder:
        sizes = [written(table, Path(folder) / f"{i}.arrow") for i, table in enumerate(found.sizes())]
        for step in steps:
            watch.on_step(step)
            lacks = [name for name in step.stage.inputs if name not in found.rows.column_names]
            if lacks:
                results.append(Measured(step.name, notes=[f"nothing made its column {lacks[0]!r}"]))
            else:
                results.append(measure(step, sizes, limits, dummy=step.name in step.dummies))
            made = _file(results, found)
            watch.on_measured(results[-1], made)
    if made is None:
        said = "; ".join(f"{one.step}: {', '.join(one.notes)}" for one in results)
        raise SetupError(f"No step could be measured ({said}).")
    return made


def _file(results: Sequence[Measured], found: Sample) -> Calibration | None:
    figures = {one.step: one.figures for one in results if one.figures is not None}
    if not figures:
        return None
    seen = [one.seen for one in results if one.seen is not None]
    on_cpu = all(one.total_gb is None for one in seen)
    return Calibration(
        device=processor() or "cpu" if on_cpu else seen[0].name,
        kind="cpu" if on_cpu else "cuda",
        vram_gb=None if on_cpu else seen[0].total_gb,
        context_gb=max((one.context_gb for one in seen), default=0.0),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        framemill=_version("framemill"),
        torch=_version("torch"),
        decode_rows_per_s=found.decode_rows_per_s,
        steps=figures,
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
