"""Conditions that fail a comparison, for CI: `rate<-5%, faces.p95>+10%, drift>0.01`.

    conditions = condition ("," condition)*
    condition  = [step "."] figure ("<" | "<=" | ">" | ">=") threshold
    threshold  = ("+" | "-") number "%"     a change against the base; the sign of 0% is optional
               | number                     the other side's value itself, in the figure's unit

A condition without a step applies to every step. A figure that was not measured is an error.
"""

import math
from collections.abc import Collection, Iterable, Sequence

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.row_errors import DECODE
from framekiln.planning.figures import FIGURES, OF_THE_RUN, RUN_FIGURES, STEP_FIGURES
from framekiln.planning.limits import Limit, read_limit
from framekiln.profiling.targets import Judgement
from framekiln.reporting.compare.comparison import FigurePair, Pair
from framekiln.reporting.compare.tables import NOT_MEASURED, interval_text
from framekiln.reporting.kit.texts import number

DRIFT = "drift"
_EXAMPLE = "as in --fail-if 'rate<-5%, faces.p95>+10%, drift>0.01'"


def parse(text: str, known: Collection[str] = (*FIGURES, DRIFT)) -> list[Limit]:
    """Parse conditions separated by commas; `known`: figures that need no step.

    Raises ConfigError: a condition has another form, or names an unknown figure.
    """
    conditions = []
    for part in (part.strip() for part in text.split(",")):
        if (condition := read_limit(part)) is None:
            problem = f"--fail-if: {part!r} is not a condition; write [STEP.]FIGURE<NUMBER, {_EXAMPLE}."
            raise ConfigError(problem, code="FK-GATE-FORM")
        figure, percent = condition.figure, f"{100 * condition.number:g}%"
        if figure not in known and condition.step is None:
            problem = f"there is no figure {figure!r}.{did_you_mean(figure, known)}"
            raise _make_error(part, problem, code="FK-GATE-FIGURE")
        if condition.relative and condition.number > 0 and "+" not in part.rpartition(condition.sign)[2]:
            problem = f"the direction is missing; write +{percent} or -{percent}."
            raise _make_error(part, problem, code="FK-GATE-DIRECTION")
        if condition.relative and figure == DRIFT:
            problem = "drift is 0 where nothing changed; give a number, as in drift>0.01."
            raise _make_error(part, problem, code="FK-GATE-PERCENT")
        conditions.append(condition)
    return conditions


def _make_error(condition: str, problem: str, *, code: str) -> ConfigError:
    return ConfigError(f"--fail-if: {condition!r}: {problem}", code=code)


def judge(conditions: Iterable[Limit], pair: Pair) -> list[Judgement]:
    """Evaluate each condition on each step that it applies to.

    Raises ConfigError: a step is unknown, or a figure was not measured.
    """
    found, names = [], (pair.first.name, pair.second.name)
    for condition, step in ((each, step) for each in conditions for step in _list_steps(each, pair)):
        if condition.figure not in FIGURES:
            found.append(_judge_drift(condition, step, pair))
            continue
        figure = next((one for one in pair.figures.get(step, ()) if one.name == condition.figure), None)
        if figure is None or figure.second is None or (condition.relative and figure.first is None):
            raise _not_measured(condition, step, pair)
        found.append(judge_figure(condition, figure, names))
    return found


def _list_steps(condition: Limit, pair: Pair) -> Sequence[str]:
    """Return the steps of a condition; a new step of the second side has no base and is left out."""
    known = [compared.step for compared in pair.work]
    if condition.figure in RUN_FIGURES:
        if condition.step not in (None, OF_THE_RUN):
            problem = f"{condition.figure} is a figure of the whole run, not of a step."
            raise _make_error(condition.text, problem, code="FK-GATE-RUN-FIGURE")
        return [OF_THE_RUN]
    if condition.step is not None:
        if condition.step not in known:
            problem = f"there is no step {condition.step!r}.{did_you_mean(condition.step, known)}"
            raise _make_error(condition.text, problem, code="FK-UNKNOWN-STEP")
        return [condition.step]
    steps = [compared.step for compared in pair.work if compared.verdict != f"only in {pair.second.name}"]
    return [step for step in steps if not (condition.figure == DRIFT and step == DECODE)]  # decoding has no results


