"""The cells of a sweep: the full product of what the command line varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from framekiln.contract.errors import check_known
from framekiln.lab.backends import BACKENDS
from framekiln.lab.measure.precision import PRECISIONS
from framekiln.lab.output.cells import Cell

COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The values of each axis; one each for a single cell."""

    batches: Sequence[int | None] = (None,)  # None: the model's own
    sizes: Sequence[int | None] = (None,)
    frames: Sequence[int | None] = (None,)
    precisions: Sequence[str] = ("fp32",)
    compile: Sequence[str] = ("off",)
    channels_last: Sequence[bool] = (False,)
    backends: Sequence[str] = ("torch",)

    def cells(self, own_batch: int = 1) -> list[Cell]:
        """Return all cells of a model; the batch varies fastest."""
        return [
            Cell(
                batch=batch or own_batch,
                size=size,
                frames=frames,
                precision=precision,
                compile=mode,
                channels_last=last,
                backend=b,
            )
            for b, size, frames, precision, mode, last, batch in product(
                self.backends, self.sizes, self.frames, self.precisions, self.compile, self.channels_last, self.batches
            )
        ]

    def check(self) -> None:
        """Check the names of precisions and modes.

        Raises:
            ConfigError: one is unknown.
        """
        for name in self.precisions:
            check_known(name, PRECISIONS, f"--precisions: there is no {name!r}.", code="FK-BENCH-PRECISION")
        for mode in self.compile:
            check_known(mode, COMPILE_MODES, f"--compile: there is no mode {mode!r}.", code="FK-BENCH-COMPILE")
        for name in self.backends:
            check_known(name, BACKENDS, f"--backends: there is no {name!r}.", code="FK-BENCH-BACKEND")
