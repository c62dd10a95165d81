"""`framekiln profile`: the time of each step and each process of a run, and what to try."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console

from framekiln.api.profile import last_record, read_profile
from framekiln.cli.console import print_note
from framekiln.cli.options import Json
from framekiln.output.object_store import Store
from framekiln.profiling.run_profile import RunProfile
from framekiln.profiling.stats.steps import ProcessStatistics, StepStatistics
from framekiln.profiling.targets import NOT_MEASURED, NOT_MET, parse_targets
from framekiln.reporting.plan_facts import recorded_changes
from framekiln.reporting.terminal.console import DENSE, print_line, print_table
from framekiln.runtime.run.progress import unfinished

Out = Annotated[str, typer.Argument(help="Folder or URL of a run's output; the run may be unfinished.")]
Run = Annotated[str | None, typer.Option("--run", help="One of its runs. [dim]Default: the last one.[/dim]")]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="LIMITS",
        help="Instead of the profile's targets, as faces.call_p95_ms<200,categorize.rows_per_minute>600.",
    ),
]
Workers = Annotated[bool, typer.Option("--workers", help="Add a line for each process.")]

_RATES = ("step", "rows", "steady/s", "all/s", "busy", "waits", "hands on", "VRAM GB", "GPU")
_CALLS = ("step", "calls", "call ms p50/p95/p99", "row ms p50/p95/p99", "inside")
_SHOWN = 0.01  # least share of a step's time for a phase to be listed


def profile(output: Out, run: Run = None, target: Target = "", workers: Workers = False, json_: Json = False) -> None:
    """Show where the time of a run went: rates, calls, waiting, memory, and the bottleneck with what to try.

    Exits with 1 if a target is not met; those of --target must be measured, too.
    """
    store, targets = Store(output), parse_targets(target) if target else None
    run_profile = read_profile(store, run, warn=print_note, targets=targets)
    record = last_record(store)
    if (cut := unfinished(store, record)) is not None:
        print_note(f"Unfinished: {cut.sentence}")
    if json_:
        print(json.dumps(run_profile.to_dict(), indent=2))
    else:
        _print(Console(), run_profile, workers=workers)
        for change in recorded_changes(record) if record.get("run") == run_profile.run else ():
            print_line(Console(), change)
    failed = (NOT_MET, NOT_MEASURED) if target else (NOT_MET,)
    if any(one.verdict in failed for one in run_profile.targets):
        raise typer.Exit(1)


def _print(console: Console, run_profile: RunProfile, *, workers: bool) -> None:
    _print_table(console, _RATES, _rates(run_profile.steps, workers=workers))
    _print_table(console, _CALLS, map(_calls, run_profile.steps))
    if run_profile.targets:
        rows = [
            [one.figure, one.aim, "-" if one.value is None else _short(one.value), one.verdict]
            for one in run_profile.targets
        ]
        _print_table(console, ("target", "aim", "measured", "verdict"), rows)
    for step in run_profile.steps:
        if step.phases.get("queue"):
            print_line(console, _parts(step))
    print_line(console, f"Run {run_profile.run}. {run_profile.bottleneck}")


def _print_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    right = [head for head in heads if head not in ("step", "inside")]
    print_table(console, heads, rows, right=right, whole=("step",), padding=DENSE)


def _rates(steps: Sequence[StepStatistics], *, workers: bool) -> Iterator[list[str]]:
    for step in steps:
        memory = "-" if step.vram_peak_gb is None else f"{step.vram_peak_gb:.1f}"
        use = "-" if step.gpu_use is None else _percent(step.gpu_use)
        yield [f"{step.step} x{len(step.workers)}", *_use(step), memory, use]
        for name, process in step.workers.items() if workers else ():
            yield [f"  {name}", *_use(process), "", ""]


def _calls(step: StepStatistics) -> list[str]:
    times = ["/".join(map(_short, values)) if step.calls else "-" for values in (step.call_ms, step.row_ms)]
    phases = sorted(step.phases.items(), key=lambda pair: -pair[1])
    inside = ", ".join(f"{name} {_percent(share)}" for name, share in phases if share >= _SHOWN)
    return [step.step, f"{step.calls:,}", *times, inside]


def _use(process: ProcessStatistics) -> list[str]:
    steady = "-" if process.steady_rows_per_s is None else _short(process.steady_rows_per_s)
    shares = [_percent(share) for share in (process.busy, process.starved, process.held)]
    return [f"{process.rows:,}", steady, _short(process.rows_per_s), *shares]


def _parts(step: StepStatistics) -> str:
    """Return how busy each part of a process with several packets in work was, and which one limits it."""
    busy = ", ".join(f"{part} {share:.2f}" for part, share in step.parts.items())
    return f"{step.step}, seconds a second of its processes: {busy}; its limit is {step.limit}."


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
