"""Limits of a device: measured by `framekiln calibrate`, and learned by runs when memory ran out.

Each device has one file for both, `~/.cache/framekiln/fits/<device>.json`. Plans, predictions and workers read it. Each
figure is stored with its source. It is valid for a step with the same stage, settings and precision on the same device.
A damaged file of the cache is left out, with a warning: this costs some calls, never a result.
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import read_small
from framekiln.planning.processes.resources import gpu_names
from framekiln.planning.sample import Sample
from framekiln.planning.settings import Strict, file_error
from framekiln.planning.step import Step, fingerprint
from framekiln.weights.checksums import atomic_file, cache_root

_LOG = logging.getLogger("framekiln")
_REQUIRED = frozenset({"device", "kind", "steps"})  # keys of every calibration; no other file has them all
_FACTS = ("use", "version", "settings")  # facts of a step that decide its figures
PATIENCE = 64  # calls before a larger one is tried: a failure costs about two calls, some 3 % of the time

_Positive = Annotated[int, Field(ge=1)]


class Line(Strict):
    """Peak memory in GB as base + per_row·batch + per_megapixel·batch·megapixels, by least squares over the trials."""

    base_gb: float
    per_row_gb: float = 0.0
    per_megapixel_gb: float = 0.0
    error_gb: float = Field(ge=0)  # the largest distance of a trial from the line

    def at(self, batch: int, megapixels: float) -> float:
        """Return the GB of a batch with rows of that many megapixels, without the error."""
        return self.base_gb + self.per_row_gb * batch + self.per_megapixel_gb * batch * megapixels


class StepFigures(Strict):
    """One step on one device."""

    use: str  # module:Class
    settings: str  # fingerprint of the stage, its version and its settings
    precision: str
    compile: bool = False
    dummy: bool = False  # measured with random weights
    set_up_s: float = Field(ge=0)
    weights_gb: float = Field(ge=0)  # parameters and buffers on the device, or else memory after the set-up
    trials: list[Sample] = Field(min_length=1)
    memory: Line | None = None  # None if the device does not report memory
    largest_batch: int = Field(ge=1)  # without an out-of-memory error
    largest_is_limit: bool = False  # a larger one ran out of memory; false: none was tried
    fastest_batch: int = Field(ge=1)
    chunks: dict[str, _Positive] = Field(default_factory=dict)  # items at a time in these trials: prompts, faces, ...
    flops_per_row: float | None = Field(None, ge=0)  # by torch's FlopCounterMode; None if it sees no operator
    weights_bytes: int | None = Field(None, ge=0)  # parameters and buffers that a call reads

    @property
    def unseen(self) -> tuple[str, ...]:
        """Kinds of items, such as faces, that no row had: the figures lack their cost."""
        kinds = {kind for trial in self.trials for kind in trial.items}
        return tuple(sorted(kind for kind in kinds if not any(trial.items.get(kind) for trial in self.trials)))

    def rate(self, batch: int) -> float:
        """Return the rows a second at a batch, with seconds a call interpolated between the nearest trials."""
        best: dict[int, float] = {}
        for trial in self.trials:
            best[trial.batch] = max(best.get(trial.batch, 0.0), trial.rows_per_s)
        sizes = sorted(best)
        nearest = min(max(batch, sizes[0]), sizes[-1])
        return float(nearest / np.interp(nearest, sizes, [size / best[size] for size in sizes]))


@dataclass
class BatchLimit:
    """The largest batch that fits, for images of about one size."""

    rows: _Positive  # raised after a larger batch has worked
    patience: _Positive = PATIENCE  # calls at the limit before a larger batch is tried
    calm: Annotated[int, Field(ge=0)] = 0  # calls at the limit since a batch failed or a larger one was tried


class Learned(Strict):
    """The sizes that a step's runs learned on one device, whenever memory ran out."""

    rows: dict[int, BatchLimit] = Field(default_factory=dict)  # by bucket of image sizes
    chunks: dict[str, _Positive] = Field(default_factory=dict)  # sizes that fit
    runs: int = Field(0, ge=0)  # processes that read it


class Calibration(Strict):
    """The figures of all steps measured on one device, and what runs learned there."""

    format: Literal[1] = 1
    device: str  # its name in the driver
    kind: Literal["cuda", "cpu"]
    gpu_vram_gb: float | None = Field(None, gt=0, alias="vram_gb")  # memory of the GPU
    context_gb: float = Field(0.0, ge=0)  # GPU memory of a process before it allocates anything
    made: str = ""  # date, ISO 8601; empty if nothing was measured, as the next two
    framekiln: str = ""  # versions
    torch: str = ""
    decode_rows_per_s: float | None = Field(
        None, gt=0
    )  # one decode worker, files to packets, with the steps without a model
    steps: dict[str, StepFigures] = Field(default_factory=dict)
    learned: dict[str, Learned] = Field(default_factory=dict)  # by step and fingerprint of its memory's causes

    def of(self, step: Step) -> StepFigures | None:
        """Return a step's figures in its placement; None if it was not measured so."""
        figures, place = self.steps.get(step.name), step.placement
        if figures is None or figures.settings != settings_of(step.facts):
            return None
        return figures if (figures.precision, figures.compile) == (place.precision, place.compile) else None


