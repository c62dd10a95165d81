"""`framekiln plan`: the steps of a run, their machines and the work that is left, with nothing started."""

import json

from rich.console import Console

from framekiln.api.plan import make
from framekiln.cli.arguments import RunArguments
from framekiln.cli.console import print_note
from framekiln.cli.options import Json, spread
from framekiln.reporting.terminal.tables import print_whole_plan
from framekiln.runtime.run.request import RunRequest

_DOES_NOT_FIT = 3  # exit code: the plan is right, and was printed, but these machines cannot run it


@spread
def plan(options: RunArguments, *, json_: Json = False) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output also what is left to do there, and why.
    """
    show_plan(Console(), options.request(), as_json=json_)


def show_plan(console: Console, request: RunRequest, *, as_json: bool = False) -> None:
    """Print the plan, then raise the errors that would stop its run. Raises UserError if a run would be refused."""
    plan = make(request, on_wait=print_note)
    if as_json:
        print(json.dumps(plan.to_dict(), indent=2))
    else:
        print_whole_plan(console, plan.planned, plan.note, plan.work)
    if plan.refusal is not None:
        plan.refusal.exit_code = _DOES_NOT_FIT
        raise plan.refusal
