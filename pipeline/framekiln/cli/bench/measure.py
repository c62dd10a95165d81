"""`framekiln bench`: a measurement cell by cell, and its end: files, findings and verdicts."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from typer import Exit

from framekiln.api.bench import BenchFiles, BenchResult, concluded, measured, rescued
from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.cli.console import ERRORS, interruptible, print_note
from framekiln.lab.bench import BenchEvent
from framekiln.lab.findings import LOAD, load
from framekiln.lab.measure.device_facts import bench_environment
from framekiln.lab.measure.timed import USUAL_CALLS
from framekiln.lab.measure.tracing import Details
from framekiln.lab.output.cells import CellResult
from framekiln.lab.output.results import BenchFinding, BenchReport, ModelInfo, new_report, require_any
from framekiln.lab.samples import samples
from framekiln.lab.sweep.batch_search import SearchResult, fastest
from framekiln.lab.sweep.figures import MODEL_SHARE
from framekiln.reporting.bench.history import SHOWN, SIDES
from framekiln.reporting.bench.tables import drift, peak_memory, speed_up
from framekiln.reporting.compare.tables import figures_table
from framekiln.reporting.kit.texts import figure
from framekiln.reporting.terminal.console import DENSE, print_line, show_table

_PRINTED = 3  # findings printed for each rule


@contextmanager
def measuring(
    console: Console, device: str, files: BenchFiles, figures: Callable[[], Mapping[str, Any]]
) -> Iterator[Path]:
    """Give a folder to a measurement, then write, print and compare its figures.

    `figures` returns the results as fields of a report. Ctrl-C ends this process. Raises ConfigError: nothing was
    measured, or nothing in common with the base. Raises OutputError: a file cannot be written. Raises Exit: a condition
    is met, or a target is missed.
    """
    base, environment = files.base(), bench_environment(device)
    crowded = tuple(load(environment["others"]))
    print_findings(crowded)

    def report() -> BenchReport:
        return new_report(environment, findings=crowded, **figures())

    with interruptible("Interrupted."), tempfile.TemporaryDirectory() as folder, rescued(report, files):
        yield Path(folder)
    finish(console, concluded(report(), files, base, is_new=True))


def print_findings(findings: Sequence[BenchFinding]) -> None:
    """Print findings that make all figures worthless, also with --quiet."""
    for finding in findings:
        print_note(f"{finding.rule}: {finding.text}; {finding.fix}.")


def finish(console: Console, result: BenchResult, *, is_new: bool = True) -> None:
    """Print findings and verdicts. Exit with 1 if a condition is met or a target is missed, with 2 if a cell is lost.

    Raises ConfigError: nothing was measured.
    """
    if result.base_differs:
        print_note(f"Times cannot be compared with the base's: {result.base_differs}.")
    findings = [one for one in result.findings if one.rule != LOAD or not is_new]
    for rule in dict.fromkeys(finding.rule for finding in findings):  # the page lists all: many cells may have the same
        found = [finding for finding in findings if finding.rule == rule]
        for finding in found[:_PRINTED]:
            print_line(console, f"{rule}: {finding.text} ({finding.where}); {finding.fix}.")
        if len(found) > _PRINTED:
            print_line(console, f"{rule}: {len(found) - _PRINTED} more on the page.")
    told = [one for one in result.changes if one.name in SHOWN]
    if told and not console.quiet:
        show_table(console, figures_table(told, SIDES, head="Cell"), padding=DENSE)
    for verdict in result.verdicts:
        line = f"{verdict.outcome}: {verdict.sentence}"
        print_line(ERRORS if verdict.failed or verdict.unclear else console, line)
    print_line(console, f"Written: {', '.join(map(str, result.files))}")
    if is_new:
        require_any(samples(result.report))
    if result.failed:
        raise Exit(2 if any(verdict.missing for verdict in result.verdicts) else 1)


def _print_event(console: Console, event: BenchEvent) -> None:
    match event:
        case ModelInfo() as info:
            parts = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in info.parts.items())
            size = f"{info.params / 1e6:,.1f} M parameters" if info.params else "no parameters in torch"
            size += f" ({parts})" if parts else ""
            print_line(console, f"\n{info.name}: {size}, weights {info.weights}")
        case CellResult():
            _print_cell(console, event)
        case SearchResult() as found:
            why = found.failure.why if found.failure else found.cut_short
            best = f"; {fastest(found.trials)} is enough for the best rate" if found.trials else ""
            print_line(console, f"  Largest batch that ran: {found.largest} ({why}){best}.")
        case Details():
            for line in (*(f"recorded: {file}" for file in event.files), *(f"not recorded: {n}" for n in event.notes)):
                print_line(console, f"  {line}")
        case findings:
            print_findings(findings)


def _print_cell(console: Console, result: CellResult) -> None:
    title, latency = f"  {result.cell.title}", result.latency_ms
    if latency is None:
        print_line(console, f"{title}: {result.outcome}, {result.why}")
        return
    parts = [f"median {latency.median:,.2f} ms a call", f"{result.items_per_s or 0:,.2f} items/s over all calls"]
    parts += [f"{name} {value:,.2f}" for name, value in (("p95", latency.p95), ("p99", latency.p99)) if value]
    print_line(console, f"{title}: {', '.join(parts)} ({latency.count} calls)")
    more = [f"mean {latency.mean:,.2f}, {latency.min:,.2f} to {latency.max:,.2f} ms"]
    more += [f"compiled in {result.compile_s:.1f} s"] if result.compile_s is not None else []
    more += [f"{figure(result.flops / 1e9)} GFLOP"] if result.flops else []
    if result.tflops and result.peak_share is not None:
        more.append(f"{figure(result.tflops)} TFLOP/s ({result.peak_share:.0%} of the peak)")
    if (peak := peak_memory(result)) is not None:
        size, _, share = peak.partition(" ")
        more.append(f"peak {size} MB {share}".rstrip())
    more += [f"{speed_up(result)} times as fast as fp32"] if result.speedup is not None else []
    more += [f"drift {drift(result)}"] if result.drift is not None else []
    if (alone := result.extra.get(MODEL_SHARE)) is not None:
        more.append(f"{alone['factor']:.2f} of its model alone ({alone['low']:.2f} to {alone['high']:.2f})")
    if leak := result.leak:
        told = "tensors leak" if leak.leaks else "no leak of tensors"
        more.append(f"{told} ({leak.slope:,.0f} bytes a call over {leak.calls} calls)")
    print_line(console, f"    {', '.join([*more, *result.notes])}")


def measure(console: Console, model: str, cells: CellOptions, files: BenchFiles) -> None:
    """Measure all cells of all models, and print each; see `measured` and `finish`."""
    options = bench_plan(cells, files.limits).measure
    if options.iterations is None and options.seconds is None and options.least > USUAL_CALLS:
        asked = ", ".join(one.text for one in files.limits)
        print_line(console, f"{options.least} calls of each cell, for {asked}.")
    with interruptible("Interrupted."):
        result = measured(model, cells, files, partial(_print_event, console))
    finish(console, result)
