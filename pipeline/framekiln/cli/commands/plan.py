"""`framekiln plan`: the steps of a run, their machines and the work that is left, with nothing started."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from framekiln.cli.arguments import RunOptions
from framekiln.cli.console import print_note
from framekiln.cli.options import Json, spread
from framekiln.contract.errors import ResourceError
from framekiln.job import Job
from framekiln.planning.plan import Plan, idle_cap, make_plan
from framekiln.planning.processes.placement import check_capacity
from framekiln.planning.processes.resources import Node, this_machine
from framekiln.reporting.plan_facts import plan_facts
from framekiln.reporting.terminal.console import print_line
from framekiln.reporting.terminal.tables import print_outlook, print_plan
from framekiln.runtime.run.change_report import Changes, Outlook
from framekiln.runtime.run.request import RunRequest

_DOES_NOT_FIT = 3  # exit code: the plan is right, and was printed, but these machines cannot run it


@spread
def plan(options: RunOptions, *, json_: Json = False) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output also what is left to do there, and why.
    """
    show_plan(Console(), options.request(), as_json=json_)


def show_plan(console: Console, request: RunRequest, *, as_json: bool = False) -> None:
    """Print the plan, then raise the errors that would stop its run.

    Raises:
        UserError: a run would be refused.
    """
    if request.address is None:
        _show_on(console, request, [this_machine()], as_json=as_json)
        return
    from framekiln.engine.ray.session import session

    with session(request.address) as nodes:
        _show_on(console, request, nodes, as_json=as_json)


def _show_on(console: Console, request: RunRequest, nodes: Sequence[Node], *, as_json: bool) -> None:
    plan = make_plan(request.pipeline, request.profile, request.options, nodes, check_weights=False, check_fit=False)
    refusal: ResourceError | None = None
    try:
        check_capacity(plan.waves, plan.second, nodes)
    except ResourceError as error:
        refusal = error
        refusal.exit_code = _DOES_NOT_FIT
    note = idle_cap(plan, request.options)
    if as_json:
        notes = [note] if note else []
        print(json.dumps(plan_facts(plan, notes=notes, work=_work(request, plan), refusal=refusal), indent=2))
    else:
        print_plan(console, plan)
        if note:
            print_line(console, note)
        if work := _work(request, plan):
            print_outlook(console, *work)
    if refusal is not None:
        raise refusal


def _work(request: RunRequest, plan: Plan) -> tuple[Changes, Sequence[Outlook]] | None:
    """Return what a run would do with the files; None without an input or an output."""
    return Job(request, on_wait=print_note).preview(plan) if request.input and request.output else None
