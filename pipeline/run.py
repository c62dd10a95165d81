"""The script that `ray submit` copies and runs: `python run.py ARGS` does what `framekiln run ARGS` does.

It works as a single copied file on a machine where Framekiln is installed. In a checkout it uses the checkout's code.
Other commands of `framekiln` work too.
"""

import sys
from pathlib import Path


def _use_checkout() -> None:
    """Make the two source roots of this file's checkout importable; Python has added this folder already."""
    here = Path(__file__).resolve().parent
    if (here / "framekiln" / "cli").is_dir():
        sys.path.insert(1, str(here.parent / "stages"))


if __name__ == "__main__":
    _use_checkout()
    from framekiln.cli.app import run_script

    run_script(sys.argv[1:])
