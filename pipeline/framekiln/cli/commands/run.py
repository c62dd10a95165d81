"""`framekiln run`: process a collection into tables and a report."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from framekiln.api.watch import scalars_folder
from framekiln.cli.arguments import RunArguments
from framekiln.cli.commands.plan import show_plan
from framekiln.cli.console import RunConsole, execute
from framekiln.cli.options import Quiet, profiler_option, spread
from framekiln.output.object_store import Store
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.run.request import RunRequest

EXAMPLES = """
[bold]Examples[/bold]

    framekiln run photos/ out/

    framekiln run -i 's3://bucket/clips' -o /mnt/out --profile high-throughput --address auto

    framekiln run -i list.txt -o out/ --stages lighting,flow --set flow.preset=medium --limit 100

    ray submit cluster.yaml pipeline/run.py --profile high-throughput --input s3://bucket/in --output s3://bucket/out
"""
OUTPUT = "framekiln-out"  # where no output is named either
_LAST = "clips/lights-out.mp4"  # of the files that are made


def with_samples(request: RunRequest, console: Console) -> RunRequest:
    """Return the request, with the sample collection if it has no input.

    The collection is written beside the output, which all machines of a cluster reach. Steps without their weights are
    left out, as the first run should show what is there.

    Raises:
        OutputError: the folder beside the output cannot be written.
    """
    if request.inputs:
        return request
    output = request.output or OUTPUT
    folder = f"{output.rstrip('/')}-samples"
    store = Store(folder)
    if not store.exists(_LAST):
        _write(store)
    print_line(console, f"No input was named, so the sample collection in {folder} is used. Yours: --input PATH.")
    policy = "skip" if request.options.missing_weights == "fail" else request.options.missing_weights
    return replace(request, input=folder, output=output, options=replace(request.options, missing_weights=policy))


def _write(store: Store) -> None:
    from framekiln.media.samples import make

    store.prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix() == _LAST):
            store.write(path.relative_to(folder).as_posix(), path.read_bytes())


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """Options for profilers and live figures."""

    tensorboard: Annotated[
        str | None, profiler_option(metavar="DIR", help="Write live figures for TensorBoard into a folder.")
    ] = None
    torch_profiler: Annotated[
        str | None,
        profiler_option(
            metavar="STEP[:N]",
            help="Record N calls of a step with torch's profiler. [dim]Default: 5 calls, after the first.[/dim]",
        ),
    ] = None
    memory_timeline: Annotated[
        str | None, profiler_option(metavar="STEP[:N]", help="Record torch's memory over N calls of a step.")
    ] = None
    nvtx: Annotated[
        bool, profiler_option("--nvtx", help="Mark calls and phases on GPUs for NVIDIA's Nsight Systems.")
    ] = False
    nsight: Annotated[
        str, profiler_option(metavar="STEP[,STEP]", help="Start the processes of these steps under nsys.")
    ] = ""
    py_spy: Annotated[
        str, profiler_option(metavar="STEP", help="Draw a flame graph of the Python code in a step's processes.")
    ] = ""


@spread
def run(
    *,
    options: RunArguments,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and stop.")] = False,
    instruments: Instruments,
    quiet: Quiet = False,
) -> None:
    """Process a collection. Results of earlier runs into the same output are kept and not computed again."""
    console = RunConsole(quiet=quiet)
    request = options.request(**vars(instruments))
    if dry_run:
        show_plan(console, request)
    else:
        folder = scalars_folder(instruments.tensorboard)
        execute(with_samples(request, console), console, quiet=quiet, tensorboard=folder)
