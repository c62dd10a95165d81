"""`framekiln run`: process a collection into tables and a report."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from framekiln.api.watch import scalars_folder
from framekiln.cli.arguments import RunOptions
from framekiln.cli.commands.plan import show_plan
from framekiln.cli.console import execute
from framekiln.cli.endings import RunConsole
from framekiln.cli.options import Quiet, profiler_option, spread
from framekiln.cli.sample_input import with_samples

EXAMPLES = """
[bold]Examples[/bold]

    framekiln run photos/ out/

    framekiln run -i 's3://bucket/clips' -o /mnt/out --profile high-throughput --address auto

    framekiln run -i list.txt -o out/ --stages lighting,flow --set flow.preset=medium --limit 100

    ray submit cluster.yaml pipeline/run.py --profile high-throughput --input s3://bucket/in --output s3://bucket/out
"""


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
    options: RunOptions,
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
