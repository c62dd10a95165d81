"""`framekiln profile` and `framekiln trace`: where the time of a run went, as text and as a timeline."""

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer import Option

from framekiln.api.summary import last_record, read_profile
from framekiln.cli.console import print_note
from framekiln.cli.options import Json, refuse_idle
from framekiln.contract.errors import OutputError, check_known
from framekiln.contract.store_url import split_place
from framekiln.contract.user_files import check_file
from framekiln.output.object_store import Store
from framekiln.planning.limits import run_targets
from framekiln.planning.sample import PERCENTILE_RULE
from framekiln.profiling.export.trace_events import events
from framekiln.profiling.run_profile import RunProfile, choose_run, missing_note, read_work
from framekiln.profiling.stats.steps import StepStatistics
from framekiln.profiling.targets import NOT_MEASURED, NOT_MET
from framekiln.reporting.kit.texts import LEAST_SHARE, Column, TextTable, figure, numbers, share, shares, words
from framekiln.reporting.plan_facts import recorded_changes
from framekiln.reporting.terminal.console import DENSE, print_line, show_table
from framekiln.runtime.run.progress import unfinished

Out = Annotated[str, typer.Argument(help="Folder or URL of a run's output; the run may be unfinished.")]
Run = Annotated[str | None, Option(help="Run to show. [dim]Default: the one with the most work.[/dim]")]
_TARGETS = "Targets instead of the profile's, such as faces.p95<200,categorize.rate>10."
Target = Annotated[str, Option(metavar="LIMITS", help=_TARGETS)]
History = Annotated[Path | None, Option(metavar="FILE", help="Add a line to this .jsonl, and show what changed.")]
Note = Annotated[str, Option(help="With --history: a note on the change.")]
Workers = Annotated[bool, Option("--workers", help="Add a line for each process.")]


def _join(times: str, step: StepStatistics) -> str | None:
    return "/".join(map(figure, getattr(step, times))) if step.calls else None


_RATES = (
    words("step", "step"),
    *numbers({"rows": "rows", "steady/s": "steady_rows_per_s", "all/s": "rows_per_s"}),
    *numbers({"busy": "busy", "waits": "starved", "hands on": "held"}, show=share),
    Column("VRAM GB", "vram_peak_gb"),
    Column("GPU", "gpu_use", show=share),
)
_CALLS = (
    words("step", "step"),
    Column("calls", "calls"),
    Column("call ms p50/p95/p99", partial(_join, "call_ms")),
    Column("row ms p50/p95/p99", partial(_join, "row_ms")),
    words("inside", lambda step: shares(step.phases)),
)


def profile(
    output: Out,
    run: Run = None,
    target: Target = "",
    history: History = None,
    note: Note = "",
    workers: Workers = False,
    json_: Json = False,
) -> None:
    """Show where the time of a run went: rates, calls, waits, memory, the bottleneck and what to try.

    Exits with 1 if a target is missed, or if a target of --target was not measured.
    """
    if json_:
        refuse_idle({"--workers": workers}, "beside --json, which has each process")
    if note and history is None:
        refuse_idle(["--note"], "without --history")
    if history is not None:
        _check_history(history)
    store, targets = Store(output), run_targets([target])
    run_profile = read_profile(store, run, warn=print_note, targets=targets)
    record = last_record(store)
    known = {*record.get("steps", ()), *(step.step for step in run_profile.steps)}
    for name in (target.step for target in targets if target.step):
        check_known(name, known, f"--target: the run has no step {name!r}.", code="FK-UNKNOWN-STEP")
    own = record if record.get("run") == run_profile.run else {}
    if (cut := unfinished(store, record)) is not None:
        print_note(f"Unfinished: {cut.sentence}")
    if json_:
        print(json.dumps(run_profile.to_dict(), indent=2))
    else:
        _print(Console(), run_profile, workers=workers)
        _print_notes(Console(), store, run_profile, own, choose=run is None)
    if history is not None:
        _add_to_history(Console(quiet=json_), history, own, run_profile, note)
    failed = (NOT_MET, NOT_MEASURED) if target else (NOT_MET,)
    if any(one.verdict in failed for one in run_profile.targets):
        raise typer.Exit(1)


