"""`framemill run`: a collection goes in, tables and a report come out."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from pipeline.commands.executing import execute
from pipeline.commands.options import (
    DryRun,
    MemoryTimeline,
    Nsight,
    Nvtx,
    PySpy,
    Quiet,
    Tensorboard,
    TorchProfiler,
    instruments,
)
from pipeline.commands.plan import show_plan
from pipeline.commands.taking import taking
from pipeline.commands.wish import Wish

EXAMPLES = """
[bold]Examples[/bold]

    python pipeline/run.py --input photos/ --output out/

    python pipeline/run.py -i 's3://bucket/clips' -o /mnt/out --profile high-throughput --address auto

    python pipeline/run.py -i list.txt -o out/ --stages lighting,flow --set flow.preset=medium --limit 100

    ray submit cluster.yaml pipeline/run.py --profile high-throughput --input s3://bucket/in --output s3://bucket/out
"""


@taking
def run(
    wish: Wish,
    dry_run: DryRun = False,
    tensorboard: Tensorboard = None,
    torch_profiler: TorchProfiler = None,
    memory_timeline: MemoryTimeline = None,
    nvtx: Nvtx = False,
    nsight: Nsight = "",
    py_spy: PySpy = "",
    quiet: Quiet = False,
) -> None:
    """Process a collection. What an earlier run into the same output has done is not done again."""
    console = Console(quiet=quiet)
    asked = instruments(torch_profiler, memory_timeline, nvtx, nsight, py_spy)
    if dry_run:
        show_plan(console, wish)
    else:
        execute(replace(wish.order(), instruments=asked), console, quiet=quiet, tensorboard=tensorboard)
