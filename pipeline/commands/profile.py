"""`framemill profile`: what each step and each process of a run did with its time, and what to try."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.commands.executing import told_aside
from pipeline.errors import OutputError
from pipeline.storage import Store
from pipeline.telemetry.absence import no_rows
from pipeline.telemetry.measures import StepMeasures, Use
from pipeline.telemetry.profiles import RunProfile, chosen_run, full_of, profile_of, targets_of
from pipeline.telemetry.run_file import read_whole
from pipeline.telemetry.targets import Judged

Out = Annotated[str, typer.Argument(help="Folder or URL of a run's output; the run may still be going on.")]
Run = Annotated[str | None, typer.Option("--run", help="One of its runs. [dim]Default: the one that began last.[/dim]")]
Workers = Annotated[bool, typer.Option("--workers", help="A line for each process too.")]
Json = Annotated[bool, typer.Option("--json", help="Everything, as JSON.")]

_SHOWN = 0.01  # share of a step's time from which a phase is named


def profile(output: Out, run: Run = None, workers: Workers = False, json_: Json = False) -> None:
    """Show where the time of a run went: rates, calls, waiting, memory, and the bottleneck with what to try."""
    store = Store(output).as_folder()
    name = chosen_run(store, run, say=told_aside)
    record = _last(store)
    found = profile_of(store, name, targets_of(record), full_of(record, name))
    if found is None:
        raise OutputError(no_rows(store, name))
    if json_:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _print(Console(), found, workers=workers)


def _last(store: Store) -> Mapping[str, Any]:
    """The run.json of the last run that has ended; of a first run there is none yet."""
    try:
        return read_whole(store)
    except FileNotFoundError:
        return {}


def _print(console: Console, found: RunProfile, *, workers: bool) -> None:
    console.print(_rates(found.steps, workers=workers))
    console.print(_calls(found.steps))
    if found.targets:
        console.print(_aims(found.targets))
    console.print(f"Run {found.run}. {found.verdict}", highlight=False, soft_wrap=True, markup=False)


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        words = head in ("step", "inside")
        table.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=head == "step")
    return table


def _rates(steps: Sequence[StepMeasures], *, workers: bool) -> Table:
    table = _table("step", "rows", "steady/s", "all/s", "busy", "waits", "hands on", "VRAM GB", "GPU")
    for step in steps:
        memory = "-" if step.vram_peak_gb is None else f"{step.vram_peak_gb:.1f}"
        use = "-" if step.gpu_use is None else _percent(step.gpu_use)
        table.add_row(f"{step.step} x{len(step.workers)}", *_use(step), memory, use)
        for name, one in step.workers.items() if workers else ():
            table.add_row(f"  {name}", *_use(one), "", "")
    return table


def _aims(targets: Sequence[Judged]) -> Table:
    table = _table("target", "aim", "measured", "verdict")
    for one in targets:
        table.add_row(one.figure, one.aim, "-" if one.value is None else _short(one.value), one.verdict)
    return table


def _use(one: Use) -> list[str]:
    steady = "-" if one.steady_rows_per_s is None else _short(one.steady_rows_per_s)
    shares = [_percent(share) for share in (one.busy, one.starved, one.held)]
    return [f"{one.rows:,}", steady, _short(one.rows_per_s), *shares]


def _calls(steps: Sequence[StepMeasures]) -> Table:
    table = _table("step", "calls", "call ms p50/p95/p99", "row ms p50/p95/p99", "inside")
    for step in steps:
        times = ["/".join(map(_short, values)) if step.calls else "-" for values in (step.call_ms, step.row_ms)]
        table.add_row(step.step, f"{step.calls:,}", *times, _phases(step.phases))
    return table


def _phases(phases: Mapping[str, float]) -> str:
    ordered = sorted(phases.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {_percent(share)}" for name, share in ordered if share >= _SHOWN)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
