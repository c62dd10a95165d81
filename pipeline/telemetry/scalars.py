"""Live figures as TensorBoard scalars, for `--tensorboard`: a point of each every few seconds, one folder a run."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.telemetry.figures import Figures

POINT_SECONDS = 5.0  # half of the window that the figures are taken over


def check(folder: str) -> None:
    """Make sure, before anything starts, that scalars can be written.

    Raises:
        ConfigError: the package is missing, or the folder is none of ours to write to.
    """
    if "://" in folder:
        raise ConfigError(f"--tensorboard {folder!r} is a URL; give it a folder on this machine.")
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "--tensorboard needs the package tensorboard, which is not installed: pip install tensorboard"
        )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--tensorboard {folder!r} cannot be made ({error.strerror}); choose another.") from error


class Scalars:
    """A view (see `progress`) that writes instead of showing; steps of its axis are seconds since it began."""

    def __init__(self, folder: str, run: str, steps: Sequence[str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer, self._steps = make(str(Path(folder) / run), flush_secs=int(POINT_SECONDS)), steps
        self._began, self._next = time.time(), time.monotonic()
        self._last: Figures | None = None

    def show(self, figures: Figures) -> None:
        """Write a point of each when it is time."""
        self._last = figures
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POINT_SECONDS
            self._write(figures)

    def say(self, sentence: str) -> None:
        """See `View`: as a text."""
        self._writer.add_text("advice", sentence, self._second())

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._write(self._last)  # short runs have no other point
        self._writer.close()

    def _write(self, figures: Figures) -> None:
        now, second = time.time(), self._second()
        for name, value in points(figures, self._steps, now):
            self._writer.add_scalar(name, value, second, walltime=now)

    def _second(self) -> int:
        return round(time.time() - self._began)


def points(figures: Figures, steps: Sequence[str], now: float) -> Iterator[tuple[str, float]]:
    """Name and value of each scalar that is known: figures of steps, then of cards.

    Args:
        figures: live.
        steps: whose.
        now: seconds since the epoch.
    """
    for name in steps:
        if figures.steps[name].rows:
            yield f"rows/{name}", figures.steps[name].rows
        step = figures.live.step(name, now)
        if step is not None:
            known = {
                "rows_per_s": step.rows_per_s,
                "busy_percent": 100 * step.busy,
                "waits_percent": 100 * step.waiting,
            }
            known |= {} if step.p95_ms is None else {"call_p95_ms": step.p95_ms}
            known |= {} if step.vram_peak_gb is None else {"vram_peak_gb": step.vram_peak_gb}
            yield from ((f"{figure}/{name}", value) for figure, value in known.items())
    for card, told in figures.live.cards(now).items():
        yield from ((f"gpu_{figure}/{card}", value) for figure, value in told.items() if value is not None)
