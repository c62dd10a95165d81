"""The file that `framekiln calibrate` writes, `calibration/<gpu>.json`, for plans and predictions.

Each figure is stored with its source. It is valid for a step with the same stage, settings and precision on the same
device.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from framekiln.contract.errors import ConfigError
from framekiln.planning.processes.resources import gpu_names
from framekiln.planning.sample import Sample
from framekiln.planning.settings import Strict, file_error
from framekiln.planning.step import Step, fingerprint

_REQUIRED = frozenset({"device", "kind", "steps"})  # keys that every calibration has, and no other file all of
_FACTS = ("use", "version", "settings")  # facts of a step that decide its figures
FOLDER = Path("calibration")  # of the files, in the working folder


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
    weights_gb: float = Field(ge=0)  # parameters and buffers on the device, else memory after the set-up
    trials: list[Sample] = Field(min_length=1)
    memory: Line | None = None  # None if the device does not report memory
    largest_batch: int = Field(ge=1)  # without an out-of-memory error
    largest_is_limit: bool = False  # a larger one ran out of memory; otherwise none was tried
    fastest_batch: int = Field(ge=1)
    chunks: dict[str, int] = Field(default_factory=dict)  # items at a time in these trials: prompts, faces, ...
    flops_per_row: float | None = None  # by torch's FlopCounterMode; None if it sees no operator
    weights_bytes: int | None = None  # parameters and buffers that a call reads

    @property
    def unseen(self) -> tuple[str, ...]:
        """Kinds of items, such as faces, that no row had: their cost is in none of these figures."""
        kinds = {kind for trial in self.trials for kind in trial.items}
        return tuple(sorted(kind for kind in kinds if not any(trial.items.get(kind) for trial in self.trials)))

    def rate(self, batch: int) -> float:
        """Return the rows a second at a batch, interpolated in seconds a call between the nearest two trials."""
        best: dict[int, float] = {}
        for trial in self.trials:
            best[trial.batch] = max(best.get(trial.batch, 0.0), trial.rows_per_s)
        sizes = sorted(best)
        nearest = min(max(batch, sizes[0]), sizes[-1])
        return float(nearest / np.interp(nearest, sizes, [size / best[size] for size in sizes]))


class Calibration(Strict):
    """The figures of all steps that were measured on one device."""

    format: Literal[1] = 1
    device: str  # the name that its driver gives
    kind: Literal["cuda", "cpu"]
    gpu_vram_gb: float | None = Field(None, alias="vram_gb")  # of the GPU
    context_gb: float = Field(0.0, ge=0)  # GPU memory of a process before it allocates anything
    made: str  # date, ISO 8601
    framekiln: str  # versions
    torch: str
    decode_rows_per_s: float | None = None  # one decode worker, files to packets, with the steps that have no model
    steps: dict[str, StepFigures]

    def of(self, step: Step) -> StepFigures | None:
        """Return the figures of a step as it is placed; None if it was not measured that way."""
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


def default_path(device: str, folder: Path = FOLDER) -> Path:
    """Return the path of a device's calibration."""
    return folder / f"{slug(device)}.json"


def find_calibration(path: Path | None) -> Calibration | None:
    """Return the calibration at a path, else the one of this machine's GPU; None if there is none.

    Raises:
        ConfigError: see `read_gpu_calibration`.
    """
    if path is not None:
        return read_gpu_calibration(path)
    names = set(gpu_names())
    if len(names) != 1:  # with several models of GPUs a process may get any of them
        return None
    default = default_path(names.pop())
    return read_calibration(default) if default.is_file() else None


def read_gpu_calibration(path: Path) -> Calibration:
    """Read the calibration of a GPU at a path.

    Raises:
        ConfigError: the file is missing, is no calibration, or is one of a CPU.
    """
    calibration = read_calibration(path)
    if calibration.kind != "cuda":
        raise ConfigError(
            f"'{path}' was measured on a CPU ({calibration.device}); give --calibration the file of a GPU.",
            code="FK-CALIBRATION-OF-CPU",
        )
    return calibration


def read_calibration(path: Path) -> Calibration:
    """Read the calibration at a path. Raises ConfigError if the file is missing, or is no calibration."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not data.keys() >= _REQUIRED:
            raise ValueError
        return Calibration.model_validate(data)
    except OSError as error:
        raise ConfigError(
            f"There is no calibration at '{path}'; write one by `framekiln calibrate`.", code="FK-NO-CALIBRATION"
        ) from error
    except ValidationError as error:
        raise file_error(error, Calibration, str(path)) from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"'{path}' is no calibration; write one by `framekiln calibrate`.", code="FK-NOT-A-CALIBRATION"
        ) from error


def write_calibration(calibration: Calibration, folder: Path) -> Path:
    """Write a calibration into a folder, under its device's name, and return the file's path.

    Steps of an earlier file of the same device that are not measured again are kept. So are the figures of all steps
    together: the larger context, and the slower decoding, which had more steps beside it.
    """
    path = default_path(calibration.device, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(ConfigError):  # there is no earlier file, or it cannot be read any more
        before = read_calibration(path)
        if before.device == calibration.device and before.steps.keys() - calibration.steps.keys():
            calibration = _merge(before, calibration)
    half = path.with_suffix(".half")
    half.write_text(calibration.model_dump_json(indent=1, by_alias=True) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def _merge(before: Calibration, after: Calibration) -> Calibration:
    rates = [rate for rate in (before.decode_rows_per_s, after.decode_rows_per_s) if rate is not None]
    return after.model_copy(
        update={
            "steps": {**before.steps, **after.steps},
            "context_gb": max(before.context_gb, after.context_gb),
            "decode_rows_per_s": min(rates, default=None),
        }
    )
