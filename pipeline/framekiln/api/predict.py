"""A run on other GPUs, from a run on any machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from framekiln.contract.errors import check_known
from framekiln.contract.row_errors import DECODE
from framekiln.device.cores import usable_cores
from framekiln.lab.predict.choose import Chooser, GpuChoice, Prices
from framekiln.lab.predict.gpu_specs import gpu_by_driver_name, gpu_by_name, read_gpus
from framekiln.lab.predict.measured import DRAWS, estimate_rows, read_measured
from framekiln.lab.predict.pace import Interval
from framekiln.lab.predict.reached import measured_steps
from framekiln.lab.predict.source_run import SourceRun, read_source
from framekiln.lab.predict.work import WorkCounter
from framekiln.media.discovery.listing import list_inputs
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from framekiln.planning.gpu.calibration_file import read_gpu_calibration
from framekiln.planning.plan_options import PlanOptions
from framekiln.runtime.run.record import stored_request

_ENDS = (0.05, 0.95)


def choose(
    output: str,
    wanted: Sequence[str] = (),
    *,
    inputs: Sequence[str] | None = None,
    cores: float | None = None,
    prices: Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    calibration: Path | None = None,
    gpus: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[GpuChoice], Interval]:
    """Return the run on each wanted GPU, on all that are known without any, and the rows of the collection.

    `say` takes a sentence before what takes long. Raises UserError: there is no such output, GPU, input or calibration.
    """
    known = read_gpus(gpus)
    targets = {name: gpu_by_name(name, known) for name in wanted} or dict(known)
    for name in prices or {}:
        check_known(name, targets, f"--prices: {name!r} is none of the GPUs.", code="FK-UNKNOWN-GPU")
    source, store = read_source(output), Store(output)
    request = stored_request(store)
    figures = read_gpu_calibration(calibration) if calibration is not None else None
    rows = _count_rows(store, inputs)
    chooser = Chooser(
        source=source,
        pipeline=request.pipeline,
        profile=request.profile,
        options=_of_all_steps(request.options, source, calibration),
        cores=cores or float(usable_cores()),
        rows=rows,
        prices=Prices(per_hour=prices or {}, per_kwh=price_per_kwh),
        counter=WorkCounter(_megapixels(source), {step.name: step.sample.items for step in source.steps}),
        measured=measured_steps(source, figures, lambda device: gpu_by_driver_name(device, known)),
    )
    say("Counting the work of each model; this takes up to a minute.")
    return [chooser.judge(name, gpu) for name, gpu in targets.items()], rows


def _of_all_steps(options: PlanOptions, source: SourceRun, calibration: Path | None) -> PlanOptions:
    """Return the run's options for a plan of its first-pass steps on a whole GPU, whether their weights are here."""
    return replace(
        options,
        stages=tuple(step.name for step in source.steps if step.name != DECODE),
        calibration=calibration,
        vram_cap=None,
        device=None,
        missing_weights="dummy",
        accept_license=True,
    )


def _megapixels(source: SourceRun) -> float:
    return max(step.sample.megapixels for step in source.steps)


def _count_rows(store: Store, inputs: Sequence[str] | None) -> Interval:
    """Return the rows of files, those of the output without any."""
    files = list_inputs(inputs) if inputs else [media for unit in read_units(store) for media in unit.media]
    draws = np.sum([np.zeros(1 + DRAWS), *estimate_rows(files, read_measured(store))[0].values()], axis=0)
    low, high = np.quantile(draws[1:], _ENDS)
    return Interval(central=float(draws[0]), low=float(low), high=float(high))
