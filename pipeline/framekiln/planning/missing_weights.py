"""Steps with missing weights: the run ends, continues without them, or uses random weights.

Skipping a step also skips every step that reads its results; the reason is recorded for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from framekiln.contract.errors import WeightsError
from framekiln.planning.lineage import Producers, Stages, in_order, needs, with_producers
from framekiln.planning.plan_options import PlanOptions
from framekiln.weights.lockfile import WeightsEntry
from framekiln.weights.messages import check_licences, explain_missing, fetch_command
from framekiln.weights.resolver import find_weights, with_stand_ins


@dataclass(frozen=True, kw_only=True)
class WeightsStatus:
    """The weights of all steps: the files that are here, and the problems with the others."""

    found: Mapping[str, Path]
    problems: Mapping[str, str]  # why weights are missing, by their name
    lock: Mapping[str, WeightsEntry]  # by name of weights
    left_out: Mapping[str, str] = field(default_factory=dict)  # steps that skipping leaves out, in order, and why
    stand_ins: tuple[str, ...] = ()  # sentences on files that are used in the place of missing ones

    @property
    def command(self) -> str:
        """The command that fetches the missing weights; empty if there is none."""
        return fetch_command(self.lock[name] for name in self.problems)

    @property
    def missing_mb(self) -> float:
        """Size of the missing weights, in MB."""
        return sum(self.lock[name].bytes for name in self.problems) / 1e6

    def of(self, names: Iterable[str]) -> dict[str, Path]:
        """Return the files that are here, by the names of weights."""
        return {name: self.found[name] for name in names if name in self.found}


def available_steps(
    stages: Stages, producers: Producers, options: PlanOptions, lock: Mapping[str, WeightsEntry], *, check: bool
) -> tuple[list[str], WeightsStatus]:
    """Return the steps that run, in order, and their weights; without `check` missing ones raise nothing.

    Raises:
        ConfigError: the lockfile has no such entry, or steps read each other in a circle.
        WeightsError: weights are missing, their licence was not accepted, or no step is left.
    """
    wanted = options.stages or tuple(stages)
    order = in_order(with_producers(wanted, stages, producers), stages, producers)
    status = _find_status(order, stages, producers, options, lock)
    if options.missing_weights != "fail":  # steps that only skipped ones read do not run either
        rest = [name for name in wanted if name not in status.left_out]
        order = in_order(with_producers(rest, stages, producers), stages, producers)
    if check:
        _check(order, stages, status, options)
    return order, status


def _find_status(
    order: Sequence[str], stages: Stages, producers: Producers, options: PlanOptions, lock: Mapping[str, WeightsEntry]
) -> WeightsStatus:
    names = [weight for step in order for weight in stages[step].weights]
    lock, stand_ins = with_stand_ins(names, lock, weights_dir=options.weights_dir)
    found, problems = find_weights(names, weights_dir=options.weights_dir, lock=lock)
    random = options.missing_weights == "dummy"
    left_out: dict[str, str] = {}
    for step in order:
        missing = [problems[name].rstrip(".") for name in stages[step].weights if name in problems]
        unavailable = [(key, producers[key]) for key in needs(stages[step]) if producers.get(key) in left_out]
        if missing and not (random and stages[step].dummy_weights):
            left_out[step] = "; ".join(missing) + (", and it has no random weights to run on" if random else "")
        elif unavailable:
            left_out[step] = "it reads " + ", ".join(f"{key!r} of {producer!r}" for key, producer in unavailable)
    return WeightsStatus(found=found, problems=problems, lock=lock, left_out=left_out, stand_ins=stand_ins)


def _check(order: Sequence[str], stages: Stages, status: WeightsStatus, options: PlanOptions) -> None:
    used = [name for step in order for name in stages[step].weights]
    if options.missing_weights == "fail" and any(name in status.problems for name in used):
        problems = {status.lock[name]: problem for name, problem in status.problems.items()}
        message = explain_missing(problems)
        raise WeightsError(
            f"{message}\nTo continue without {', '.join(status.left_out)}: --missing-weights skip",
            code="FK-WEIGHTS-MISSING",
        )
    if not order:
        reasons = "; ".join(f"{step}: {reason}" for step, reason in status.left_out.items())
        fix = f"; get them by `{status.command}`" if status.command else ""
        raise WeightsError(
            f"No step is left to run without the missing weights ({reasons}){fix}.", code="FK-NO-STEPS-LEFT"
        )
    entries = [status.lock[name] for name in dict.fromkeys(used) if name in status.found]
    check_licences(entries, accepted=options.accept_license)
