"""`framemill plan`: what a run would do, where and why, and what it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from pipeline.commands.executing import cluster_of
from pipeline.commands.taking import taking
from pipeline.commands.wish import Wish
from pipeline.job import Job
from pipeline.machines import Node, this_machine
from pipeline.placing import fit
from pipeline.plan import idle_cap, make_plan
from pipeline.telemetry.printing import print_outlook, print_plan


@taking
def plan(wish: Wish) -> None:
    """Check a pipeline and a profile against the machines, and print what would run where.

    With --input and --output also what is left to do there, and why.
    """
    show_plan(Console(), wish)


def show_plan(console: Console, wish: Wish) -> None:
    """The plan as far as it goes, then what it lacks, as an error.

    Raises:
        UserError: what a run would be refused for.
    """
    cluster = cluster_of(wish.address)
    if cluster is None:
        _show_on(console, wish, [this_machine()])
        return
    from pipeline.engine import session

    with session(cluster) as nodes:
        _show_on(console, wish, nodes)


def _show_on(console: Console, wish: Wish, nodes: Sequence[Node]) -> None:
    made = make_plan(*wish.files, wish.choices, nodes, check_weights=False, check_fit=False)
    print_plan(console, made)
    if told := idle_cap(made, wish.choices):
        console.print(told, highlight=False, soft_wrap=True)
    if wish.is_whole:
        job = Job(wish.order(), on_wait=lambda said: console.print(said, highlight=False, soft_wrap=True, markup=False))
        print_outlook(console, *job.preview(made))
    fit(made.waves, made.second, nodes)
