"""The script that `ray submit` copies and runs: `python run.py ARGS` does what `framekiln run ARGS` does.

It works as a single copied file on a machine where Framekiln is installed. In a checkout it uses the checkout's code.
Other commands of `framekiln` work too.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    if (here / "framekiln" / "cli").is_dir():  # a checkout; Python has added this folder already
        sys.path.insert(1, str(here.parent / "stages"))
    from framekiln.cli.app import run_script

    run_script(sys.argv[1:])
