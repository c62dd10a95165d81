"""How many rows may fail before a run stops: most mistakes show in the first thousand rows of a million."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.errors import BudgetError, ConfigError
from pipeline.sample import Sample

_ENOUGH = 200  # rows before a share means something: 1 % of fewer is one row by bad luck
_TOP = 3  # reasons that are told
_FORM = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<percent>\s*%)?")


@dataclass(frozen=True)
class Budget:
    """A number of failed rows, or their share of those that were seen."""

    most: float
    share: bool = False

    @classmethod
    def read(cls, text: str) -> Budget:
        """A budget from words such as `100` or `1%`.

        Raises:
            ConfigError: it is of neither form.
        """
        found = _FORM.fullmatch(text.strip())
        value = float(found["number"]) if found else -1.0
        if found is None or (found["percent"] and value > 100) or (not found["percent"] and value % 1):
            raise ConfigError(f"max_errors {text!r} is neither a number of rows, as 100, nor a share of them, as 1%.")
        return cls(value / 100 if found["percent"] else value, share=bool(found["percent"]))

    def spent(self, failures: int, seen: int) -> bool:
        """Whether there are more failures than it allows; of few rows no share is taken."""
        return failures > self.most * max(seen, _ENOUGH) if self.share else failures > self.most

    def __str__(self) -> str:
        return f"{100 * self.most:g} %" if self.share else f"{self.most:g}"


@dataclass
class _Spent:
    seen: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass
class Budgets:
    """Each step's budget, and what it has spent in this run."""

    allowed: Mapping[str, Budget] = field(default_factory=dict)  # by step; a step without one may fail on every row
    _spent: dict[str, _Spent] = field(default_factory=dict)

    def spend(self, sample: Sample) -> BudgetError | None:
        """Count what a step did with a packet; the end of the run where it failed too often."""
        budget = self.allowed.get(sample.step)
        if budget is None:
            return None
        spent = self._spent.setdefault(sample.step, _Spent())
        spent.seen += sample.rows
        spent.reasons.update(sample.reasons)
        total = spent.reasons.total()
        if not budget.spent(total, spent.seen):
            return None
        top = "; ".join(f"{count} x {reason}" for reason, count in spent.reasons.most_common(_TOP))
        more = len(spent.reasons) - _TOP
        return BudgetError(
            f"Step {sample.step!r} failed on {total} of {max(total, spent.seen)} rows, and its `max_errors` is "
            f"{budget}: {top}{f'; {more} more reasons' if more > 0 else ''}. What is done is kept: mend the cause and "
            "run the same command again, or raise `max_errors`."
        )
