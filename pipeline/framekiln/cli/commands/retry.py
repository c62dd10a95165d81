"""`framekiln retry`: compute the rows and files that failed again, and nothing else."""

from dataclasses import replace
from typing import Annotated

from typer import Argument, Option

from framekiln.api.request import cluster_address
from framekiln.cli.console import RunConsole, execute
from framekiln.cli.options import Address, Quiet, WeightsDir
from framekiln.contract.errors import check_known
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.planning.manifest import read_profile
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import no_record, read_run_record, stored_request
from framekiln.runtime.run.retry import FailureFilter


def retry(
    output: Annotated[str, Argument(help="Folder or URL of an earlier run's output.")],
    stage: Annotated[str | None, Option(help="Only failures of this step; decode for unread files.")] = None,
    kind: Annotated[str | None, Option(help="Only failures of this kind, as in the errors table.")] = None,
    profile: Annotated[
        str | None,
        Option("--profile", "-p", help="Another profile, e.g. with more memory. [dim]Default: as before.[/dim]"),
    ] = None,
    weights_dir: WeightsDir = None,
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Compute the failed rows and files of an output again. All others are kept."""
    store, console = Store(output).check_folder(), RunConsole(quiet=quiet)
    try:
        request, cut = stored_request(store), unfinished(store, read_run_record(store))
    except FileNotFoundError as error:
        raise no_record(store) from error
    if cut is not None:
        print_line(console, f"{cut.sentence} This command finishes it, too.")
    if profile is not None:
        request = replace(request, profile=read_profile(profile), profile_name=profile)
    if weights_dir is not None:
        request = replace(request, options=replace(request.options, weights_dir=weights_dir.absolute()))
    if stage is not None:
        problem = f"The run in {output!r} has no step {stage!r}."
        check_known(stage, {*request.pipeline.steps, DECODE}, problem, code="FK-UNKNOWN-STEP")
    failures = FailureFilter(step=stage, kind=kind)
    request = replace(request, output=output, address=cluster_address(address), retry=failures)
    execute(request, console, quiet=quiet)
