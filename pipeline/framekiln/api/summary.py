"""A run in a few numbers, and its profile, from the records in its output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from framekiln.contract.output_names import RUN_RECORD
from framekiln.output.object_store import Store
from framekiln.planning.limits import Limit
from framekiln.profiling.run_profile import RunProfile, choose_run, missing_rows, profile_of, stored_rooms, targets_of
from framekiln.reporting.kit.texts import count, duration
from framekiln.reporting.plan_facts import fetching, rebuild
from framekiln.runtime.run.progress import Unfinished
from framekiln.runtime.run.record import read_run_record

_SAME = ("files", "frames", "errors", "passed_over", "seconds", "fetch", "fetch_mb")  # keys of run.json


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Results, extent and gaps of the run that wrote the tables."""

    files: int  # files of the input
    frames: int  # rows of the table `frames`
    errors: Mapping[str, int]  # rows of the table `errors` by kind
    passed_over: int  # files that are no media
    seconds: float
    started: datetime  # UTC
    unfinished: str  # a sentence on the extent of an unfinished run; empty for a finished one
    left_out: Mapping[str, str]  # steps that did not run, and why
    fetch: str  # the command that fetches missing weights; empty if none are missing
    fetch_mb: float  # MB that it downloads
    random: tuple[str, ...]  # steps that ran with random weights: their results are meaningless

    @classmethod
    def of(cls, record: Mapping[str, Any], cut: Unfinished | None) -> Self:
        """Return the summary of a run.json; `cut` describes an unfinished run."""
        return cls(
            **{name: record[name] for name in _SAME},
            started=datetime.fromisoformat(record["started"]),
            unfinished="" if cut is None else cut.sentence,
            left_out=record["skipped"],
            random=tuple(record["dummies"]),
        )

    @property
    def finished(self) -> bool:
        """True if the last run finished, so that all tables are complete."""
        return not self.unfinished

    def lines(self) -> list[str]:
        """Return the summary as sentences."""
        errors = sum(self.errors.values())
        kinds = f" ({', '.join(f'{number} {kind}' for kind, number in self.errors.items())})" if errors else ""
        found = f"{count(self.files, 'file', zero='0')}, {count(self.frames, 'frame', zero='0')}"
        texts = [f"{found}, {count(errors, 'error', zero='no')}{kinds}; {duration(self.seconds)}."]
        texts += [f"Unfinished: {self.unfinished}"] if self.unfinished else []
        if self.passed_over:
            texts.append(f"{count(self.passed_over, 'file')} passed over, not media.")
        texts += [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        texts += [f"{fetching(self.fetch_mb)}: {self.fetch}"] if self.left_out and self.fetch else []
        return texts + warn_of_random(self.random)


def find_random(record: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return a run's steps with random weights behind columns and tables of these names; those without code too."""
    dummies, wanted, found = record.get("dummies") or (), set(names), list[str]()
    stages = rebuild(record["steps"]) if dummies else {}
    for name in reversed(record["steps"] if dummies else {}):  # in the order in which they ran
        stage = stages.get(name)
        if stage is not None and wanted.isdisjoint((*stage.outputs.names, *stage.tables)):
            continue
        wanted |= {*stage.inputs, *stage.optional_inputs, *stage.input_tables} if stage else set()
        found += [name] if name in dummies else []
    return found[::-1]


def warn_of_random(steps: Sequence[str]) -> list[str]:
    """Return a sentence on steps that ran with random weights; empty without such steps."""
    return [f"Random weights in {', '.join(steps)}: results mean nothing."] if steps else []


def read_profile(
    store: Store, run: str | None, warn: Callable[[str], None] = lambda _: None, targets: Sequence[Limit] = ()
) -> RunProfile:
    """Return the profile of a run, which may be unfinished. Default: the run with the most work.

    `warn` gets a sentence for each run with damaged records, which is left out. `targets` replace the run's own.

    Raises OutputError: there are no records of that run, or none of its rows has passed a step.
    """
    name = choose_run(store.check_folder(), run, warn)
    record = last_record(store)
    profile = profile_of(store, name, targets or targets_of(record), stored_rooms(record, name))
    if profile is None:
        raise missing_rows(store, name)
    return profile


def last_record(store: Store) -> Mapping[str, Any]:
    """Return the run.json of the output; empty if its first run has computed nothing yet."""
    return read_run_record(store) if store.exists(RUN_RECORD) else {}
