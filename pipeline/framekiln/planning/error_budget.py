"""The number of rows that may fail before a run stops. Most mistakes show in the first thousand rows of a million."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from framekiln.contract.errors import BudgetError, ConfigError

_ENOUGH = 200  # a share is taken of at least so many rows: 1 % of fewer is one unlucky row
_TOP = 3  # reasons in the message
_FORM = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<percent>\s*%)?")


@dataclass(frozen=True)
class Budget:
    """A limit on failed rows: a number, or a share of the rows seen."""

    most: float
    share: bool = False

    @classmethod
    def read(cls, text: str) -> "Budget":
        """Parse a budget such as `100` or `1%`. Raises ConfigError if the text has neither form."""
        match = _FORM.fullmatch(text.strip())
        value = float(match["number"]) if match else -1.0
        if match is None or (match["percent"] and value > 100) or (not match["percent"] and value % 1):
            raise ConfigError(
                f"max_errors {text!r} is neither a number of rows (100) nor a share (1%); write one of these.",
                code="FK-MAX-ERRORS-FORM",
            )
        return cls(value / 100 if match["percent"] else value, share=bool(match["percent"]))

    def exceeded(self, failures: int, seen: int) -> bool:
        return failures > self.most * max(seen, _ENOUGH) if self.share else failures > self.most

    def __str__(self) -> str:
        return f"{100 * self.most:g} %" if self.share else f"{self.most:g}"


@dataclass
class Budgets:
    """The budgets of all steps, and their failures in this run."""

    allowed: Mapping[str, Budget] = field(default_factory=dict)  # by step; without one, every row may fail
    _seen: Counter[str] = field(default_factory=Counter)  # rows
    _reasons: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # reasons of failures

    def spend(self, step: str, rows: int, reasons: Mapping[str, int]) -> BudgetError | None:
        """Count a packet's rows, and its failures by reason; return the error that ends the run at too many."""
        budget = self.allowed.get(step)
        if budget is None:
            return None
        self._seen[step] += rows
        self._reasons[step].update(reasons)
        seen, causes = self._seen[step], self._reasons[step]
        total = causes.total()
        if not budget.exceeded(total, seen):
            return None
        top = "; ".join(f"{count} x {reason}" for reason, count in causes.most_common(_TOP))
        more = len(causes) - _TOP
        return BudgetError(
            f"Step {step!r} failed on {total} of {max(total, seen)} rows, and its `max_errors` is "
            f"{budget}: {top}{f'; {more} more reasons' if more > 0 else ''}. What is done is kept: correct the cause "
            "and run the same command again, or raise `max_errors`.",
            code="FK-TOO-MANY-ERRORS",
        )
