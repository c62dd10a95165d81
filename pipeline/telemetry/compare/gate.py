"""Conditions that fail a comparison, for CI: `rate<-5%, faces.p95>+10%, drift>0.01`.

    conditions = condition ("," condition)*
    condition  = [step "."] figure ("<" | "<=" | ">" | ">=") threshold
    threshold  = ("+" | "-") number "%"     a change against the base; of 0% the sign may be left out
               | number                     the other side's value itself, in the figure's unit

Without a step, a condition on a step's figure is for every step. What was not measured is an error and never a pass.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError, did_you_mean
from pipeline.failure import DECODE
from pipeline.telemetry.compare.comparison import Line, Pair
from pipeline.telemetry.compare.measures import FIGURES, OF_THE_RUN, RUN_FIGURES, STEP_FIGURES
from pipeline.telemetry.report.words import number

DRIFT = "drift"
_FORM = re.compile(
    r"(?:(?P<step>[^\s<>=,]+)\.)?(?P<figure>[A-Za-z]\w*)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<percent>%?)"
)
_EXAMPLE = "as in --fail-if 'rate<-5%, faces.p95>+10%, drift>0.01'"
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What must not be."""

    text: str
    step: str | None  # None: every step
    figure: str
    sign: str
    threshold: float  # a share where it is relative: -0.05 is 5 % less
    relative: bool

    def holds(self, found: float) -> bool:
        """Whether it is so."""
        return _SIGNS[self.sign](found, self.threshold)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One condition on one step."""

    failed: bool
    words: str
    unclear: bool = False  # beyond the threshold, and no more than chance may do: neither a failure nor a pass

    @property
    def outcome(self) -> str:
        """In words."""
        return "Failed" if self.failed else "Could not tell" if self.unclear else "Passed"


def parse(text: str) -> list[Condition]:
    """The conditions in `a, b, c`.

    Raises:
        ConfigError: one is of no such form, or of a figure that there is not.
    """
    return [_condition(part.strip()) for part in text.split(",")]


def _condition(text: str) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigError(f"--fail-if: {text!r} is no condition; write [STEP.]FIGURE<NUMBER, {_EXAMPLE}.")
    step, figure, relative = match["step"], match["figure"], bool(match["percent"])
    known = {*FIGURES, DRIFT}
    if figure not in known and step is None:
        raise ConfigError(f"--fail-if: {text!r}: there is no figure {figure!r}.{did_you_mean(figure, known)}")
    if relative and match["number"][0] not in "+-" and float(match["number"]):
        raise ConfigError(f"--fail-if: {text!r}: say which way, +{match['number']}% or -{match['number']}%.")
    if relative and figure == DRIFT:
        raise ConfigError(f"--fail-if: {text!r}: drift is 0 where nothing changed, so give a number, as in drift>0.01.")
    threshold = float(match["number"]) / (100 if relative else 1)
    return Condition(text=text, step=step, figure=figure, sign=match["sign"], threshold=threshold, relative=relative)


def judge(conditions: Iterable[Condition], pair: Pair) -> list[Finding]:
    """Each condition on each step that it is for.

    Raises:
        ConfigError: a step is unknown, or a figure was not measured.
    """
    return [_finding(one, step, pair) for one in conditions for step in _steps(one, pair)]


def _steps(condition: Condition, pair: Pair) -> Sequence[str]:
    """What it is for; a new step of the second side is for none, as there is nothing to hold it against."""
    known = [one.step for one in pair.work]
    if condition.figure in RUN_FIGURES:
        if condition.step not in (None, OF_THE_RUN):
            raise ConfigError(f"--fail-if: {condition.text!r}: {condition.figure} is of the whole run, not of a step.")
        return [OF_THE_RUN]
    if condition.step is not None:
        if condition.step not in known:
            raise ConfigError(
                f"--fail-if: {condition.text!r}: there is no step {condition.step!r}."
                f"{did_you_mean(condition.step, known)}"
            )
        return [condition.step]
    wanted = [one.step for one in pair.work if one.verdict != f"only in {pair.second.name}"]
    return [step for step in wanted if not (condition.figure == DRIFT and step == DECODE)]  # it has no results


def _finding(condition: Condition, step: str, pair: Pair) -> Finding:
    if condition.figure not in FIGURES:
        return _on_results(condition, step, pair)
    line = next((one for one in pair.lines.get(step, ()) if one.name == condition.figure), None)
    if line is None or line.second is None or (condition.relative and line.first is None):
        raise _not_measured(condition, step, pair)
    found = _change(line) if condition.relative else line.second
    beyond = condition.holds(found)
    noise = beyond and condition.relative and line.interval is not None and line.interval.holds_zero
    return Finding(failed=beyond and not noise, words=_words(condition, line, pair, noise=noise), unclear=noise)


def _change(line: Line) -> float:
    """Also from nothing: to nothing is no change, to something one without end."""
    if line.change is not None:
        return line.change
    before, after = line.first or 0.0, line.second or 0.0
    if before:
        return after / before - 1
    return math.inf if after > 0 else 0.0


def _on_results(condition: Condition, step: str, pair: Pair) -> Finding:
    drift = pair.drift.get(step)
    names = {DRIFT, *(drift.figures if drift else ())}
    if drift is not None and condition.figure not in names:
        known = did_you_mean(condition.figure, {*names, *STEP_FIGURES})
        raise ConfigError(f"--fail-if: {condition.text!r}: {step} has no figure {condition.figure!r}.{known}")
    if drift is None or drift.value is None:
        raise _not_measured(condition, step, pair)
    if condition.relative:
        raise ConfigError(f"--fail-if: {condition.text!r}: give a number, not a percentage; it compares both sides.")
    found = drift.value if condition.figure == DRIFT else drift.figures[condition.figure]
    said = f"{condition.text}: {condition.figure} of {step} is {number(found)}, over {drift.rows:,} rows in both"
    return Finding(failed=condition.holds(found), words=f"{said}.")


def _words(condition: Condition, line: Line, pair: Pair, *, noise: bool) -> str:
    sides = f"{pair.first.name} {_value(line.first)}, {pair.second.name} {_value(line.second)}"
    unit = f" {line.unit}" if line.unit else ""
    change = "" if line.first is None else ", from none" if math.isinf(by := _change(line)) else f", {100 * by:+.1f} %"
    said = f"{condition.text}: {line.name} of {line.step}: {sides}{unit}{change}"
    if line.interval is not None:
        said += f" (interval {100 * line.interval.low:+.1f} to {100 * line.interval.high:+.1f} %"
        said += ", which holds 0: take more files, or repeat runs)" if noise else ")"
    elif line.why_unknown:
        said += f" (no interval: {line.why_unknown})"
    return f"{said}."


def _value(found: float | None) -> str:
    return "not measured" if found is None else number(found)


def _not_measured(condition: Condition, step: str, pair: Pair) -> ConfigError:
    sides = pair.first, pair.second
    missing = [side.name for side in sides if condition.figure not in side.steps.get(step, {})]
    where = "as no rows of both were compared" if condition.figure not in FIGURES else f"in {' and '.join(missing)}"
    said = f"--fail-if: {condition.text!r}: {condition.figure} of {step} was not measured {where}"
    parts = [run.path for side in sides if side.name in missing for run in side.runs if run.of_others]
    said += f", as other runs made part of {', '.join(parts)}" if parts else ""
    name_them = f"; name the steps it is for, as in STEP.{condition.text}"
    return ConfigError(f"{said}{'' if condition.step or step == OF_THE_RUN else name_them}.")