def _print(console: Console, run_profile: RunProfile, *, workers: bool) -> None:
    from framekiln.reporting.html.summary import targets_table  # libraries that `--help` does not need

    advice = run_profile.bottleneck
    if advice.others:  # it concerns all figures below
        print_line(console, advice.others.rstrip())
    shown = [one for step in run_profile.steps for one in _list_processes(step, workers=workers)]
    targets = targets_table([asdict(one) for one in run_profile.targets])
    for table in (
        TextTable(title="Rates", columns=_RATES, items=shown),
        TextTable(title="Calls", columns=_CALLS, items=run_profile.steps),
        *([targets] if targets.items else []),
    ):
        show_table(console, table, title=False, whole=("step",), padding=DENSE)
    if any(step.calls and step.call_ms[2] is None for step in run_profile.steps):
        print_line(console, PERCENTILE_RULE)
    for step in run_profile.steps:
        if step.phases.get("queue", 0.0) >= LEAST_SHARE:  # its processes work on several packets at a time
            busy = ", ".join(f"{part} {share:.2f} s" for part, share in step.parts.items())
            print_line(console, f"{step.step} in each second of a process: {busy}; what limits it: {step.limit}.")
    print_line(console, f"Run {run_profile.run}. {advice.reason}.")
    print_line(console, f"To try: {advice.change}.")


def _print_notes(
    console: Console, store: Store, run_profile: RunProfile, record: Mapping[str, Any], *, choose: bool
) -> None:
    for change in recorded_changes(record):
        print_line(console, change)
    if missing := missing_note(run_profile.lost):
        print_line(console, missing)
    others = {name: work.began for name, work in read_work(store).items() if name != run_profile.run}
    if others and choose:
        latest = max(others, key=lambda name: others[name])
        print_line(console, f"It did the most work of {len(others) + 1} runs; --run {latest} shows another one.")


def _check_history(path: Path) -> None:
    from framekiln.reporting.bench.history import check  # libraries that `--help` does not need

    check(path)


def _add_to_history(
    console: Console, path: Path, record: Mapping[str, Any], run_profile: RunProfile, note: str
) -> None:
    """Add the run's line, and print what changed since the latest run or bench with the same steps."""
    from framekiln.reporting.bench.history import append, entry_of_run, steps
    from framekiln.reporting.bench.tables import HISTORY

    entries = append(path, entry_of_run(record, run_profile.steps, note))
    found = [step for step in steps(entries) if step["bench"] is entries[-1]]
    table = TextTable(title="What the change brought", columns=HISTORY[1:], items=found)
    if found:
        show_table(console, table.shown, whole=("Cell",), padding=DENSE)
    else:
        print_line(console, f"{path} has no earlier line with these steps.")


def _list_processes(step: StepStatistics, *, workers: bool) -> Iterator[dict[str, Any]]:
    yield {**step.to_dict(), "step": f"{step.step} x{len(step.workers)}"}
    for name, process in step.workers.items() if workers else ():
        yield {**asdict(process), "step": f"  {name}"}


_LEVEL = 5  # gzip's level: higher ones take longer than the events themselves


def trace(
    output: Out,
    run: Run = None,
    file: Annotated[
        str | None, Option("--output", "-o", help="File; .gz compresses it. [dim]Default: OUT/trace-RUN.json.gz.[/dim]")
    ] = None,
) -> None:
    """Write the timeline of a run: processes, calls, waiting, memory, machines and the path of each packet."""
    if file and "://" not in file:
        check_file("--output", Path(file))
    store = Store(output).check_folder()
    name = choose_run(store, run, warn=print_note)
    folder, target = store, f"trace-{name}.json.gz"
    if file is not None:
        place, target = split_place(file)
        if target in ("", ".", ".."):
            problem = f"{file!r} is a folder; give --output the name of a file in it, such as trace.json.gz."
            raise OutputError(problem, code="FK-IS-A-FOLDER")
        folder = Store(place or ".")
    with ExitStack() as stack:
        sink: Any = stack.enter_context(folder.writing(target))
        if target.endswith(".gz"):
            packed = gzip.GzipFile(fileobj=sink, mode="wb", filename="", mtime=0, compresslevel=_LEVEL)
            sink = stack.enter_context(packed)
        before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
        for event in events(store, name):  # one event a line
            sink.write(before + json.dumps(event, separators=(",", ":")).encode())
            before = b",\n"
        sink.write(b"\n]}\n")
    print_line(Console(), f"{folder.url(target)}: open it at ui.perfetto.dev or chrome://tracing.")
