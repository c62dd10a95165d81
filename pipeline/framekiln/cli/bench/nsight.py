"""`framekiln bench MODEL --nsys` and `--ncu`: recordings by Nsight's tools, without the bench's own timings."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.cli.bench.options import NsightOptions
from framekiln.cli.console import interruptible
from framekiln.lab.measure.device_facts import bench_environment
from framekiln.lab.models.registry import find_model
from framekiln.lab.nsight.reports import compute_findings, systems_findings
from framekiln.lab.nsight.session import Mode, NsightRecorder, Target
from framekiln.lab.output.results import STATS, BenchFinding, OtherFigures, new_report, write_report
from framekiln.profiling.tools.profilers import NCU, NSYS, NsightTool, find_tool, named_command, require_tool
from framekiln.reporting.bench.page import PAGE, render
from framekiln.reporting.kit.pages import write_page
from framekiln.reporting.terminal.console import print_line


def bench_nsight(console: Console, models: Sequence[str], cells: CellOptions, nsight: NsightOptions, out: Path) -> None:
    """Record the first cell of each model, and write findings into `profile_stats.json` and the page.

    Raises ConfigError: a tool or a permission is missing, or a model is unknown. Raises SetupError: a tool failed.
    """
    targets = _list_targets(models, cells)
    recorder = NsightRecorder(folder=out / "nsight", note=partial(print_line, console))
    if nsight.dry_run:
        commands = [["mkdir", "-p", str(recorder.folder)]]  # nsys and ncu make no folders
        for target, (_, tool, mode) in product(targets, _list_asked(nsight)):
            # commands for any machine: the tool's path from the environment, or its bare name
            commands += recorder.commands(named_command(tool) or find_tool(tool) or [tool.name], target, mode)
        for command in commands:
            console.print(shlex.join(command), soft_wrap=True, highlight=False, markup=False)
        return
    tools = {option: require_tool(tool, option) for option, tool, _ in _list_asked(nsight)}
    found: list[BenchFinding] = []
    figures: dict[str, Any] = {}
    with interruptible(f"Interrupted. Recordings so far are in {out / 'nsight'}."):
        for target, (option, _, mode) in product(targets, _list_asked(nsight)):
            print_line(console, f"{target.model}: {option}")
            recorded, findings = _record(recorder, tools[option], target, mode)
            figures.setdefault(target.model, {})[option] = recorded
            found += findings
    for finding in found:
        print_line(console, f"  {finding.where}: {finding.rule}: {finding.text}. {finding.fix.capitalize()}.")
    print_line(console, f"Recordings: {out / 'nsight'}")
    report = new_report(bench_environment(targets[0].device), findings=tuple(found), extra=OtherFigures(nsight=figures))
    paths = [write_report(report, out / STATS), write_page(out / PAGE, render(report))]
    print_line(console, f"Written: {', '.join(map(str, paths))}")


def _list_targets(models: Sequence[str], cells: CellOptions) -> list[Target]:
    plan = bench_plan(cells)
    for name in models:
        if name not in plan.pipeline.steps:
            find_model(name, plan.pipeline, plan.weights_dir)
    pipeline: Any = cells.get("pipeline")
    target = Target(
        model="",
        cell=plan.first_cell,
        own_batch=not cells.get("batch"),
        device=plan.measure.device,
        weights_dir=plan.weights_dir,
        pipeline=pipeline,
        inputs=tuple(plan.inputs),
    )
    return [replace(target, model=name) for name in models]


def _list_asked(nsight: NsightOptions) -> list[tuple[str, NsightTool, Mode | None]]:
    asked: list[tuple[str, NsightTool, Mode | None]] = []
    if nsight.nsys is not None or not nsight.ncu:
        asked.append(("--nsys", NSYS, nsight.nsys or "external"))
    return [*asked, ("--ncu", NCU, None)] if nsight.ncu else asked


def _record(recorder: Any, tool: Sequence[str], target: Target, mode: Mode | None) -> tuple[Any, list[BenchFinding]]:
    if mode is None:
        kernels = recorder.record_kernels(tool, target)
        return [asdict(kernel) for kernel in kernels], list(compute_findings(target.model, kernels))
    figures = recorder.record_systems(tool, target, mode)
    if figures is None:
        recorder.note(f"{target.model}: nsys recorded no GPU work.")
        return None, []
    return asdict(figures), list(systems_findings(target.model, figures))
