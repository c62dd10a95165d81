"""`framemill plan`: the steps of a run, their machines and the work that is left, with nothing started."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from pipeline.cli.arguments import RunOptions
from pipeline.cli.options import spread
from pipeline.contract.errors import ResourceError
from pipeline.job import Job
from pipeline.planning.plan import idle_cap, make_plan
from pipeline.planning.processes.placement import check_capacity
from pipeline.planning.processes.resources import Node, this_machine
from pipeline.reporting.terminal.console import print_line
from pipeline.reporting.terminal.tables import print_outlook, print_plan
from pipeline.runtime.run.request import RunRequest

_DOES_NOT_FIT = 3  # exit code: the plan is right, and was printed, but these machines cannot run it


@spread
def plan(options: RunOptions) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output also what is left to do there, and why.
    """
    show_plan(Console(), options.request())


def show_plan(console: Console, request: RunRequest) -> None:
    """Print the plan, then raise the errors that would stop its run.

    Raises:
        UserError: a run would be refused.
    """
    if request.address is None:
        _show_on(console, request, [this_machine()])
        return
    from pipeline.engine import session

    with session(request.address) as nodes:
        _show_on(console, request, nodes)


def _show_on(console: Console, request: RunRequest, nodes: Sequence[Node]) -> None:
    checked = make_plan(request.pipeline, request.profile, request.options, nodes, check_weights=False, check_fit=False)
    print_plan(console, checked)
    if note := idle_cap(checked, request.options):
        print_line(console, note)
    if request.input and request.output:
        print_outlook(console, *Job(request, on_wait=lambda message: print_line(console, message)).preview(checked))
    try:
        check_capacity(checked.waves, checked.second, nodes)
    except ResourceError as error:
        error.exit_code = _DOES_NOT_FIT
        raise
