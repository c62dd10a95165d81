"""The command line: `framekiln`, and `python -m framekiln`."""

import sys


def main() -> None:
    """Load the command line and run it; Ctrl-C while it is loaded ends this process as Ctrl-C does later."""
    try:
        from framekiln.cli.app import main as run_command
    except KeyboardInterrupt:
        sys.exit(130)
    run_command()


if __name__ == "__main__":
    main()
