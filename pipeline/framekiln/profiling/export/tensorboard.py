"""Live figures as TensorBoard scalars for `--tensorboard`: one point every few seconds, one folder for each run."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.profiling.stats.progress import RunTotals

POINT_SECONDS = 5.0  # half of the window of live figures


def check(folder: str) -> None:
    """Check before a run that scalars can be written.

    Raises:
        ConfigError: the package is missing, or the folder cannot be written to.
    """
    if "://" in folder:
        raise ConfigError(
            f"--tensorboard {folder!r} is a URL; give it a folder on this machine.", code="FK-TENSORBOARD-URL"
        )
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "--tensorboard needs the package tensorboard, which is not installed: pip install tensorboard",
            code="FK-TENSORBOARD-MISSING",
        )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder --tensorboard {folder!r} cannot be made ({error.strerror}); choose another.",
            code="FK-TENSORBOARD-FOLDER",
        ) from error


class Scalars:
    """A view of a run (see `progress`) that writes scalars; their axis is in seconds since the view was made."""

    def __init__(self, folder: str, run: str, steps: Sequence[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer, self._steps = make(str(Path(folder) / run), flush_secs=int(POINT_SECONDS)), steps
        self._began, self._next = time.time(), time.monotonic()
        self._last: RunTotals | None = None

    def show(self, totals: RunTotals) -> None:
        """Write a point of each scalar every `POINT_SECONDS`."""
        self._last = totals
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POINT_SECONDS
            self._write(totals)

    def say(self, sentence: str) -> None:
        """Write a sentence as a text; see `View`."""
        self._writer.add_text("advice", sentence, self._count_seconds())

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._write(self._last)  # the only point of a short run
        self._writer.close()

    def _write(self, totals: RunTotals) -> None:
        now, second = time.time(), self._count_seconds()
        for name, value in points(totals, self._steps, now):
            self._writer.add_scalar(name, value, second, walltime=now)

    def _count_seconds(self) -> int:
        return round(time.time() - self._began)


def points(totals: RunTotals, steps: Sequence[str], now: float) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each known scalar at a moment of the epoch: those of steps, then those of GPUs."""
    for name in steps:
        if totals.steps[name].rows:
            yield f"rows/{name}", totals.steps[name].rows
        step = totals.live.step(name, now)
        if step is None:
            continue
        figures = {
            "rows_per_s": step.rows_per_s,
            "busy_percent": 100 * step.busy,
            "waits_percent": 100 * step.starved,
            "call_p95_ms": step.p95_ms,
            "vram_peak_gb": step.vram_peak_gb,
        }
        yield from ((f"{figure}/{name}", value) for figure, value in figures.items() if value is not None)
    for gpu, readings in totals.live.gpus(now).items():
        yield from ((f"gpu_{figure}/{gpu}", value) for figure, value in readings.items() if value is not None)
