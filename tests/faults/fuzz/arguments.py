"""The command line of the fuzz targets."""

from __future__ import annotations

import argparse
from pathlib import Path


def read_arguments(about: str, minutes: float) -> argparse.Namespace:
    """Return the arguments; `child` is the first number and the end of a process that a target starts for itself."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--input", type=int, help="try this one only")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()
