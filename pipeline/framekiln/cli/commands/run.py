"""`framekiln run`, `plan` and `retry`: process a collection, show a plan, or compute failures again."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.api.options import Instruments
from framekiln.api.plan import make
from framekiln.api.request import cluster_address
from framekiln.cli.console import RunConsole, execute, print_note
from framekiln.cli.options import Address, Json, Paths, Quiet, RunArguments, WeightsDir, read_request, refuse_idle
from framekiln.contract.errors import check_known
from framekiln.contract.output_names import PREVIEW
from framekiln.contract.row_errors import DECODE
from framekiln.contract.store_url import below, split_place
from framekiln.output.object_store import Store
from framekiln.planning.manifest import read_profile
from framekiln.profiling.export.live_metrics import scalars_folder
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_run_record, stored_request
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.retry import FailureFilter

EXAMPLES = """
[bold]Examples[/bold]

    framekiln run photos/ out/

    framekiln run -i 's3://bucket/clips' -o /mnt/out --profile high-throughput --address auto

    framekiln run -i list.txt -o out/ --stages lighting,flow --set flow.preset=medium --limit 100

    ray submit cluster.yaml pipeline/run.py --profile high-throughput --input s3://bucket/in --output s3://bucket/out
"""
OUTPUT = "framekiln-out"  # the output if none is named either
_DOES_NOT_FIT = 3  # exit code: the plan is valid and was printed, but these machines cannot run it
_LAST = "clips/lights-out.mp4"  # the last file that is generated


def with_samples(request: RunRequest, console: Console) -> RunRequest:
    """Return the request, with the sample collection if it has no input.

    The collection is written beside the output, which all machines of a cluster reach. Steps that lack weights are left
    out: the first run should need no downloads. Raises OutputError: the folder beside the output cannot be written.
    """
    if request.inputs:
        return request
    output = request.output or OUTPUT
    around, name = split_place(output.rstrip("/"))
    folder = below(around, f"{name}-samples")
    store = Store(folder)
    if not store.exists(_LAST):
        from framekiln.media.samples import make

        store.prepare()
        with tempfile.TemporaryDirectory() as name:
            make(Path(name))
            paths = {path.relative_to(name).as_posix(): path for path in Path(name).rglob("*") if path.is_file()}
            for place in sorted(paths, key=lambda place: (place == _LAST, place)):
                store.write(place, paths[place].read_bytes())
    print_line(console, f"No input was given, so the sample collection in {folder} is used. Yours: --input PATH.")
    policy = "skip" if request.options.missing_weights == "fail" else request.options.missing_weights
    return replace(request, inputs=(folder,), output=output, options=replace(request.options, missing_weights=policy))


_PRICE = "Hourly price of all machines together, in any currency, for estimates."
Price = Annotated[float | None, Option(min=0, metavar="MONEY", help=_PRICE)]


def plan(
    options: RunArguments,
    *,
    paths: Paths = None,
    like: Annotated[str | None, Option(metavar="OUT", help="Estimate from the last run of this output.")] = None,
    price_per_hour: Price = None,
    json_: Json = False,
) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output it also prints the remaining work, the reasons, and its cost.
    """
    request = read_request(options, paths)
    if not (request.inputs and request.output):
        refuse_idle({"--like": like, "--price-per-hour": price_per_hour}, "without an input and an output")
    _show_plan(Console(), request, like=like, price=price_per_hour, as_json=json_)


def _show_plan(
    console: Console, request: RunRequest, *, like: str | None = None, price: float | None, as_json: bool
) -> None:
    """Print the plan, then raise the errors that would stop its run. Raises UserError if a run would be refused."""
    plan = make(request, on_wait=print_note, like=like)
    if as_json:
        print(json.dumps(plan.to_dict(price), indent=2))
    else:
        plan.print_on(console, price)
    if plan.refusal is not None:
        plan.refusal.exit_code = _DOES_NOT_FIT
        raise plan.refusal


def run(
    *,
    options: RunArguments,
    paths: Paths = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and stop.")] = False,
    price_per_hour: Price = None,
    instruments: Instruments,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Process a collection. Results of earlier runs in the same output are kept.

    --preview computes only some files. It estimates the cost of all, and writes a page for choosing limits.
    """
    console = RunConsole(quiet=quiet, stderr=json_)
    request = read_request({**options, **instruments}, paths)
    if dry_run:
        _show_plan(console, request, price=price_per_hour, as_json=json_)
        return
    if request.preview is None:
        refuse_idle({"--price-per-hour": price_per_hour}, "without --preview or --dry-run")
    request = with_samples(request, console)
    tensorboard = scalars_folder(instruments["tensorboard"])
    execute(request, console, quiet=quiet, as_json=json_, tensorboard=tensorboard)
    if request.preview is not None:
        page = quote(Store(str(request.output)).url(PREVIEW))
        print_line(console, f"To choose limits, look at frames sorted by value: {page}")
        print_line(console, "\nWithout --preview the same command computes the rest:")
        make(replace(request, preview=None), on_wait=print_note).print_costs(console, price_per_hour)


def retry(
    output: Annotated[str, Argument(help="Folder or URL of an earlier run's output.")],
    stage: Annotated[str | None, Option(help="Only failures of this step; decode: unreadable files.")] = None,
    kind: Annotated[str | None, Option(help="Only failures of this kind, as in the errors table.")] = None,
    profile: Annotated[str | None, Option("--profile", "-p", help="Another profile, e.g. with more memory.")] = None,
    weights_dir: WeightsDir = None,
    address: Address = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Compute the failed rows and files of an output again. All others are kept."""
    store, console = Store(output).check_folder(), RunConsole(quiet=quiet, stderr=json_)
    request = stored_request(store)
    if (cut := unfinished(store, read_run_record(store))) is not None:
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
    execute(request, console, quiet=quiet, as_json=json_)
