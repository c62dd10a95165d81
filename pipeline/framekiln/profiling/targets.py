"""Limits of figures: one syntax for `--target` and `--fail-if`; and a profile's targets compared with a run."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import StepTargets, Targets
from framekiln.profiling.stats.speed import gpu_use
from framekiln.profiling.stats.steps import StepStatistics

MET, NOT_MET, NOT_MEASURED = "met", "not met", "not measured"

_FORM = re.compile(
    r"(?:(?P<step>[^\s<>=,]+)\.)?(?P<figure>[A-Za-z]\w*)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<percent>%?)"
)
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_LESS_IS_BETTER = ("vram_peak_percent", "call_p95_ms")
_MORE_IS_BETTER = ("rows_per_minute",)  # figures for which values above the range are met too


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A figure and a bound: a target of `--target`, or a forbidden state of `--fail-if`."""

    text: str  # the user's text
    step: str | None = None  # None: the whole run, every step, or a bench
    figure: str
    sign: str  # side of the number on which it holds
    number: float  # a share if relative: -0.05 is 5 % less
    relative: bool = False  # a change from the base

    def holds(self, value: float) -> bool:
        return bool(_SIGNS[self.sign](value, self.number))


def read_limit(text: str) -> Limit | None:
    """Return a limit of the form `[STEP.]FIGURE<NUMBER`, with % for a change; None for another form."""
    if (m := _FORM.fullmatch(text)) is None:
        return None
    step, figure, sign, percent = m["step"], m["figure"], m["sign"], bool(m["percent"])
    number = float(m["number"]) / (100 if percent else 1)
    return Limit(text=text, step=step, figure=figure, sign=sign, number=number, relative=percent)


def parse_limits(
    text: str, is_known: Callable[[Limit], bool], fix: str, sets: Mapping[str, str] | None = None, *, code: str
) -> list[Limit]:
    """Return the targets in a list such as `p50<16.67, faces.call_p95_ms<200`; a word may name a set.

    Raises ConfigError: a word has another form, or its target is unknown; with `fix` and `code`.
    """
    limits: list[Limit] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        if word in (sets or {}):
            limits += parse_limits((sets or {})[word], is_known, fix, code=code)
            continue
        limit = read_limit(word.replace(" ", ""))
        form = limit is not None and not limit.relative and limit.sign in ("<", ">") and is_known(limit)
        if limit is None or not form or (limit.sign == "<" and limit.number <= 0):  # no figure is under 0
            raise ConfigError(f"--target {word!r} is no target{fix}.", code=code)
        limits.append(limit)
    return limits


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one condition on a step, or of a target on a sample."""

    failed: bool
    sentence: str
    unclear: bool = False  # beyond the threshold but within chance: neither failed nor passed

    @property
    def outcome(self) -> str:
        return "Failed" if self.failed else "Inconclusive" if self.unclear else "Passed"


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """One target and its measurement."""

    figure: str  # STEP.FIGURE, or FIGURE for the whole run
    aim: str
    value: float | None  # None if not measured
    verdict: str  # met, not met, not measured


def gpu_figures(calls: pa.Table, nodes: pa.Table) -> dict[str, float | None]:
    """Return the GPU figures of targets, all steps together; None if they were not sampled."""
    use = gpu_use(calls, nodes)
    filled = [
        100 * gpu["memory_gb"] / gpu["total_gb"]
        for gpus in nodes["gpus"].to_pylist()
        for gpu in gpus or ()
        if gpu["memory_gb"] is not None and gpu["total_gb"]
    ]
    return {"gpu_use_percent": None if use is None else 100 * use, "vram_peak_percent": max(filled, default=None)}


def compare_targets(
    targets: Targets, gpus: Mapping[str, float | None], steps: Sequence[StepStatistics]
) -> list[TargetResult]:
    """Compare each target of a profile with its measurement; targets of the whole run first."""
    results = [_compare(name, aim, gpus.get(name)) for name, aim in _set_targets(targets)]
    figures: dict[str, dict[str, float | None]] = {}
    for one in steps:
        steady, use = one.steady_rows_per_s, one.gpu_use
        of_step = {"rows_per_minute": steady and 60 * steady, "gpu_use_percent": use and 100 * use}
        figures[one.step] = of_step | {"call_p95_ms": one.call_ms[1]}
    for step, aims in targets.steps.items():
        known = figures.get(step, {})
        results += [_compare(f"{step}.{name}", aim, known.get(name)) for name, aim in _set_targets(aims)]
    return results


def parse_targets(text: str) -> Targets:
    """Return the targets in a list such as `faces.call_p95_ms<200, categorize.rows_per_minute>600`.

    Raises ConfigError: a target has another form, or its figure has no targets.
    """

    def is_known(limit: Limit) -> bool:
        named = (StepTargets if limit.step else Targets).model_fields.keys() - {"steps"}
        return limit.figure in named and (limit.figure in _LESS_IS_BETTER) is (limit.sign == "<")

    of_run: dict[str, float] = {}
    of_steps: dict[str, dict[str, float]] = {}
    fix = (
        " of a run; write STEP.call_p95_ms<MS, STEP.rows_per_minute>ROWS, [STEP.]gpu_use_percent>PERCENT or "
        "vram_peak_percent<PERCENT"
    )
    for limit in parse_limits(text, is_known, fix, code="FK-PROFILE-TARGET"):
        place = of_steps.setdefault(limit.step, {}) if limit.step else of_run
        place[limit.figure] = limit.number
    return Targets.model_validate({**of_run, "steps": of_steps})


def _set_targets(targets: Targets | StepTargets) -> Iterator[tuple[str, Any]]:
    return ((name, aim) for name, aim in targets if aim is not None and name != "steps")


def _compare(figure: str, aim: float | tuple[float | None, float | None], value: float | None) -> TargetResult:
    name = figure.rpartition(".")[2]
    if isinstance(aim, tuple):
        least, most = aim
    else:
        least, most = (None, aim) if name in _LESS_IS_BETTER else (aim, None)
    upper = None if name in _MORE_IS_BETTER and least is not None else most
    text = f"at most {most:,g}" if least is None else f"at least {least:,g}"
    text = text if least is None or most is None else f"{least:,g} to {most:,g}"
    met = value is not None and (least is None or value >= least) and (upper is None or value <= upper)
    verdict = NOT_MEASURED if value is None else MET if met else NOT_MET
    return TargetResult(figure=figure, aim=text, value=None if value is None else round(value, 4), verdict=verdict)
