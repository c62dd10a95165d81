"""The command line: options become an order, mistakes become one sentence and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.commands.compare import compare
from pipeline.commands.executing import ERRORS, cluster_of, execute, leave, say_report
from pipeline.commands.fetch import fetch
from pipeline.commands.options import (
    AcceptLicense,
    Address,
    ByContent,
    CalibrationPath,
    Device,
    DryRun,
    EveryNth,
    Fast,
    IdentitiesFrom,
    Input,
    Limit,
    MaxErrors,
    MaxFrames,
    MaxPixels,
    MissingWeights,
    Output,
    PipelinePath,
    Profile,
    Quiet,
    Settings,
    Shard,
    Stages,
    VramCap,
    WeightsDir,
    names,
)
from pipeline.commands.profile import profile
from pipeline.commands.retry import retry
from pipeline.commands.trace import trace
from pipeline.errors import ConfigError, FramemillError, UserError
from pipeline.job import Job, Order
from pipeline.machines import ROOMY, Node, this_machine
from pipeline.manifest import PipelineFile, ProfileFile, read_pipeline, read_profile
from pipeline.placing import fit
from pipeline.plan import Choices, make_plan
from pipeline.storage import Store
from pipeline.telemetry.printing import print_columns, print_outlook, print_plan, tame

app = typer.Typer(
    name="framemill",
    help="Process large photo and video collections on Ray: folders in, tables and a report out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

RUN_EXAMPLES = """
[bold]Examples[/bold]

    python pipeline/run.py --input photos/ --output out/

    python pipeline/run.py -i 's3://bucket/clips' -o /mnt/out --profile high-throughput --address auto

    python pipeline/run.py -i list.txt -o out/ --stages lighting,flow --set flow.preset=medium --limit 100

    ray submit cluster.yaml pipeline/run.py --profile high-throughput --input s3://bucket/in --output s3://bucket/out
"""


@dataclass(frozen=True)
class Wish:
    """What the options of `run` and `plan` say, files unread."""

    input: str | None
    output: str | None
    pipeline: str | None
    profile: str
    choices: Choices
    address: str | None
    limit: int | None
    shard: tuple[int, int] | None
    by_content: bool

    @cached_property
    def files(self) -> tuple[PipelineFile, ProfileFile]:
        """The pipeline file and the profile."""
        return read_pipeline(self.pipeline), read_profile(self.profile)

    @property
    def is_whole(self) -> bool:
        """Whether input and output are said anywhere."""
        return None not in (self._said("input"), self._said("output"))

    def order(self) -> Order:
        """What a run is to do.

        Raises:
            ConfigError: input or output are said nowhere.
        """
        pipeline, profile = self.files
        return Order(
            input=self._given("input"),
            output=self._given("output"),
            pipeline=pipeline,
            profile=profile,
            profile_name=self.profile,
            choices=self.choices,
            address=cluster_of(self.address),
            limit=self.limit,
            shard=self.shard,
            by_content=self.by_content or pipeline.identify == "content",
        )

    def _said(self, name: str) -> str | None:
        """A path from the command line, else from the profile, else from the pipeline file."""
        return next((str(found) for one in (self, *self.files[::-1]) if (found := getattr(one, name))), None)

    def _given(self, name: str) -> str:
        if (found := self._said(name)) is None:
            raise ConfigError(
                f"No {name} was given: use --{name} PATH, or write `{name}: PATH` in the profile or the pipeline file."
            )
        return found


@app.command(epilog=RUN_EXAMPLES)
def run(
    input_: Input = None,
    output: Output = None,
    profile: Profile = "cpu-only",
    pipeline: PipelinePath = None,
    stages: Stages = "",
    settings: Settings = None,
    device: Device = None,
    weights_dir: WeightsDir = None,
    missing_weights: MissingWeights = "fail",
    accept_license: AcceptLicense = False,
    identities_from: IdentitiesFrom = None,
    limit: Limit = None,
    every_nth: EveryNth = None,
    max_frames: MaxFrames = None,
    max_pixels: MaxPixels = None,
    max_errors: MaxErrors = None,
    vram_cap: VramCap = None,
    calibration: CalibrationPath = None,
    shard: Shard = None,
    fast_mode: Fast = False,
    by_content: ByContent = False,
    dry_run: DryRun = False,
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Process a collection. What an earlier run into the same output has done is not done again."""
    known = [f"identities.known={identities_from}"] if identities_from else []
    choices = Choices(
        stages=names(stages),
        settings=(*(settings or ()), *known),
        device=device,
        weights_dir=weights_dir,
        missing_weights=missing_weights,
        accept_license=accept_license,
        max_errors=max_errors,
        vram_cap=vram_cap,
        calibration=calibration,
        decode=_decode(every_nth, max_frames, max_pixels, fast_mode),
    )
    console = Console(quiet=quiet)
    wish = Wish(input_, output, pipeline, profile, choices, address, limit, _shard(shard), by_content)
    if dry_run:
        _print_plan(console, wish)
    else:
        execute(wish.order(), console, quiet=quiet)


