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
from framekiln.profiling.targets import Judgement, Limit, read_limit
from framekiln.reporting.compare.comparison import FigurePair, Pair
from framekiln.reporting.compare.facts import FIGURES, OF_THE_RUN, RUN_FIGURES, STEP_FIGURES
from framekiln.reporting.compare.tables import interval_text, value_text
from framekiln.reporting.kit.texts import number

DRIFT = "drift"
_EXAMPLE = "as in --fail-if 'rate<-5%, faces.p95>+10%, drift>0.01'"


def parse(text: str, known: Collection[str] = (*FIGURES, DRIFT)) -> list[Limit]:
    """Parse conditions separated by commas; `known`: figures that need no step.

    Raises ConfigError: a condition has another form, or names an unknown figure.
    """
    return [_parse_condition(part.strip(), known) for part in text.split(",")]


def _parse_condition(text: str, known: Collection[str]) -> Limit:
    if (condition := read_limit(text)) is None:
        raise ConfigError(
            f"--fail-if: {text!r} is not a condition; write [STEP.]FIGURE<NUMBER, {_EXAMPLE}.", code="FK-GATE-FORM"
        )
    figure, percent = condition.figure, f"{100 * condition.number:g}%"
    if figure not in known and condition.step is None:
        raise _make_error(text, f"there is no figure {figure!r}.{did_you_mean(figure, known)}", code="FK-GATE-FIGURE")
    if condition.relative and condition.number > 0 and "+" not in text.rpartition(condition.sign)[2]:
        problem = f"the direction is missing; write +{percent} or -{percent}."
        raise _make_error(text, problem, code="FK-GATE-DIRECTION")
    if condition.relative and figure == DRIFT:
        problem = "drift is 0 where nothing changed; give a number, as in drift>0.01."
        raise _make_error(text, problem, code="FK-GATE-PERCENT")
    return condition


def _make_error(condition: str, problem: str, *, code: str) -> ConfigError:
    return ConfigError(f"--fail-if: {condition!r}: {problem}", code=code)


def judge(conditions: Iterable[Limit], pair: Pair) -> list[Judgement]:
    """Evaluate each condition on each step that it applies to.

    Raises ConfigError: a step is unknown, or a figure was not measured.
    """
    return [_judge_step(condition, step, pair) for condition in conditions for step in _list_steps(condition, pair)]


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


def _judge_step(condition: Limit, step: str, pair: Pair) -> Judgement:
    if condition.figure not in FIGURES:
        return _judge_drift(condition, step, pair)
    figure = next((candidate for candidate in pair.figures.get(step, ()) if candidate.name == condition.figure), None)
    if figure is None or figure.second is None or (condition.relative and figure.first is None):
        raise _not_measured(condition, step, pair)
    return judge_figure(condition, figure, (pair.first.name, pair.second.name))


def judge_figure(
    condition: Limit, figure: FigurePair, names: tuple[str, str], *, needs_interval: bool = False
) -> Judgement:
    """Evaluate a condition on a figure that was measured.

    A relative change is inconclusive if its interval contains 0; with `needs_interval` also if one is missing.
    """
    beyond = condition.holds(_change(figure) if condition.relative else figure.second or 0.0)
    noise = figure.interval is not None and figure.interval.contains_zero
    missing = needs_interval and figure.interval is None and bool(figure.why_unknown)
    unclear = beyond and condition.relative and (noise or missing)
    sentence = _describe(condition, figure, names, noise=unclear and noise)
    return Judgement(failed=beyond and not unclear, sentence=sentence, unclear=unclear)


def _change(figure: FigurePair) -> float:
    """Return the change as a share; from zero it is infinite, or none if both are zero."""
    if figure.change is not None:
        return figure.change
    before, after = figure.first or 0.0, figure.second or 0.0
    if before:
        return after / before - 1
    return math.inf if after > 0 else 0.0


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


def _describe(condition: Limit, figure: FigurePair, names: tuple[str, str], *, noise: bool) -> str:
    sides = f"{names[0]} {value_text(figure.first)}, {names[1]} {value_text(figure.second)}"
    unit = f" {figure.unit}" if figure.unit else ""
    sentence = f"{condition.text}: {figure.name} of {figure.step}: {sides}{unit}"
    if figure.first is not None:
        share = _change(figure)
        sentence += ", from none" if math.isinf(share) else f", {100 * share:+.1f} %"
    if figure.interval is not None:
        sentence += f" (interval {interval_text(figure)}"
        sentence += ", which contains 0: take more files, or repeat runs)" if noise else ")"
    elif figure.why_unknown:
        sentence += f" (no interval: {figure.why_unknown})"
    return f"{sentence}."


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