def settings_of(facts: Mapping[str, Any]) -> str:
    """Return the fingerprint of a step's stage, version and settings, from `Step.facts` or a run.json's entry."""
    return fingerprint({name: facts[name] for name in _FACTS})


def slug(device: str) -> str:
    """Return a device's name for use in a file name: 'NVIDIA GeForce RTX 5080' gives 'nvidia-geforce-rtx-5080'."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def fits_folder() -> Path:
    """Return the folder of this machine's files, e.g. ~/.cache/framekiln/fits; it need not exist."""
    return cache_root() / "fits"


def default_path(device: str, folder: Path | None = None) -> Path:
    """Return the path of a device's file, in a folder or in this machine's."""
    return (folder or fits_folder()) / f"{slug(device)}.json"


def find_calibration(path: Path | None) -> Calibration | None:
    """Return the calibration at a path, else that of this machine's GPU; None if there is none.

    Raises ConfigError: see `read_gpu_calibration`.
    """
    if path is not None:
        return read_gpu_calibration(path)
    names = set(gpu_names())
    if len(names) != 1:  # with several models of GPU, a process may get any of them
        return None
    known = read_known(default_path(names.pop()))
    return known if known is not None and known.steps else None


def read_gpu_calibration(path: Path) -> Calibration:
    """Read the calibration of a GPU at a path.

    Raises ConfigError: the file is missing, no calibration, or a CPU's.
    """
    calibration = read_calibration(path)
    if calibration.kind != "cuda":
        raise ConfigError(
            f"'{path}' was measured on a CPU ({calibration.device}); give --calibration a GPU's file.",
            code="FK-CALIBRATION-OF-CPU",
        )
    if not calibration.steps:  # runs have learned limits, but nothing was measured
        raise _explain_missing(path)
    return calibration


def read_calibration(path: Path) -> Calibration:
    """Read the calibration at a path. Raises ConfigError: the file is missing, or is no calibration."""
    try:
        data = json.loads(read_small(path))
        if not isinstance(data, dict) or not data.keys() >= _REQUIRED:
            raise ValueError
        return Calibration.model_validate(data)
    except FileNotFoundError as error:
        raise _explain_missing(path) from error
    except ValidationError as error:
        raise file_error(error, Calibration, str(path)) from error
    except (OSError, RecursionError, ValueError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise ConfigError(
            f"'{path}' is no calibration{why}; write one by `framekiln calibrate`.", code="FK-NOT-A-CALIBRATION"
        ) from error


def _explain_missing(path: Path) -> ConfigError:
    return ConfigError(
        f"There is no calibration at '{path}'; write one by `framekiln calibrate`.", code="FK-NO-CALIBRATION"
    )


def read_known(path: Path) -> Calibration | None:
    """Return the content of a device's file; None if it is missing, or damaged, which logs a warning."""
    if not path.is_file():  # opening a named pipe would wait
        return None
    try:
        return read_calibration(path)
    except ConfigError as error:
        _LOG.warning("The stored limits of this device are ignored: %s", error)
        return None


def update(path: Path, change: Callable[[Calibration | None], Calibration]) -> None:
    """Replace a device's file by a changed one, while no other process does.

    Raises OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # opened for reading and writing, a named pipe does not wait
    with os.fdopen(os.open(path.with_name(".lock"), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = change(read_known(path)).model_dump_json(indent=1, by_alias=True)
        with atomic_file(path) as partial:
            partial.write_text(f"{text}\n", encoding="utf-8")


def write_calibration(calibration: Calibration, folder: Path | None) -> Path:
    """Write a calibration into a folder, named after its device, and return the file's path.

    Steps of an earlier file of this device stay if they are not measured again. Shared figures stay if they are worse:
    the larger context, and the slower decoding, which had more steps beside it. Learned limits stay.
    """
    path = default_path(calibration.device, folder)
    update(path, lambda before: _merge(before, calibration))
    return path


def _merge(before: Calibration | None, after: Calibration) -> Calibration:
    if before is None or before.device != after.device:
        return after
    after = after.model_copy(update={"learned": {**before.learned, **after.learned}})
    if not before.steps.keys() - after.steps.keys():
        return after
    rates = [rate for rate in (before.decode_rows_per_s, after.decode_rows_per_s) if rate is not None]
    return after.model_copy(
        update={
            "steps": {**before.steps, **after.steps},
            "context_gb": max(before.context_gb, after.context_gb),
            "decode_rows_per_s": min(rates, default=None),
        }
    )
