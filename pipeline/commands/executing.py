"""An order carried out before the eyes of a person."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import NoReturn

from rich.console import Console

from pipeline.commands.options import INTERRUPTED
from pipeline.failure import DECODE
from pipeline.job import Job
from pipeline.order import Order
from pipeline.storage import Store
from pipeline.telemetry.printing import print_result, print_work, tame
from pipeline.telemetry.progress import Advised, Both, Silent, View, view
from pipeline.telemetry.run_file import write_run_file
from pipeline.telemetry.scalars import Scalars, check
from pipeline.work import Result, Work

ERRORS = Console(stderr=True, highlight=False, soft_wrap=True)


def execute(order: Order, console: Console, *, quiet: bool, tensorboard: str | None = None) -> None:
    """Run an order, and say on the terminal what there is to do, how far it is, and what became of it.

    Args:
        order: what to do.
        console: the terminal.
        quiet: whether to say nothing of it.
        tensorboard: folder for scalars; None for none.

    Raises:
        ConfigError: scalars cannot be written.
    """
    shown: View = Silent()
    if tensorboard is not None:
        check(tensorboard)
    with ExitStack() as stack:

        def on_plan(work: Work) -> None:
            nonlocal shown
            print_work(console, work, order)
            if work.left:
                steps = [DECODE, *(step.name for step in work.plan.first)]
                views = [view(console, steps, quiet=quiet)]
                if tensorboard is not None:
                    views.append(Scalars(tensorboard, job.store.run, [*steps, *(one.name for one in work.plan.second)]))
                shown = stack.enter_context(Advised(Both(views), work.plan, work.crowded))

        def on_result(result: Result) -> None:
            told = write_run_file(job.store, order, result)
            stack.close()
            print_result(console, job.store, result)
            for line in order.instruments.said(job.store) if result.work.left else ():
                console.print(tame(line), highlight=False, soft_wrap=True, markup=False)
            say_report(console, job.store, computed=told)

        job = Job(
            order,
            watch=lambda figures: shown.show(figures),  # noqa: PLW0108 - `shown` changes
            on_plan=on_plan,
            on_wait=lambda said: console.print(said, highlight=False, soft_wrap=True, markup=False),
            on_result=on_result,
        )
        try:
            job.run()
        except KeyboardInterrupt:  # Typer would end in silence
            stack.close()
            ERRORS.print("Interrupted. What is finished is kept; the same command goes on from there.")
            leave(INTERRUPTED)


def told_aside(words: str) -> None:
    """Say something beside what a command prints, which may be read by a program."""
    ERRORS.print(tame(words), markup=False)


def leave(code: int) -> NoReturn:
    """End this process here: with Ray stopped in the middle, Python was seen to crash while it takes itself down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def say_report(console: Console, store: Store, *, computed: bool) -> None:
    """Write the report where something is new or it is missing, and say where it is."""
    from pipeline.telemetry.report import NAME, write_report

    try:
        url = write_report(store) if computed or not store.exists(NAME) else store.url(NAME)
        said = f"Report: {url}"
    except FileNotFoundError:
        said = f"No report: another run replaces tables just now; framemill report {store.root} writes it later."
    console.print(tame(said), highlight=False, soft_wrap=True, markup=False)


def cluster_of(address: str | None) -> str | None:
    """The cluster to join: the one named, else the one that this shell belongs to; None for none."""
    return address or os.environ.get("RAY_ADDRESS")
