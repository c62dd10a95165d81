"""Benches and runs beside each other: a history with each change's effect, and conditions that fail a bench."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import check_file, read_small, writing
from framekiln.lab.output.results import BenchReport
from framekiln.lab.samples import FIGURES, TIMED, sample_of_step, samples
from framekiln.planning.figures import Figure
from framekiln.planning.limits import Limit
from framekiln.planning.sample import Sample
from framekiln.profiling.stats.speed import TimedCalls
from framekiln.profiling.stats.steps import StepStatistics
from framekiln.profiling.targets import Judgement
from framekiln.reporting.compare.chance import Spread, spreads
from framekiln.reporting.compare.comparison import FigurePair
from framekiln.reporting.compare.gate import judge_figure, parse

SHOWN = ("p50", "rate", "peak_gb")
"""Figures of a line; the rest is in the bench's own files."""


@dataclass(frozen=True, kw_only=True)
class HistoryLine:
    """One line: a bench or a run with its note and the figures of its cells or steps."""

    made: str
    note: str
    device: str
    torch: str
    cells: Mapping[str, Mapping[str, float | None]]  # by sample, figures by name
    work: Mapping[str, str]  # by sample, what is computed, in whatever way


def entry_of(report: BenchReport, note: str) -> HistoryLine:
    """Return the line of a bench."""
    about = report.environment
    device = str(about.get("gpu") or about.get("processor") or about.get("device") or "")
    return _write_line(samples(report), made=report.made, note=note, device=device, torch=str(about.get("torch") or ""))


def entry_of_run(record: Mapping[str, Any], statistics: Sequence[StepStatistics], note: str) -> HistoryLine:
    """Return the line of a run, with a cell for each of its steps; `record` is its run.json, or empty."""
    gpus = ", ".join(map(str, record.get("gpu_names") or ()))
    return _write_line(
        [sample_of_step(step, record) for step in statistics],
        made=datetime.fromtimestamp(min(step.begin for step in statistics), UTC).isoformat(timespec="seconds"),
        note=note,
        device=gpus or str(record.get("processor") or ""),
        torch=str((record.get("versions") or {}).get("torch") or ""),
    )


def _write_line(found: Sequence[Sample], **about: str) -> HistoryLine:
    measured = [sample for sample in found if sample.outcome == "ok"]
    cells = {sample.name: {figure: sample.figures.get(figure) for figure in SHOWN} for sample in measured}
    return HistoryLine(cells=cells, work={sample.name: sample.work for sample in measured}, **about)


def check(path: Path) -> None:
    """Check that a line can be added. Raises ConfigError: the file cannot be written, or is no history."""
    check_file("--history", path)
    if path.exists():
        read(path)


def append(path: Path, entry: HistoryLine) -> list[HistoryLine]:
    """Add a line to a history, and return all its lines.

    Raises ConfigError: the file is no history. Raises OutputError: it cannot be written.
    """
    with writing(path):
        entries = [*read(path), entry] if path.exists() else [entry]
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(entry), ensure_ascii=False) + "\n")
    return entries


def read(path: Path) -> list[HistoryLine]:
    """Read a history. Raises ConfigError: the file is no history."""
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in read_small(path).decode().splitlines()]
        return [HistoryLine(**line) for line in lines]
    except (OSError, RecursionError, ValueError, TypeError) as error:
        problem = f"--history {str(path)!r} is no history of benches or runs ({error}); give another file."
        raise ConfigError(problem, code="FK-BENCH-HISTORY") from error


def steps(entries: Sequence[HistoryLine]) -> list[dict[str, Any]]:
    """Return each later bench's effect: the `bench`, a `cell`, and its `figures` before and after.

    A cell is compared with itself in the latest earlier bench that has it. Without one, it is compared with the fastest
    cell of the latest earlier bench that computes the same in another way, for instance in another precision.
    """
    found = []
    for number, bench in enumerate(entries):
        earlier = entries[:number][::-1]
        for name, after in bench.cells.items():
            own = [(name, one.cells[name]) for one in earlier if name in one.cells]
            alike = [[pair for pair in one.cells.items() if one.work[pair[0]] == bench.work[name]] for one in earlier]
            others = (min(pairs, key=lambda pair: pair[1].get("p50") or math.inf) for pairs in alike if pairs)
            if before := next(iter(own), None) or next(others, None):
                other, values = before
                figures = {figure: (values.get(figure), after.get(figure)) for figure in SHOWN}
                cell = name if other == name else f"{other} → {name}"
                found.append({"bench": bench, "cell": cell, "figures": figures})
    return found


