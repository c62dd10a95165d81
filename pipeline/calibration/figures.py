"""The file that `framemill calibrate` writes, `calibration/<gpu>.json`: read by the plan and by predictions.

A file says where each figure came from; whoever reads it decides whether a figure still holds. It holds for a step
with the same stage, settings and precision on the same device.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from pipeline.errors import ConfigError
from pipeline.manifest import Strict, explain
from pipeline.step import Step, fingerprint

_OF_ITS_OWN = frozenset({"device", "kind", "steps"})  # keys that every calibration has, and other files have not all
_MARKED = ("use", "version", "settings")  # facts of a step that decide its figures; weights of one size do not


class Trial(Strict):
    """Some calls of one size, made alone on the device."""

    batch: int = Field(ge=1)  # rows a call
    megapixels: float = Field(ge=0)  # of a row, at full size, on average
    calls: int = Field(ge=1)  # that were timed, after one that was not
    rows_per_s: float = Field(gt=0)  # median call; mean where calls had different rows
    phases: dict[str, float] = Field(default_factory=dict)  # seconds a row, by phase
    items: dict[str, float] = Field(default_factory=dict)  # faces, prompts, masks, ... a row, by kind
    peak_gb: float | None = None  # allocated at most; None where the device does not tell
    reserved_gb: float | None = None  # held by torch at most


class Line(Strict):
    """Peak memory in GB as base + per_row·batch + per_megapixel·batch·megapixels, by least squares over the trials."""

    base_gb: float
    per_row_gb: float = 0.0
    per_megapixel_gb: float = 0.0
    error_gb: float = Field(ge=0)  # the largest distance of a trial from the line

    def at(self, batch: int, megapixels: float) -> float:
        """GB at a batch of rows of so many megapixels, without the error."""
        return self.base_gb + self.per_row_gb * batch + self.per_megapixel_gb * batch * megapixels


class StepFigures(Strict):
    """One step on one device."""

    use: str  # module:Class
    settings: str  # fingerprint of stage, version and settings
    precision: str
    compile: bool = False
    dummy: bool = False  # whether its weights were random
    set_up_s: float = Field(ge=0)
    weights_gb: float = Field(ge=0)  # parameters and buffers on the device, or its memory after the set-up
    trials: list[Trial] = Field(min_length=1)
    memory: Line | None = None  # None where the device does not tell
    largest_batch: int = Field(ge=1)  # that did not run out of memory
    largest_is_limit: bool = False  # whether a larger one did; otherwise nothing larger was tried
    fastest_batch: int = Field(ge=1)
    chunks: dict[str, int] = Field(default_factory=dict)  # prompts, faces, ... at a time, in these trials
    flops_per_row: float | None = None  # counted by torch's FlopCounterMode; None where it sees no operator
    weights_bytes: int | None = None  # parameters and buffers that a call reads

    @property
    def unseen(self) -> tuple[str, ...]:
        """Kinds of items that the step handles and no row had, as faces: what they cost is in none of these figures."""
        kinds = {kind for trial in self.trials for kind in trial.items}
        return tuple(sorted(kind for kind in kinds if not any(trial.items.get(kind) for trial in self.trials)))

    def rate(self, batch: int) -> float:
        """Rows a second at a batch: of the trials, interpolated in seconds a call between the nearest two."""
        best: dict[int, float] = {}
        for trial in self.trials:
            best[trial.batch] = max(best.get(trial.batch, 0.0), trial.rows_per_s)
        sizes = sorted(best)
        below = max((size for size in sizes if size <= batch), default=sizes[0])
        above = min((size for size in sizes if size >= batch), default=sizes[-1])
        if below == above or batch <= sizes[0] or batch >= sizes[-1]:
            return best[below if batch >= sizes[-1] else above]
        share = (batch - below) / (above - below)
        seconds = (1 - share) * below / best[below] + share * above / best[above]
        return batch / seconds


class Calibration(Strict):
    """All steps that were measured on one device."""

    format: Literal[1] = 1
    device: str  # as its driver calls it
    kind: Literal["cuda", "cpu"]
    vram_gb: float | None = None  # of the card
    context_gb: float = Field(0.0, ge=0)  # of the card, taken by a process before it allocates anything
    made: str  # date, ISO 8601
    framemill: str  # versions
    torch: str
    decode_rows_per_s: float | None = None  # one loader, files to packets, with the steps that have no model
    steps: dict[str, StepFigures]

    def of(self, step: Step) -> StepFigures | None:
        """What is known of a step as it is placed; None where it was not measured so."""
        found, place = self.steps.get(step.name), step.placement
        if found is None or found.settings != settings_of(step.facts):
            return None
        return found if (found.precision, found.compile) == (place.precision, place.compile) else None


def settings_of(facts: Mapping[str, Any]) -> str:
    """The fingerprint of a step's stage, version and settings: of `Step.facts`, or of its entry in a run.json."""
    return fingerprint({name: facts[name] for name in _MARKED})


def slug(device: str) -> str:
    """A device's name as a file's: 'NVIDIA GeForce RTX 5080' becomes 'nvidia-geforce-rtx-5080'."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def read_calibration(path: Path) -> Calibration:
    """The file at a path.

    Raises:
        ConfigError: it is not there, or is none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not data.keys() >= _OF_ITS_OWN:
            raise ConfigError(f"'{path}' is no calibration; write one by `framemill calibrate`.")
        return Calibration.model_validate(data)
    except OSError as error:
        raise ConfigError(f"There is no calibration at '{path}'; write one by `framemill calibrate`.") from error
    except ValidationError as error:
        raise ConfigError(explain(error, Calibration, str(path))) from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is no calibration; write one by `framemill calibrate`.") from error


def write_calibration(found: Calibration, folder: Path) -> Path:
    """Into a folder, under the device's name; where it lies then.

    Steps that an earlier file of the same device has, and this one lacks, are kept, and with them what was measured
    of all steps together: the larger context, and the slower decoding, where more steps ran beside it.
    """
    path = folder / f"{slug(found.device)}.json"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(ConfigError):  # there is none, or one that nobody can read any more
        before = read_calibration(path)
        if before.device == found.device and before.steps.keys() - found.steps.keys():
            found = _beside(before, found)
    half = path.with_suffix(".half")
    half.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def _beside(before: Calibration, found: Calibration) -> Calibration:
    """Both together: what was found later, where both have it."""
    rates = [rate for rate in (before.decode_rows_per_s, found.decode_rows_per_s) if rate is not None]
    return found.model_copy(
        update={
            "steps": {**before.steps, **found.steps},
            "context_gb": max(before.context_gb, found.context_gb),
            "decode_rows_per_s": min(rates, default=None),
        }
    )
