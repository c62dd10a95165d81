"""A calibration: sample rows of the input, each step with a model measured alone, and the resulting file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from framekiln.contract.errors import ConfigError, ResourceError, SetupError
from framekiln.lab.calibrate.bench import StepMeasurement, measure
from framekiln.lab.models.sample_rows import SampleRows, has_model, sample_rows, write_rows
from framekiln.lab.sweep.batch_search import Limits
from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.plan import Plan
from framekiln.planning.processes.resources import this_machine
from framekiln.planning.step import Step
from framekiln.runtime.run.environment import package_version, processor


class CalibrationObserver(Protocol):
    """Receives the progress of a calibration."""

    def on_producer(self, step: Step) -> None:
        """A step with a model starts on the sample rows, since others read its columns."""

    def on_rows(self, sample: SampleRows) -> None:
        """The sample rows are complete."""

    def on_step(self, step: Step) -> None:
        """The measurement of a step starts."""

    def on_measured(self, measurement: StepMeasurement, so_far: Calibration | None) -> None:
        """The measurement of a step has ended; `so_far` holds all steps measured by now."""


def measurable(plan: Plan, names: Sequence[str]) -> list[Step]:
    """Return the named steps with a model, or all of them without names; only those on the GPU if any runs there.

    Raises:
        ConfigError: none of these steps has a model.
        ResourceError: a step runs on a GPU, and this machine has none.
    """
    models = [step for step in plan.first if has_model(step) and (not names or step.name in names)]
    on_gpu = [step for step in models if step.placement.device != "cpu"]
    if not models:
        left = f" ({', '.join(plan.skipped)} left out)" if plan.skipped else ""
        raise ConfigError(
            f"None of the chosen first-pass steps has a model, so there is nothing to measure{left}; choose a step "
            "with a model.",
            code="FK-NOTHING-TO-CALIBRATE",
        )
    if on_gpu and not this_machine().gpus:
        needing = ", ".join(step.name for step in on_gpu)
        raise ResourceError(
            f"This machine has no GPU for {needing}; calibrate on the machine with that GPU, or give --device cpu for "
            "rates on this processor, without memory.",
            code="FK-CALIBRATE-NO-GPU",
        )
    return on_gpu or models


def calibrate(
    plan: Plan, sources: Sequence[str], steps: Sequence[Step], limits: Limits, rows: int, observer: CalibrationObserver
) -> Calibration:
    """Measure each step alone on rows of the input.

    Raises:
        InputError: there is no input, or no frame in it.
        SetupError: no call of any step succeeded.
    """
    sample = sample_rows(sources, plan, steps, rows, observer.on_producer)
    observer.on_rows(sample)
    results: list[StepMeasurement] = []
    calibration: Calibration | None = None
    with tempfile.TemporaryDirectory(prefix="framekiln-") as folder:
        sizes = [write_rows(table, Path(folder) / f"{i}.arrow") for i, table in enumerate(sample.sizes())]
        for step in steps:
            observer.on_step(step)
            missing = [name for name in step.stage.inputs if name not in sample.rows.column_names]
            if missing:
                results.append(StepMeasurement(step.name, notes=[f"nothing made its column {missing[0]!r}"]))
            else:
                results.append(measure(step, sizes, limits, dummy=step.name in step.dummies))
            calibration = _file(results, sample)
            observer.on_measured(results[-1], calibration)
    if calibration is None:
        reasons = "; ".join(f"{result.step}: {', '.join(result.notes)}" for result in results)
        raise SetupError(f"No step could be measured ({reasons}).", code="FK-CALIBRATION-FAILED")
    return calibration


def _file(results: Sequence[StepMeasurement], sample: SampleRows) -> Calibration | None:
    figures = {result.step: result.figures for result in results if result.figures is not None}
    if not figures:
        return None
    devices = [result.device for result in results if result.device is not None]
    on_cpu = all(device.total_gb is None for device in devices)
    return Calibration(
        device=processor() or "cpu" if on_cpu else devices[0].name,
        kind="cpu" if on_cpu else "cuda",
        gpu_vram_gb=None if on_cpu else devices[0].total_gb,
        context_gb=max((device.context_gb for device in devices), default=0.0),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        framekiln=package_version("framekiln") or "",
        torch=package_version("torch") or "",
        decode_rows_per_s=sample.decode_rows_per_s,
        steps=figures,
    )
