"""A prediction of a run on other GPUs, from a run on any machine."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from framekiln.api.options import PredictOptions, checked, split_names
from framekiln.api.request import input_texts
from framekiln.contract.errors import ConfigError, check_known, once, without_secrets
from framekiln.contract.row_errors import DECODE
from framekiln.device.cores import usable_cores
from framekiln.lab.predict.choose import Chooser, GpuChoice, Prediction, Prices, are_idle
from framekiln.lab.predict.gpu_specs import GpuList, gpu_by_driver_name, read_gpus, short_name
from framekiln.lab.predict.measured import DRAWS, estimate_rows, measuring_notes, read_measured
from framekiln.lab.predict.pace import Interval
from framekiln.lab.predict.reached import measured_steps
from framekiln.lab.predict.source_run import SourceRun, read_source
from framekiln.lab.predict.work import WorkCounter
from framekiln.media.discovery.listing import list_inputs
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from framekiln.planning.gpu.calibration_file import read_gpu_calibration
from framekiln.planning.plan_options import PlanOptions
from framekiln.profiling.run_profile import read_work, run_of
from framekiln.reporting.plan_facts import left_out
from framekiln.runtime.run.record import read_run_record, stored_request

MOST_CORES, MOST_ROWS = 10_000, 1e15  # far beyond one machine, and all photos there are


def choose(output: str, options: PredictOptions, say: Callable[[str], None] = lambda _: None) -> Prediction:
    """Return the run on each wanted GPU, or on all known ones.

    `say` gets a sentence before slow work. Raises UserError: the output, GPU, input or calibration does not exist, or a
    number is invalid.
    """
    given = checked(PredictOptions, options)
    cores, calibration, known = given["cores"], given["calibration"], read_gpus(given["specs"])
    targets = _read_targets(given["gpus"], known)
    prices = _read_prices(given["prices"], given["price_per_kwh"], known, targets)
    per_row = _read_numbers(given["per_row"], "--per-row", "instances=100,faces=2")
    _check_numbers(cores, given["rows"])
    if given["rows"] is not None and given["input"]:
        raise ConfigError("--rows and --input both say what is estimated; give one.", code="FK-INVALID-VALUE")
    source, store = read_source(output), Store(output)
    request = stored_request(store)
    figures = read_gpu_calibration(calibration) if calibration is not None else None
    rows, notes = _count_rows(store, input_texts(given["input"]), given["rows"])
    size = max(step.sample.megapixels for step in source.steps)
    items = {step.name: {**step.sample.items, **per_row} for step in source.steps}
    chooser = Chooser(
        source=source,
        pipeline=request.pipeline,
        profile=request.profile,
        options=_plan_all_steps(request.options, source, calibration),
        cores=cores or float(usable_cores()),
        rows=rows,
        prices=prices,
        counter=WorkCounter(size, items),
        measured=measured_steps(source, figures, lambda device, gb: gpu_by_driver_name(device, known, gb)),
    )
    say("Counting the work of each model; this takes up to a minute.")
    found = [chooser.judge(name, gpu) for name, gpu in targets.items()]
    for kind in per_row:
        check_known(kind, chooser.counter.kinds, f"--per-row: no step works on {kind!r}.", code="FK-INVALID-VALUE")
    notes += [*_list_absent(store, source), *_list_doubts(source, found), *_list_items(found, per_row)]
    return Prediction(
        output=without_secrets(output), cores=chooser.cores, rows=rows, prices=prices, gpus=found, notes=notes
    )


def _read_targets(text: str, known: GpuList) -> GpuList:
    names = split_names(text)
    if text and not names:
        raise ConfigError(f"--for {text!r} names no GPU; write --for rtx-5080,l4.", code="FK-UNKNOWN-GPU")
    return {name: known[name] for name in (short_name(each, known, "--for") for each in names)} or known


def _read_numbers(
    text: str, option: str, example: str, *, code: str = "FK-INVALID-VALUE", find: Callable[[str], str] = str
) -> dict[str, float]:
    """Return the numbers of `NAME=NUMBER,...` under the names that are found. Raises ConfigError."""
    try:
        found = [(name, float(number)) for name, number in (part.split("=") for part in split_names(text))]
        if (text and not found) or not all(0 <= number < math.inf for _, number in found):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: write numbers from 0 as {example}.", code=code) from error
    return once(((find(name), number) for name, number in found), option, code=code)


def _read_prices(text: str, per_kwh: float | None, known: GpuList, targets: GpuList) -> Prices:
    if not 0 <= (per_kwh or 0.0) < math.inf:
        raise ConfigError(f"The price per kWh is {per_kwh:g}; give 0 or more.", code="FK-PRICES-INVALID")
    example, code = "rtx-5080=0.4,h100=2.5", "FK-PRICES-INVALID"
    find = partial(short_name, gpus=known, option="--prices")
    per_hour = _read_numbers(text, "--prices", example, code=code, find=find)
    for name in per_hour:
        check_known(name, targets, f"--prices: {name!r} is not among the GPUs of --for.", code="FK-UNKNOWN-GPU")
    return Prices(per_hour=per_hour, per_kwh=per_kwh)


def _check_numbers(cores: float | None, rows: float | None) -> None:
    for name, value, most in (("--cores", cores, MOST_CORES), ("--rows", rows, MOST_ROWS)):
        if value is not None and not 0 < value <= most:
            raise ConfigError(f"{name} {value:g}: give a number over 0, {most:,.0f} at most.", code="FK-INVALID-VALUE")
    if rows is not None and rows % 1:
        raise ConfigError(
            f"--rows {rows:g}: a row is a photo or a frame; give a whole number.", code="FK-INVALID-VALUE"
        )


def _list_absent(store: Store, source: SourceRun) -> Iterator[str]:
    """Yield sentences on steps that the last run did not compute; the figures exclude them."""
    record = read_run_record(store)
    if skipped := record.get("skipped"):
        yield f"{left_out(skipped, len(record['steps']))} What is left out is in no figure"
    others = [work for name, work in read_work(store).items() if name != run_of(store, record)]
    known = {step.name for step in (*source.steps, *source.later)}
    if earlier := sorted({step for work in others for step in work.steps} - known):
        yield f"Earlier runs computed {', '.join(earlier)}: no figure contains them; predict from a run of all steps"


def _list_doubts(source: SourceRun, choices: Sequence[GpuChoice]) -> list[str]:
    notes = measuring_notes(source.others, source.steps)
    if are_idle(choices):
        notes.append("No step uses a GPU, so all give the same rate")
    if idle := {step.step: 0 for choice in choices for step in choice.steps if step.seconds is None}:
        notes.append(f"{', '.join(idle)}: the run's rows gave the models nothing to do, so no figure contains them")
    return notes


def _list_items(choices: Sequence[GpuChoice], told: Collection[str]) -> list[str]:
    """Return sentences on the faces, masks, ... of a row: their numbers, and which of them another GPU may change."""
    steps = [step for choice in choices for step in choice.steps]
    items = {kind: f"{kind} {number:.3g}" for step in steps for kind, number in step.items.items()}
    open_ = {step.step: step for step in steps if step.after and not step.items.keys() <= set(told)}
    return [
        *([f"Assumed for a row, from the run or --per-row: {', '.join(items.values())}"] if items else []),
        *(
            f"{', '.join(step.after)} had other settings in the run and may find more on a GPU, for which {name} would "
            f"take longer: state another number by `--per-row {next(iter(step.items))}=100`"
            for name, step in open_.items()
        ),
    ]


def _plan_all_steps(options: PlanOptions, source: SourceRun, calibration: Path | None) -> PlanOptions:
    """Return the run's options for a plan of its first-pass steps on a whole GPU, even if weights are missing."""
    return replace(
        options,
        stages=tuple(step.name for step in source.steps if step.name != DECODE),
        calibration=calibration,
        vram_cap=None,
        device=None,
        missing_weights="dummy",
        accept_license=True,
    )


def _count_rows(store: Store, inputs: Sequence[str], told: float | None) -> tuple[Interval, list[str]]:
    """Return the rows as given, of files, or else of the output, and sentences on what the count omits."""
    if told is not None:
        return Interval(central=told, low=told, high=told), []
    files = list_inputs(inputs) if inputs else [media for unit in read_units(store) for media in unit.media]
    by_kind, notes = estimate_rows(files, read_measured(store))
    return Interval.of(np.sum([np.zeros(1 + DRAWS), *by_kind.values()], axis=0)), notes
