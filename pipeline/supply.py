"""What becomes of a step whose weights are not at hand: the run ends, or goes on without it, or with random weights.

Skipping takes along every step that needs what a skipped one makes, and says of each why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline import weights as weights_lock
from pipeline.errors import WeightsError
from pipeline.lineage import Makers, Stages, needs

Policy = Literal["fail", "skip", "dummy"]


@dataclass(frozen=True, kw_only=True)
class Supply:
    """The weights of steps, as far as they are at hand."""

    found: Mapping[str, Path]
    problems: Mapping[str, str]  # by name of weights, why they are not at hand
    left_out: Mapping[str, str] = field(default_factory=dict)  # what skipping leaves out, in order, and why

    @property
    def command(self) -> str:
        """What gets the missing ones; empty where nothing does."""
        lock = weights_lock.default_lock()
        return weights_lock.fetch_command(lock[name] for name in self.problems)

    def of(self, names: Iterable[str]) -> dict[str, Path]:
        """Those of a step's weights that are at hand."""
        return {name: self.found[name] for name in names if name in self.found}


def take_stock(
    order: Sequence[str], stages: Stages, makers: Makers, weights_dir: Path | None, *, random: bool = False
) -> Supply:
    """Look for the weights of all steps.

    Args:
        order: steps, producers before readers.
        stages: by step.
        makers: by column or table, the step that makes it.
        weights_dir: a folder to look in before the others.
        random: whether a stage that can takes random weights for those that are not at hand.

    Raises:
        ConfigError: the lockfile has no such entry.
        WeightsError: a folder that somebody named does not exist.
    """
    names = [weight for step in order for weight in stages[step].weights]
    found, problems = weights_lock.search(names, weights_dir=weights_dir)
    left_out: dict[str, str] = {}
    for step in order:
        lacks = [problems[name].rstrip(".") for name in stages[step].weights if name in problems]
        lost = [(made, makers[made]) for made in needs(stages[step]) if makers.get(made) in left_out]
        if lacks and not (random and stages[step].dummy_weights):
            left_out[step] = "; ".join(lacks) + (", and it has no random weights to run on" if random else "")
        elif lost:
            left_out[step] = "it reads " + ", ".join(f"{made!r} of {maker!r}" for made, maker in lost)
    return Supply(found=found, problems=problems, left_out=left_out)


def refuse_missing(supply: Supply, order: Sequence[str], stages: Stages, policy: Policy) -> None:
    """Stop where steps lack weights that they cannot be without.

    Raises:
        WeightsError: some do; one message tells all.
    """
    if policy == "fail" and any(name in supply.problems for step in order for name in stages[step].weights):
        lock = weights_lock.default_lock()
        said = weights_lock.explain({lock[k]: v for k, v in supply.problems.items()}, weights_lock.cache_folder())
        raise WeightsError(f"{said}\nTo go on without {', '.join(supply.left_out)}: --missing-weights skip")


def refuse_unaccepted(names: Iterable[str], *, accepted: bool) -> None:
    """Stop before weights are used whose licence nobody accepted.

    Raises:
        WeightsError: some ask for it.
    """
    lock = weights_lock.default_lock()
    weights_lock.refuse_unaccepted([lock[name] for name in dict.fromkeys(names)], accepted=accepted)
