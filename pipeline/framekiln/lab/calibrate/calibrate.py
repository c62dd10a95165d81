"""A calibration: sample rows of the input, measurements of each step with a model alone, and the resulting file."""

import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from framekiln.contract.errors import ConfigError, ResourceError, SetupError
from framekiln.lab.calibrate.bench import StepMeasurement, measure
from framekiln.lab.models.sample_rows import SampleRows, has_model, sample_rows, write_rows
from framekiln.lab.sweep.batch_search import Limits
from framekiln.media.files import MediaFile
from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.plan import Plan
from framekiln.planning.processes.resources import this_machine
from framekiln.planning.step import Step
from framekiln.profiling.step_work import pixels
from framekiln.runtime.run.environment import package_version, processor


def measurable(plan: Plan, names: Sequence[str]) -> list[Step]:
    """Return the named steps with a model, by default all; if any runs on the GPU, only those.

    Raises ConfigError: no step has a model. Raises ResourceError: a step needs a GPU, and this machine has none.
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
    plan: Plan,
    media: Sequence[MediaFile],
    steps: Sequence[Step],
    limits: Limits,
    rows: int,
    say: Callable[[str], None],
    show: Callable[[StepMeasurement, Calibration | None], None],
) -> Calibration:
    """Measure each step alone on rows of the media.

    `say` gets sentences on the way. `show` gets each step's figures, with the calibration of all steps so far. Raises
    InputError: there is no frame in them. Raises SetupError: no call of any step succeeded.
    """
    sample = sample_rows(media, plan, steps, rows, say)
    tables = sample.sizes()
    megapixels = ", ".join(f"{pixels(table).mean() / 1e6:.2f} MP" for table in tables)
    rate = f"{sample.decode_rows_per_s:.1f} rows a second in one process"
    say(f"Rows of {megapixels}; decoding and steps without a model: {rate}.")
    for name, why in sample.failed.items():
        say(f"{name} failed on some of them; its readers get nulls there: {why}")
    results: list[StepMeasurement] = []
    with tempfile.TemporaryDirectory(prefix="framekiln-") as folder:
        sizes = [write_rows(table, Path(folder) / f"{i}.arrow") for i, table in enumerate(tables)]
        for step in steps:
            place = step.placement
            say(f"\n{step.name}: {place.precision}{', compiled' if place.compile else ''}, {place.device}")
            if missing := [name for name in step.stage.inputs if name not in sample.rows.column_names]:
                results.append(StepMeasurement(step.name, notes=[f"nothing made its column {missing[0]!r}"]))
            else:
                results.append(measure(step, sizes, limits, say, dummy=step.name in step.dummies))
            show(results[-1], _make_calibration(results, sample))
    if (calibration := _make_calibration(results, sample)) is None:
        reasons = "; ".join(f"{result.step}: {', '.join(result.notes)}" for result in results)
        raise SetupError(f"No step could be measured ({reasons}).", code="FK-CALIBRATION-FAILED")
    return calibration


def _make_calibration(results: Sequence[StepMeasurement], sample: SampleRows) -> Calibration | None:
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
