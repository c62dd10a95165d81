"""`framemill retry`: after a cause was mended, the rows and files that failed are computed again, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from pipeline.again import Which
from pipeline.commands.executing import cluster_of, execute
from pipeline.commands.options import Address, Quiet, WeightsDir
from pipeline.errors import ConfigError, did_you_mean
from pipeline.manifest import read_profile
from pipeline.storage import Store
from pipeline.telemetry.run_file import order_of

Out = Annotated[str, typer.Argument(help="Folder or URL of an earlier run's output.")]
OfStage = Annotated[str | None, typer.Option("--stage", help="Only failures of this step; decode for unread files.")]
OfKind = Annotated[str | None, typer.Option("--kind", help="Only failures of this kind, as the errors table has it.")]
OtherProfile = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="Another profile, e.g. with more memory. [dim]Default: as before.[/dim]"),
]


def retry(
    output: Out,
    stage: OfStage = None,
    kind: OfKind = None,
    profile: OtherProfile = None,
    weights_dir: WeightsDir = None,
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Compute again the rows and files of an output that failed. All others stay as they are."""
    try:
        order = order_of(Store(output).as_folder())
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no run.json in {output!r}: give the output of a run that came to its end, or run the same "
            "command again, which goes on where it stopped."
        ) from error
    if profile is not None:
        order = replace(order, profile=read_profile(profile), profile_name=profile)
    if weights_dir is not None:
        order = replace(order, choices=replace(order.choices, weights_dir=weights_dir.absolute()))
    known = {*order.pipeline.steps, "decode"}
    if stage is not None and stage not in known:
        raise ConfigError(f"The run in {output!r} had no step {stage!r}.{did_you_mean(stage, known)}")
    order = replace(order, output=output, address=cluster_of(address), again=Which(step=stage, kind=kind))
    execute(order, Console(quiet=quiet), quiet=quiet)