@app.command()
def plan(
    input_: Input = None,
    output: Output = None,
    profile: Profile = "cpu-only",
    pipeline: PipelinePath = None,
    stages: Stages = "",
    settings: Settings = None,
    device: Device = None,
    weights_dir: WeightsDir = None,
    missing_weights: MissingWeights = "fail",
    identities_from: IdentitiesFrom = None,
    limit: Limit = None,
    every_nth: EveryNth = None,
    max_frames: MaxFrames = None,
    max_pixels: MaxPixels = None,
    vram_cap: VramCap = None,
    calibration: CalibrationPath = None,
    shard: Shard = None,
    fast_mode: Fast = False,
    by_content: ByContent = False,
    address: Address = None,
) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output also what is left to do there, and why.
    """
    known = [f"identities.known={identities_from}"] if identities_from else []
    choices = Choices(
        stages=names(stages),
        settings=(*(settings or ()), *known),
        device=device,
        weights_dir=weights_dir,
        missing_weights=missing_weights,
        vram_cap=vram_cap,
        calibration=calibration,
        decode=_decode(every_nth, max_frames, max_pixels, fast_mode),
    )
    _print_plan(Console(), Wish(input_, output, pipeline, profile, choices, address, limit, _shard(shard), by_content))


app.command()(fetch)
app.command()(profile)
app.command()(trace)
app.command()(retry)
app.command()(compare)


@app.command()
def columns(pipeline: PipelinePath = None) -> None:
    """List the columns and tables that a run writes, with their units and meanings."""
    plan_ = make_plan(read_pipeline(pipeline), ProfileFile(), Choices(), [ROOMY], check_weights=False)
    print_columns(Console(), plan_)


@app.command()
def report(output: Annotated[str, typer.Argument(help="Folder or URL of an earlier run's output.")]) -> None:
    """Write report.html again, from the run.json and the tables that lie in an output."""
    say_report(Console(), Store(output), computed=True)


def _print_plan(console: Console, wish: Wish) -> None:
    """The plan as far as it goes, then what it lacks, as an error."""
    cluster = cluster_of(wish.address)
    if cluster is None:
        _print_plan_for(console, wish, [this_machine()])
        return
    from pipeline.engine import session

    with session(cluster) as nodes:
        _print_plan_for(console, wish, nodes)


def _print_plan_for(console: Console, wish: Wish, nodes: Sequence[Node]) -> None:
    made = make_plan(*wish.files, wish.choices, nodes, check_weights=False, check_fit=False)
    print_plan(console, made)
    if wish.is_whole:
        print_outlook(console, *Job(wish.order()).preview(made))
    fit(made.waves, made.second, nodes)


def _decode(every_nth: int | None, max_frames: int | None, max_pixels: int | None, fast: bool) -> dict[str, Any]:
    """What the options say of decoding."""
    said = {"every_nth": every_nth, "max_frames": max_frames, "max_pixels": max_pixels, "fast_mode": fast or None}
    return {key: value for key, value in said.items() if value is not None}


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(f"--shard {text!r} is not of the form I/N with I from 1 to N, as in --shard 2/8.")
    return int(number) - 1, int(count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 well, 2 the user's mistake, 1 ours, 130 interrupted."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="framemill")
    except UserError as error:
        ERRORS.print(f"[red]Error:[/red] {escape(tame(str(error)))}")
        if isinstance(error.__context__, KeyboardInterrupt):  # a lost lease stops a run as Ctrl-C does
            leave(error.exit_code)
        sys.exit(error.exit_code)
    except FramemillError as error:
        ERRORS.print(f"[red]Stopped:[/red] {escape(tame(str(error)))}")
        sys.exit(1)
