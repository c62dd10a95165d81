"""The measurement of `framekiln bench`: models one after the other, each cell printed as it ends."""

from collections.abc import Sequence

from rich.console import Console

from framekiln.api.bench import BenchFiles, measured
from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.cli.bench.files import keep_figures, print_findings
from framekiln.cli.console import interruptible
from framekiln.lab.bench import BenchWatch
from framekiln.lab.measure.figures import MODEL_SHARE
from framekiln.lab.measure.timed import USUAL_CALLS
from framekiln.lab.measure.tracing import Details
from framekiln.lab.output.cells import CellResult
from framekiln.lab.output.results import BenchReport, Finding, ModelInfo
from framekiln.lab.sweep.batch_search import SearchResult, curves, knee
from framekiln.reporting.bench.tables import drift, peak_memory, speed_up
from framekiln.reporting.kit.formatting import figure
from framekiln.reporting.terminal.console import print_line


class _Printing(BenchWatch):
    """Figures of each model and cell, or why there are none."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, findings: Sequence[Finding]) -> None:
        print_findings(findings)

    def model(self, info: ModelInfo) -> None:
        parts = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in info.parts.items())
        size = f"{info.params / 1e6:,.1f} M parameters" if info.params else "no parameters in torch"
        size += f" ({parts})" if parts else ""
        print_line(self._console, f"\n{info.name}: {size}, weights {info.weights}")

    def cell(self, result: CellResult) -> None:
        title = f"  {result.cell.title}"
        latency = result.latency_ms
        if latency is None:
            print_line(self._console, f"{title}: {result.outcome}, {result.why}")
            return
        parts = [f"{latency.median:,.2f} ms a call", f"{result.items_per_s or 0:,.2f} items/s"]
        parts += [f"{name} {value:,.2f}" for name, value in (("p95", latency.p95), ("p99", latency.p99)) if value]
        print_line(self._console, f"{title}: {', '.join(parts)} ({latency.count} calls)")
        more = [f"mean {latency.mean:,.2f}, {latency.min:,.2f} to {latency.max:,.2f} ms"]
        more += [f"compiled in {result.compile_s:.1f} s"] if result.compile_s is not None else []
        more += [f"{figure(result.flops / 1e9)} GFLOP"] if result.flops else []
        if result.tflops and result.peak_share is not None:
            more.append(f"{figure(result.tflops)} TFLOP/s ({result.peak_share:.0%} of the peak)")
        if result.memory is not None and result.memory.peak is not None:
            size, _, share = (peak_memory(result) or "").partition(" ")
            more.append(f"peak {size} MB {share}".rstrip())
        more += [f"{speed_up(result)} times as fast as fp32"] if result.speedup is not None else []
        more += [f"drift {drift(result)}"] if result.drift is not None else []
        if (alone := result.extra.get(MODEL_SHARE)) is not None:
            more.append(f"{alone['factor']:.2f} of its model alone ({alone['low']:.2f} to {alone['high']:.2f})")
        if leak := result.leak:
            more.append(
                f"{'leaks' if leak.leaks else 'no leak'} ({leak.slope:,.0f} bytes a call over {leak.calls} calls)"
            )
        print_line(self._console, f"    {', '.join([*more, *result.notes])}")

    def search(self, results: Sequence[CellResult], found: SearchResult) -> None:
        why = found.failure.why if found.failure else found.cut_short
        best = [f"; {knee(curve).cell.batch} is enough for the best rate" for curve in curves(results).values()]
        print_line(self._console, f"  Largest batch that ran: {found.largest} ({why}){''.join(best)}.")

    def details(self, details: Details) -> None:
        for file in details.files:
            print_line(self._console, f"  recorded: {file}")
        for note in details.notes:
            print_line(self._console, f"  not recorded: {note}")


def measure(console: Console, models: Sequence[str], options: CellOptions, files: BenchFiles) -> BenchReport:
    """Measure all cells of all models, and print each; an error or Ctrl-C keeps what was measured before.

    Raises:
        ConfigError: a value of an axis, a model or a function is unknown, or a model cannot be built.
    """
    plan = bench_plan(options, files.target)
    is_open = plan.measure.iterations is None and plan.measure.seconds is None
    if is_open and plan.measure.least > USUAL_CALLS:
        print_line(console, f"{plan.measure.least} calls of each cell, for --target {files.target}.")
    with interruptible("Interrupted."):
        return measured(models, plan, files.out, _Printing(console), lambda report: keep_figures(report, files))
