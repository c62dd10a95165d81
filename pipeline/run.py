"""The script that `ray submit` copies and runs: `python run.py ARGS` does what `framemill run ARGS` does.

It works as a single copied file on a machine where Framemill is installed. In a checkout it makes the checkout
importable. Other commands of `framemill` work too.
"""

import sys
from pathlib import Path


def _use_checkout() -> None:
    """Import from the checkout of this file, but not from its own folder: modules there would hide others."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    if (here / "cli" / "app.py").is_file():
        sys.path.insert(0, str(here.parent))


if __name__ == "__main__":
    _use_checkout()
    from pipeline.cli.app import run_script

    run_script(sys.argv[1:])
