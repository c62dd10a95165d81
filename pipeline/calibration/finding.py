"""Which calibration a plan goes by: the one that is named, else this machine's own in the working folder."""

from __future__ import annotations

from pathlib import Path

from pipeline.calibration.figures import Calibration, read_calibration, slug
from pipeline.errors import ConfigError
from pipeline.machines import gpu_names

FOLDER = Path("calibration")


def find_calibration(named: Path | None) -> Calibration | None:
    """The figures of a card; None where there are none.

    Raises:
        ConfigError: what is named is not there, is no calibration, or is one of a processor.
    """
    if named is not None:
        found = read_calibration(named)
        if found.kind != "cuda":
            raise ConfigError(f"'{named}' was measured on a processor ({found.device}); --calibration needs a GPU's.")
        return found
    names = set(gpu_names())
    if len(names) != 1:  # with several kinds of cards nobody knows which one a process will get
        return None
    path = FOLDER / f"{slug(names.pop())}.json"
    return read_calibration(path) if path.is_file() else None
