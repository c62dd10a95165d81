"""The door that `ray submit` copies and runs: `python run.py ARGS` is `framemill run ARGS`, or another command's.

It must work as a lone copied file, on a machine where Framemill is installed, and from a checkout, where it makes the
checkout importable.
"""

import sys
from pathlib import Path


def _use_checkout() -> None:
    """Import from the checkout this file lies in; never from its own folder, whose module names would hide others."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    if (here / "cli.py").is_file():
        sys.path.insert(0, str(here.parent))


if __name__ == "__main__":
    _use_checkout()
    from pipeline.cli import started

    started(sys.argv[1:])