def judge_figure(condition: Limit, figure: FigurePair, names: tuple[str, str]) -> Judgement:
    """Evaluate a condition on a figure that was measured.

    A relative change is inconclusive if its interval contains 0. Without an interval the number alone decides.
    """
    before, after, change = figure.first or 0.0, figure.second or 0.0, figure.change
    if change is None:  # from zero it is infinite, or none if both are zero
        change = after / before - 1 if before else math.inf if after > 0 else 0.0
    beyond = condition.holds(change if condition.relative else after)
    noise = figure.interval is not None and figure.interval.contains_zero
    unclear = beyond and condition.relative and noise
    values = [NOT_MEASURED if value is None else number(value) for value in (figure.first, figure.second)]
    sides = ", ".join(map(" ".join, zip(names, values, strict=True)))
    sentence = f"{condition.text}: {figure.name} of {figure.step}: {sides} {figure.unit}".rstrip()
    if figure.first is not None:
        sentence += ", from none" if math.isinf(change) else f", {100 * change:+.1f} %"
    if figure.interval is not None:
        sentence += f" (interval {interval_text(figure)}"
        sentence += ", which contains 0: take more files, or repeat runs)" if unclear and noise else ")"
    elif figure.why_unknown:
        sentence += f" (no interval: {figure.why_unknown})"
    return Judgement(failed=beyond and not unclear, sentence=f"{sentence}.", unclear=unclear)


def _judge_drift(condition: Limit, step: str, pair: Pair) -> Judgement:
    """Evaluate a condition on drift, or on a figure of a stage's own comparison."""
    drift = pair.drift.get(step)
    names = {DRIFT, *(drift.figures if drift else ())}
    if drift is not None and condition.figure not in names:
        hint = did_you_mean(condition.figure, {*names, *STEP_FIGURES})
        raise _make_error(condition.text, f"{step} has no figure {condition.figure!r}.{hint}", code="FK-GATE-FIGURE")
    if drift is None or drift.value is None:
        raise _not_measured(condition, step, pair)
    if condition.relative:
        problem = f"{condition.figure} compares both sides already; give a number, not a percentage."
        raise _make_error(condition.text, problem, code="FK-GATE-PERCENT")
    value = drift.value if condition.figure == DRIFT else drift.figures[condition.figure]
    result = f"{condition.text}: {condition.figure} of {step} is {number(value)}, over {drift.rows:,} rows in both"
    return Judgement(failed=condition.holds(value), sentence=f"{result}.")


def _not_measured(condition: Limit, step: str, pair: Pair) -> ConfigError:
    sides = pair.first, pair.second
    missing = [side.name for side in sides if condition.figure not in side.values.get(step, {})]
    where = "as no row of both sides was compared" if condition.figure not in FIGURES else f"in {' and '.join(missing)}"
    problem = f"{condition.figure} of {step} was not measured {where}"
    absent = sides if condition.figure in FIGURES else ()
    partial = [run.path for side in absent if side.name in missing for run in side.runs if run.partial_steps]
    problem += f", as other runs made part of {', '.join(partial)}" if partial else ""
    cut = [run.path for side in absent if side.name in missing for run in side.runs if run.cut]
    problem += f", as {', '.join(cut)} is not finished" if cut else ""
    if not condition.step and step != OF_THE_RUN:
        problem += f"; name the steps it applies to, as in STEP.{condition.text}"
    return _make_error(condition.text, f"{problem}.", code="FK-GATE-NOT-MEASURED")
