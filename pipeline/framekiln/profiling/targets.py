"""Targets: the one form of `--target` for runs and benches, and those of a profile compared with a run."""

from __future__ import annotations

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

_FORM = re.compile(r"(?:(?P<step>[^\s<>,]+)\.)?(?P<figure>\w+)\s*(?P<sign>[<>])\s*(?P<number>\d+(?:\.\d+)?)")
_LESS_IS_BETTER = ("vram_peak_percent", "call_p95_ms")
_MORE_IS_BETTER = ("rows_per_minute",)  # more than the upper end of a range is met too


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One target of `--target`: a figure and its limit."""

    step: str | None = None  # None: of the whole run, or of a bench
    figure: str
    sign: str = "<"  # the side on which it is met
    number: float

    @property
    def text(self) -> str:
        """The target as it is written."""
        return f"{f'{self.step}.' if self.step else ''}{self.figure}{self.sign}{self.number:g}"


def parse_limits(
    text: str,
    is_known: Callable[[Limit], bool],
    mistake: Callable[[str], ConfigError],
    sets: Mapping[str, Sequence[Limit]] | None = None,
) -> list[Limit]:
    """Return the targets in a list such as `p50<16.67, faces.call_p95_ms<200`; a word may be the name of a set.

    Raises:
        ConfigError: that of `mistake`, for a word of another form or a target that is not known.
    """
    limits: list[Limit] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        m = _FORM.fullmatch(word)
        found = [Limit(step=m["step"], figure=m["figure"], sign=m["sign"], number=float(m["number"]))] if m else []
        found = list((sets or {}).get(word, filter(is_known, found)))
        if not found:
            raise mistake(word)
        limits += found
    return limits


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """One target, compared with its measurement."""

    figure: str  # STEP.FIGURE, or FIGURE of the whole run
    aim: str
    value: float | None  # None if not measured
    verdict: str  # met, not met, not measured


@dataclass(frozen=True, kw_only=True)
class GpuStatistics:
    """The GPUs of a run, all steps together; None where they were not sampled."""

    gpu_use_percent: float | None = None
    vram_peak_percent: float | None = None

    @classmethod
    def of(cls, calls: pa.Table, nodes: pa.Table) -> GpuStatistics:
        """Compute them from a run's records and the samples of its nodes."""
        use = gpu_use(calls, nodes)
        filled = [
            100 * gpu["memory_gb"] / gpu["total_gb"]
            for gpus in nodes["gpus"].to_pylist()
            for gpu in gpus or ()
            if gpu["memory_gb"] is not None and gpu["total_gb"]
        ]
        return cls(gpu_use_percent=None if use is None else 100 * use, vram_peak_percent=max(filled, default=None))


def compare_targets(targets: Targets, gpus: GpuStatistics, steps: Sequence[StepStatistics]) -> list[TargetResult]:
    """Compare each target of a profile with its measurement; targets of the whole run come first."""
    by_name = {step.step: step for step in steps}
    results = [_compare(name, aim, getattr(gpus, name)) for name, aim in _set_targets(targets)]
    for step, aims in targets.steps.items():
        statistics = by_name.get(step)
        results += [_compare(f"{step}.{name}", aim, _measured(statistics, name)) for name, aim in _set_targets(aims)]
    return results


def parse_targets(text: str) -> Targets:
    """Return the targets in a list such as `faces.call_p95_ms<200, categorize.rows_per_minute>600`.

    Raises:
        ConfigError: one has another form, or names a figure that has no target.
    """
    of_run: dict[str, float] = {}
    of_steps: dict[str, dict[str, float]] = {}
    for limit in parse_limits(text, _is_known, _unknown):
        place = of_steps.setdefault(limit.step, {}) if limit.step else of_run
        place[limit.figure] = limit.number
    return Targets.model_validate({**of_run, "steps": of_steps})


def _is_known(limit: Limit) -> bool:
    known = StepTargets if limit.step else Targets
    is_named = limit.figure in known.model_fields.keys() - {"steps"}
    return is_named and (limit.figure in _LESS_IS_BETTER) is (limit.sign == "<")


def _unknown(word: str) -> ConfigError:
    return ConfigError(
        f"--target {word!r} is no target of a run; write STEP.call_p95_ms<MS, STEP.rows_per_minute>ROWS, "
        "[STEP.]gpu_use_percent>PERCENT or vram_peak_percent<PERCENT.",
        code="FK-PROFILE-TARGET",
    )


def _set_targets(targets: Targets | StepTargets) -> Iterator[tuple[str, Any]]:
    return ((name, aim) for name, aim in targets if aim is not None and name != "steps")


def _measured(step: StepStatistics | None, name: str) -> float | None:
    if step is None:
        return None
    if name == "rows_per_minute":
        return None if step.steady_rows_per_s is None else 60 * step.steady_rows_per_s
    if name == "call_p95_ms":
        return step.p95_ms
    return None if step.gpu_use is None else 100 * step.gpu_use


def _compare(figure: str, aim: float | tuple[float | None, float | None], value: float | None) -> TargetResult:
    name = figure.rpartition(".")[2]
    if isinstance(aim, tuple):
        least, most = aim
    else:
        least, most = (None, aim) if name in _LESS_IS_BETTER else (aim, None)
    upper = None if name in _MORE_IS_BETTER and least is not None else most
    text = _range(least, most)
    if value is None:
        return TargetResult(figure=figure, aim=text, value=None, verdict=NOT_MEASURED)
    met = (least is None or value >= least) and (upper is None or value <= upper)
    return TargetResult(figure=figure, aim=text, value=round(value, 4), verdict=MET if met else NOT_MET)


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return f"at most {most:,g}" if least is None else f"at least {least:,g}"
    return f"{least:,g} to {most:,g}"
