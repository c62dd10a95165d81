"""The command line: its commands, and mistakes as one sentence and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.commands.calibrate import calibrate
from pipeline.commands.compare import compare
from pipeline.commands.executing import ERRORS, leave, say_report
from pipeline.commands.fetch import fetch
from pipeline.commands.options import PipelinePath
from pipeline.commands.plan import plan
from pipeline.commands.predict import predict
from pipeline.commands.profile import profile
from pipeline.commands.retry import retry
from pipeline.commands.run import EXAMPLES, run
from pipeline.commands.trace import trace
from pipeline.errors import FramemillError, UserError
from pipeline.machines import ROOMY
from pipeline.manifest import ProfileFile, read_pipeline
from pipeline.plan import Choices, make_plan
from pipeline.storage import Store
from pipeline.telemetry.printing import print_columns, tame

app = typer.Typer(
    name="framemill",
    help="Process large photo and video collections on Ray: folders in, tables and a report out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

app.command(epilog=EXAMPLES)(run)
for command in (plan, fetch, profile, trace, retry, compare, calibrate, predict):
    app.command()(command)


@app.command()
def columns(pipeline: PipelinePath = None) -> None:
    """List the columns and tables that a run writes, with their units and meanings."""
    made = make_plan(read_pipeline(pipeline), ProfileFile(), Choices(), [ROOMY], check_weights=False, check_fit=False)
    print_columns(Console(), made)


@app.command()
def report(output: Annotated[str, typer.Argument(help="Folder or URL of an earlier run's output.")]) -> None:
    """Write report.html again, from the run.json and the tables that lie in an output."""
    say_report(Console(), Store(output).as_folder(), computed=True)


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


def started(arguments: Sequence[str]) -> None:
    """Run the words after `run.py`: a command's, else those of `framemill run`."""
    commands = typer.main.get_group(app).commands
    main(arguments if arguments and arguments[0] in commands else ["run", *arguments])
