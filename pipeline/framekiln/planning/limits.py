"""Limits of figures: one syntax for `--target`, for a profile's targets, and for `--fail-if`."""

import operator
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from framekiln.contract.errors import ConfigError
from framekiln.planning.figures import RECORDED, RECORDED_OF_RUN

_FORM = re.compile(
    r"(?:(?P<step>[^\s<>=,]+)\.)?(?P<figure>[A-Za-z]\w*)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<percent>%?)"
)
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TAIL = {"p50": 1.0, "p95": 1.2, "p99": 1.5}  # limits in frames' periods: half of the frames are in time, few are late
SETS = {
    name: ",".join(f"{figure}<{round(1000 / rate * by, 2):g}" for figure, by in _TAIL.items())
    for name, rate in {"1080p60": 60, "4k30": 30, "stereo60": 60}.items()
}
"""Targets by the names of sets; 60 frames a second give p50<16.67, p95<20, p99<25."""


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


def parse_targets(text: str, figures: Collection[str], of_run: Collection[str] | None = None) -> list[Limit]:
    """Return the targets in a list such as `p50<16.67, faces.p95<20`; a word may name a set.

    `of_run`: further figures without a step; None where there are no steps. Raises ConfigError: a word has another
    form, or names an unknown figure.
    """
    targets: list[Limit] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        if word in SETS:
            targets += parse_targets(SETS[word], figures, of_run)
            continue
        limit = read_limit(word.replace(" ", ""))
        if limit is None or not _is_target(limit, figures, of_run):
            form = "FIGURE<NUMBER" if of_run is None else "[STEP.]FIGURE<NUMBER"
            known = ", ".join(dict.fromkeys([*figures, *(of_run or ())]))
            problem = f"{word!r} is no target; write {form} with one of {known}, or {', '.join(SETS)}."
            raise ConfigError(problem, code="FK-TARGET")
        targets.append(limit)
    return targets


def run_targets(texts: Iterable[str]) -> list[Limit]:
    """Return the targets of a run. Raises ConfigError: a word has another form, or names an unknown figure."""
    return parse_targets(",".join(texts), RECORDED, RECORDED_OF_RUN)


def _is_target(limit: Limit, figures: Collection[str], of_run: Collection[str] | None) -> bool:
    is_known = limit.figure in figures or (limit.step is None and limit.figure in (of_run or ()))
    is_possible = limit.sign[0] == ">" or limit.number > 0  # no figure is under 0
    return is_known and is_possible and not limit.relative and (limit.step is None or of_run is not None)
