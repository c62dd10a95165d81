"""The command line as `python -m pipeline`."""

from pipeline.cli.app import main

main()