SIDES = ("base", "now")


def changes(base: BenchReport, other: BenchReport) -> list[FigurePair]:
    """Return the figures of samples measured in both, in the base's order.

    Raises ConfigError: they have none in common.
    """
    theirs = {sample.name: sample for sample in samples(other) if sample.outcome == "ok"}
    pairs = [(one, theirs[one.name]) for one in samples(base) if one.outcome == "ok" and one.name in theirs]
    if not pairs:
        raise ConfigError(
            "The two benches have no cell, clip or video in common; compare benches of the same models, batches and "
            "precisions.",
            code="FK-BENCH-NOTHING-COMMON",
        )
    found = []
    for first, second in pairs:
        known = [(sample.figures, _compute_spreads(sample)) for sample in (first, second)]
        for name, unit in FIGURES.items():
            a, b = ([figures[name]] if name in figures else [] for figures, _ in known)
            before, after = ([by_name.get("ms_row" if name == "mean" else name)] for _, by_name in known)
            figure = Figure(name=name, title=name, unit=unit, noisy=unit in TIMED)
            if a or b:
                found.append(FigurePair.of(first.name, figure, (a, b), (before, after), "too few calls"))
    return found


def judge(text: str, found: Sequence[FigurePair]) -> list[Judgement]:
    """Evaluate the conditions of --fail-if on each sample.

    Raises ConfigError: a condition has another form, names an unknown figure, or one that no cell has on both sides.
    """
    verdicts: list[Judgement] = []
    for condition in conditions(text):
        known = [one for one in found if one.name == condition.figure and one.second is not None]
        known = [one for one in known if one.first or not condition.relative]
        if not known:
            raise ConfigError(
                f"--fail-if: {condition.text!r}: no cell has {condition.figure} on both sides; measure more calls, or "
                "choose another figure.",
                code="FK-GATE-NOT-MEASURED",
            )
        verdicts += [judge_figure(condition, one, SIDES) for one in known]
    return verdicts


def check_base(text: str, base: BenchReport) -> None:
    """Check that the base has each figure of --fail-if. Raises ConfigError: it lacks one."""
    known = {name for sample in samples(base) if sample.outcome == "ok" for name in sample.figures}
    for condition in conditions(text) if text else ():
        if condition.figure not in known:
            raise ConfigError(
                f"--fail-if: {condition.text!r}: no cell of the base has {condition.figure}; measure the base again "
                "with more calls, or choose another figure.",
                code="FK-GATE-NOT-MEASURED",
            )


def conditions(text: str) -> list[Limit]:
    """Parse the conditions of --fail-if.

    Raises ConfigError: one has another form, or names an unknown figure or a step.
    """
    parsed = parse(text, FIGURES)
    for condition in parsed:
        if condition.step is not None:
            problem = f"--fail-if: {condition.text!r}: a bench has no steps; write it without {condition.step!r}."
            raise ConfigError(problem, code="FK-GATE-FORM")
    return parsed


_CONDITIONS = ("device", "gpu", "processor", "threads", "torch", "input", "cold_cache", "memory_cap_gb")


def other_conditions(base: BenchReport, other: BenchReport) -> str:
    """Return the differences between two benches that times depend on: machine, software, input, settings, weights."""
    sides = [
        {name: one.environment[name] for name in _CONDITIONS if name in one.environment}
        | {f"weights of {model.name}": model.weights for model in one.models}
        for one in (base, other)
    ]
    pairs = {name: (sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]}
    texts = {name: ["none" if one in (None, "") else str(one) for one in pair] for name, pair in pairs.items()}
    return ", ".join(f"{name} {a}, now {b}" for name, (a, b) in texts.items() if a != b)


def lost(base: BenchReport, other: BenchReport) -> list[Judgement]:
    """Return a verdict for each sample of the base that could not be measured in the other bench."""
    known = {sample.name for sample in samples(base) if sample.outcome == "ok"}
    failed = [sample for sample in samples(other) if sample.outcome != "ok" and sample.name in known]
    sentences = [f"{one.name} was measured in the base; now: {one.outcome}, {one.why}." for one in failed]
    return [Judgement(failed=True, sentence=sentence, missing=True) for sentence in sentences]


def _compute_spreads(sample: Sample) -> Mapping[str, Spread]:
    if sample.latency is None or not sample.latency.values:
        return {}
    seconds = np.asarray(sample.latency.values) / 1000
    started = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    rows = np.full(len(seconds), sample.batch, np.int64)
    return spreads(TimedCalls.of(np.zeros(len(seconds)), started, seconds, rows))
