"""The command line as `python -m framekiln`."""

from framekiln.cli.app import main

main()
