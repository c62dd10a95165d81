"""The command line: all commands, and errors as one sentence with an exit code."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from framekiln.cli.bench.command import bench
from framekiln.cli.commands.calibrate import calibrate
from framekiln.cli.commands.check import check
from framekiln.cli.commands.compare import compare
from framekiln.cli.commands.export import export
from framekiln.cli.commands.fetch import fetch
from framekiln.cli.commands.predict import predict
from framekiln.cli.commands.profile import profile, trace
from framekiln.cli.commands.prune import prune
from framekiln.cli.commands.run import EXAMPLES, plan, retry, run
from framekiln.cli.commands.select import select
from framekiln.cli.commands.steps import columns, steps
from framekiln.cli.console import ERRORS, handle_signals, leave, print_report
from framekiln.cli.options import spread
from framekiln.contract.errors import FramekilnError, UserError, check_known
from framekiln.reporting.terminal.console import printable
from framekiln.runtime.run.environment import package_version

_FAILED = 1  # exit code
_LISTS = ("--stages", "--include", "--for", "--prices")  # options that take names with commas
_UsageError: Any = typer.BadParameter.__base__  # the class of Typer's own click, or of the installed one


class Commands(TyperGroup):
    """The commands by name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. Raises ConfigError if no command has this name."""
        if not (ctx.resilient_parsing or cmd_name.startswith("-")):
            check_known(cmd_name, self.commands, f"There is no command {cmd_name!r}.", code="FK-UNKNOWN-COMMAND")
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="framekiln",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Process large photo and video collections, with or without Ray: folders in, tables and a report out.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Read the options that stand before a command."""


app.command(epilog=EXAMPLES)(spread(run))
_COMMANDS = plan, check, prune, fetch, profile, trace, retry, compare, select, export, calibrate, bench, predict
for command in (*_COMMANDS, steps, columns):
    app.command()(spread(command))


@app.command()
def report(
    output: Annotated[str, typer.Argument(help="Folder or URL of an earlier run's output.")],
    run: Annotated[
        str | None, typer.Option(help="The run to take times from. [dim]Default: the one that did most.[/dim]")
    ] = None,
) -> None:
    """Write report.html again, from the run.json and the tables of an output."""
    from framekiln.api.output import Output

    url: str | None = None
    with suppress(FileNotFoundError):
        url = Output(output).report(run, again=True)
    print_report(Console(), output, url)


@app.command()
def version() -> None:
    """Print the version."""
    print(f"framekiln {package_version('framekiln') or '(not installed)'}")


@app.command(name="help")
def help_(
    command: Annotated[str | None, typer.Argument(metavar="COMMAND", help="[dim]Default: all commands.[/dim]")] = None,
) -> None:
    """Print the options of a command, or all commands."""
    app(args=[*([command] if command else []), "--help"], prog_name="framekiln")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 a failed run, 2 a mistake in the request, 128 + n by signal n."""
    handle_signals()
    words = _join_lists(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(app(args=words or ["--help"], prog_name="framekiln", standalone_mode=False) or 0)
    except _UsageError as error:
        _exit_for_usage(error)
    except UserError as error:
        ERRORS.print(f"[red]Error:[/red] {escape(printable(f'{error} [{error.code}]'))}")
        if isinstance(error.__context__, KeyboardInterrupt):  # a lost lease stops a run as Ctrl-C does
            leave(error.exit_code)
        sys.exit(error.exit_code)
    except FramekilnError as error:
        ERRORS.print(f"[red]Stopped:[/red] {escape(printable(f'{error} [{error.code}]'))}")
        if isinstance(error.__context__, KeyboardInterrupt):  # the end of Ray's processes does the same
            leave(_FAILED)
        sys.exit(_FAILED)


def _join_lists(words: Sequence[str]) -> list[str]:
    """Return the arguments with each list of names in one option: `--stages a --stages b` is `--stages=a,b`."""
    joined, places, rest = list[str](), dict[str, int](), iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in _LISTS and not equals and (more := next(rest, None)) is not None:
            equals, value = "=", more
        if name not in _LISTS or not equals:
            joined.append(word)
        elif name in places:
            joined[places[name]] += f",{value}"
        else:
            places[name] = len(joined)
            joined.append(f"{name}={value}")
    return joined


_MEANT = {"--only": "--stages", "--steps": "--stages"}


def _exit_for_usage(error: Any) -> NoReturn:
    """Print a wrong option or argument as one sentence, as all other mistakes."""
    text, code = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip("."), "FK-WRONG-OPTION"
    if hasattr(error, "possibilities"):
        text, code = f"There is no option {error.option_name!r}", "FK-UNKNOWN-OPTION"
        known = {name for one in (error.ctx.command.params if error.ctx else ()) for name in one.opts}
        possible = [*known & {_MEANT.get(error.option_name)}, *(error.possibilities or ())]
        text += f". Did you mean {possible[0]!r}?" if possible else ""
    stop = "" if text.endswith("?") else "."
    help_command = f"{error.ctx.command_path if error.ctx else 'framekiln'} -h"
    ERRORS.print(f"[red]Error:[/red] {escape(printable(f'{text}{stop} `{help_command}` lists the options. [{code}]'))}")
    sys.exit(error.exit_code)


def run_script(arguments: Sequence[str]) -> None:
    """Run the arguments of `run.py`; without a command they are those of `framekiln run`."""
    known = {*typer.main.get_group(app).commands, "--version"}
    main(arguments if arguments and arguments[0] in known else ["run", *arguments])
