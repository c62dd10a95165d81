"""Calibrations for publication: without facts about a person, machine or input, and plausible for their GPU.

`framekiln calibrate --share FILE` writes one, and `manifests/calibrations/` takes it. It leaves out everything not
named in the shipped pipeline: own steps, with personal names and classes, and limits that runs learned. It also leaves
out steps measured with random weights. Everything else is kept, except the time of day.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import expand
from framekiln.lab.predict.gpu_specs import GpuList, GpuSpecs, find_gpu, read_gpus
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, read_gpu_calibration
from framekiln.planning.manifest import read_pipeline
from framekiln.planning.sample import Sample
from framekiln.weights.checksums import atomic_file

_TRIAL = ("batch", "megapixels", "calls", "seconds", "phases", "items", "peak_gb", "reserved_gb")
_MEMORY = (0.85, 1.08)  # of the maker's GB, which are GiB: drivers keep some of them; a part of a GPU has less
_ODD = re.compile(r'[^\w\s.,:+(){}\[\]"-]')  # what paths and markup have, and no name or number here
_LONGEST_S = 120.0  # of a call: calibrating stops at batches that take over 30 s
_AS_LONG = 2.0  # times a call's seconds that its phases may add up to: means beside a median
_MOST_MEGAPIXELS = 1000.0  # of a row: several times the largest sensors
_MOST_DECODED = 1e5  # rows a second of one process: 200 times what a core decodes of 1 MP at half size
_LEAST_GB = 1e-3  # by which a line may miss a trial beside its own error
FASTEST = 2.5  # times the bound by counted FLOPs: Winograd's 3 x 3 convolutions take 1 / 2.25 of them, and clocks vary


def share_calibration(source: Path, target: Path) -> Sequence[str]:
    """Write the publishable part of a GPU's calibration into a file, and return the names of omitted steps.

    Raises ConfigError: there is no GPU calibration at `source`, or its publishable part is not plausible.
    """
    known = read_gpu_calibration(source)
    shared = to_shared(known)
    if reasons := [*find_implausible(shared, gpus := read_gpus())]:
        mend = "measure steps with their weights, on an idle GPU"
        if find_gpu(shared.device, gpus) is None:
            mend = "add its data sheet's figures there, each with its source, as for the others"
        raise ConfigError(
            f"'{source}' is not shared, since {'; '.join(reasons)}; {mend}.", code="FK-CALIBRATION-IMPLAUSIBLE"
        )
    with atomic_file(expand(target)) as partial:
        partial.write_text(f"{shared.model_dump_json(indent=1, by_alias=True)}\n", encoding="utf-8")
    return sorted(known.steps.keys() - shared.steps.keys())


def to_shared(calibration: Calibration) -> Calibration:
    """Return the publishable part of a calibration."""
    shipped = {name: entry.use for name, entry in read_pipeline(None).steps.items()}
    kept = {
        name: figures.model_copy(
            update={"trials": [Sample(**{key: getattr(trial, key) for key in _TRIAL}) for trial in figures.trials]}
        )
        for name, figures in calibration.steps.items()
        if shipped.get(name) == figures.use and not figures.dummy
    }
    return calibration.model_copy(update={"made": calibration.made[:10], "steps": kept, "learned": {}})


def find_implausible(calibration: Calibration, gpus: GpuList) -> Iterator[str]:
    """Yield signs that a shared calibration was not measured on the GPU that it names, or holds too much."""
    if to_shared(calibration) != calibration:
        yield "it holds more than `framekiln calibrate --share` writes"
    if not calibration.steps:
        yield "it has no shipped step with real weights"
    if missing := [name for name in ("made", "framekiln", "torch") if not getattr(calibration, name)]:
        yield f"it does not say {', '.join(missing)}"
    elif not _is_past(calibration.made[:10]):
        yield f"it was made on {calibration.made!r}, which is no day until today"
    if (calibration.decode_rows_per_s or 0.0) > _MOST_DECODED:
        yield f"one process decoded {calibration.decode_rows_per_s:,.0f} rows a second"
    if odd := _ODD.search(calibration.model_dump_json()):
        yield f"it holds {odd[0]!r}, which no name and no number of a calibration has"
    if (gpu := find_gpu(calibration.device, gpus, calibration.gpu_vram_gb)) is None:
        yield f"manifests/gpus.yaml lacks {calibration.device!r}"
        return
    memory, (least, most) = calibration.gpu_vram_gb or 0.0, _MEMORY
    if not least * gpu.memory_gb <= memory <= most * gpu.memory_gb:
        yield f"the GPU had {memory:.1f} GB, but its data sheet has {gpu.memory_gb:g}"
    for name, figures in calibration.steps.items():
        peak = max(figures.weights_gb, *(trial.reserved_gb or trial.peak_gb or 0.0 for trial in figures.trials))
        if not _agrees(figures):
            yield f"the batches, sizes, times and memory of {name} do not agree"
        if peak + calibration.context_gb > memory:
            yield f"{name} took {peak:.1f} GB and a context, of {memory:.1f}"
        times = ((one.batch, one.model_s or one.seconds / one.batch) for one in figures.trials)
        share = max(_estimate_use(figures, *of_batch, gpu) for of_batch in times)
        if share > FASTEST:
            yield f"{name} was {share:.1f} times as fast as the GPU's arithmetic and memory allow"


def _is_past(day: str) -> bool:
    try:
        return date.fromisoformat(day) <= datetime.now(UTC).date()
    except ValueError:
        return False


def _agrees(figures: StepFigures) -> bool:
    """Return whether a step's figures can be of one measurement: times within calls, memory on its line."""
    line, is_known = figures.memory, figures.fastest_batch in {trial.batch for trial in figures.trials}
    for one in figures.trials:
        inside = one.batch * sum(one.phases.values())
        is_known &= 0 < one.seconds <= _LONGEST_S and inside <= _AS_LONG * one.seconds
        is_known &= one.megapixels <= _MOST_MEGAPIXELS
        is_known &= min(one.phases.values(), default=0) >= 0 <= (one.peak_gb or 0)
        if line is not None and one.peak_gb is not None:
            is_known &= abs(line.at(one.batch, one.megapixels) - one.peak_gb) <= line.error_gb + _LEAST_GB
    return is_known and figures.fastest_batch <= figures.largest_batch


def _estimate_use(figures: StepFigures, batch: int, seconds: float, gpu: GpuSpecs) -> float:
    """Return the reached share of the GPU's arithmetic, or of its memory rate for weights alone; 0 if unknown."""
    if figures.flops_per_row is None or seconds <= 0:
        return 0.0
    arithmetic = figures.flops_per_row / (gpu.tflops(figures.precision) * 1e12)
    memory = (figures.weights_bytes or 0) / batch / (gpu.bandwidth_gb_s * 1e9)
    return max(arithmetic, memory) / seconds
