"""Whether two runs did the same work: a figure of another model, or of other files, says nothing about speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.failure import DECODE
from pipeline.reasons import differences
from pipeline.telemetry.compare.runs import Run
from pipeline.telemetry.report.words import count

SAME, DIFFERENT, UNKNOWN = "same", "different", "not known"
_MOST_NAMED = 200  # of files that differ; how many there are is always said


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """One step in two runs."""

    step: str
    verdict: str  # same, different, not known, only in A, ...
    why: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Files:
    """The input of two runs."""

    same: int  # in both, of one size, and of one content where that is known
    changed: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    names: tuple[str, str]

    @property
    def differ(self) -> bool:
        """Whether any has changed or is in one run only."""
        return bool(self.changed or self.only_first or self.only_second)

    @property
    def words(self) -> str:
        """A sentence."""
        first, second = self.names
        if not self.differ:
            return f"The same {count(self.same, 'file')}." if self.same else "Neither run knows its files."
        said = [f"{self.same:,} {'file is' if self.same == 1 else 'files are'} the same in both"]
        said += [f"{len(self.changed):,} {'has' if len(self.changed) == 1 else 'have'} changed"] if self.changed else []
        only = [(name, len(found)) for name, found in self._only(first, second) if found]
        said += [f"{number:,} {_are(number)} only in {name}" for name, number in only]
        return f"{', '.join(said)}."

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        """Files that differ, and how; the first of each kind."""
        kinds = (("changed", self.changed), *((f"only in {name}", found) for name, found in self._only(*self.names)))
        return tuple((how, name) for how, found in kinds for name in found[:_MOST_NAMED])

    def _only(self, first: str, second: str) -> Sequence[tuple[str, tuple[str, ...]]]:
        return (first, self.only_first), (second, self.only_second)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def compare_work(first: Run, second: Run, names: tuple[str, str]) -> list[StepWork]:
    """Step by step, in the order of the first run; what only the second has comes last."""
    return [_step(step, first, second, names) for step in {**steps_of(first), **steps_of(second)}]


def steps_of(run: Run) -> dict[str, None]:
    """Names of a run's steps, in order; a step without a fingerprint is one too."""
    return dict.fromkeys([*run.fingerprints, *run.part("steps"), *run.part("figures")])


def _step(step: str, first: Run, second: Run, names: tuple[str, str]) -> StepWork:
    there = [step in steps_of(run) for run in (first, second)]
    if not all(there):
        return StepWork(step=step, verdict=f"only in {names[there.index(True)]}")
    marks = [run.fingerprints.get(step) for run in (first, second)]
    if None in marks:
        return StepWork(step=step, verdict=UNKNOWN, why=("a fingerprint is missing",))
    if marks[0] == marks[1]:
        return StepWork(step=step, verdict=SAME)
    facts = first.facts(step), second.facts(step)
    before, now = facts if None not in facts else (first.told(step), second.told(step))
    said = differences(before or {}, now or {}, "decode rule" if step == DECODE else "setting")
    return StepWork(step=step, verdict=DIFFERENT, why=tuple(said) or ("what differs was not written down",))


def compare_files(first: Run, second: Run, names: tuple[str, str]) -> Files:
    """Their input, by media_id and size, and by digest where both know it."""
    a, b = first.media, second.media
    common = [name for name in a if name in b]
    changed = sorted(name for name in common if not _equal(a[name], b[name]))
    return Files(
        same=len(common) - len(changed),
        changed=tuple(changed),
        only_first=tuple(sorted(a.keys() - b.keys())),
        only_second=tuple(sorted(b.keys() - a.keys())),
        names=names,
    )


def _equal(a: tuple[int, str], b: tuple[int, str]) -> bool:
    return a[0] == b[0] and (a[1] == b[1] or not (a[1] and b[1]))
