"""`framekiln fetch`: download, list and verify the weights that a run needs, and copy them for other machines."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from rich import progress as bars
from rich.console import Console
from typer import Argument, Option

from framekiln.api.options import split_names
from framekiln.cli.console import interruptible
from framekiln.cli.options import PipelinePath, Profile, Settings, Stages, WeightsDir, refuse_idle
from framekiln.contract.errors import WeightsError, check_known
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.reporting.terminal.console import print_line, print_table
from framekiln.weights.lockfile import NotFetchedError, Url, WeightsEntry, Wheel, check_licences
from framekiln.weights.resolver import cache_folder, find_weights, merged_lock

if TYPE_CHECKING:  # imports requests, which no other command needs
    from framekiln.weights.download import ProgressCallback
Users = Mapping[str, Sequence[str]]
"""The steps that use each entry, by its name."""


def fetch(
    wanted: Annotated[list[str] | None, Argument(help="Weights by name. [dim]Default: those needed.[/dim]")] = None,
    stages: Stages = "",
    settings: Settings = None,
    profile: Profile = "",
    pipeline: PipelinePath = None,
    all_: Annotated[bool, Option("--all", help="Everything in the lockfile.")] = False,
    list_: Annotated[bool, Option("--list", help="List weights, their steps and source, and what is here.")] = False,
    verify: Annotated[bool, Option("--verify", help="Read the present files again and compare their hashes.")] = False,
    to: Annotated[Path | None, Option(help="Also copy them here, for --weights-dir on other machines.")] = None,
    accept_license: Annotated[bool, Option("--accept-license", help="Also weights with restricted licences.")] = False,
    weights_dir: WeightsDir = None,
) -> None:
    """Download the weights that a run needs. An interrupted download continues where it stopped."""
    console, brings = Console(), {"--to": to, "--accept-license": accept_license}
    refuse_idle({"--all": all_ and (wanted or stages)}, "beside names of weights or --stages")
    refuse_idle({"--verify": verify, **brings} if list_ else {}, "beside --list")
    refuse_idle(brings if verify else {}, "beside --verify")
    options = PlanOptions(stages=split_names(stages), settings=tuple(settings or ()))
    users = _find_users(pipeline, profile or "cpu-only", options)
    everything = all_ or ((list_ or verify) and not (stages or profile))
    lock = merged_lock(read_pipeline(pipeline).models)
    wanted = wanted or list(lock if everything else users)
    for name in wanted:
        check_known(name, lock, f"The weights lockfile has no entry {name!r}.", code="FK-UNKNOWN-WEIGHTS")
    entries = [lock[name] for name in dict.fromkeys(wanted)]
    if list_:
        _print_list(console, entries, users, weights_dir)
    elif verify:
        _verify(console, entries, weights_dir)
    else:
        _bring(console, entries, weights_dir, to, accepted=accept_license)


def _find_users(pipeline: str | None, profile: str, options: PlanOptions) -> Users:
    steps, places = read_pipeline(pipeline), read_profile(profile)
    plan = make_plan(steps, places, options, [ROOMY], check_weights=False)
    users: dict[str, list[str]] = defaultdict(list)
    for step in plan.steps:
        for name in step.stage.weights:
            users[name].append(step.name)
    return users


def _bring(
    console: Console, entries: Sequence[WeightsEntry], weights_dir: Path | None, to: Path | None, *, accepted: bool
) -> None:
    """Fetch each entry from the first source that has it; raise errors after all were tried."""
    from framekiln.weights.fetch import copy_to, fetch

    check_licences(entries, accepted=accepted)
    errors: list[WeightsError] = []
    with (
        interruptible("Interrupted. Downloads so far are kept; the same command continues from there."),
        downloads(console) as on_progress,
    ):

        def bring(entry: WeightsEntry) -> Path:
            path = fetch(entry, weights_dir=weights_dir, on_progress=on_progress)
            return copy_to(entry, path, to) if to else path

        paths = list(_collect_paths(entries, bring, errors))
    for entry, path in paths:
        print_line(console, f"{entry.name}: {path} ({_write_size(entry)}, {entry.licence})")
    if not entries:
        print_line(console, "These steps need no weights.")
    _raise_all(errors)


def _verify(console: Console, entries: Sequence[WeightsEntry], weights_dir: Path | None) -> None:
    from framekiln.weights.fetch import verify

    errors: list[WeightsError] = []
    good = 0
    for entry, path in _collect_paths(entries, lambda entry: verify(entry, weights_dir), errors):
        good += 1
        print_line(console, f"{entry.name}: {path} matches the lockfile")
    print_line(console, f"{good} verified, {len(errors)} wrong, {len(entries) - good - len(errors)} missing.")
    _raise_all(errors)


def _collect_paths(
    entries: Sequence[WeightsEntry], work: Callable[[WeightsEntry], Path | None], errors: list[WeightsError]
) -> Iterator[tuple[WeightsEntry, Path]]:
    for entry in entries:
        try:
            path = work(entry)
        except WeightsError as error:
            errors.append(error)
            continue
        if path is not None:
            yield entry, path


def _raise_all(errors: Sequence[WeightsError]) -> None:
    """Raise errors as one: a sentence on entries that no source gave, and a line for each other error with its code."""
    missing = [error for error in errors if isinstance(error, NotFetchedError)]
    found = [error for error in errors if error not in missing]
    if missing:
        found.append(NotFetchedError.joined(missing))
    if found:
        *others, last = found
        lines = [f"{error} [{error.code}]" for error in others]
        raise WeightsError("\n".join([*lines, str(last)]), code=last.code)


def _print_list(console: Console, entries: Sequence[WeightsEntry], users: Users, weights_dir: Path | None) -> None:
    lock = {entry.name: entry for entry in entries}
    found, problems = find_weights(list(lock), weights_dir=weights_dir, lock=lock)
    rows = [
        (
            entry.name,
            ", ".join(users.get(entry.name, ())),
            _write_size(entry),
            f"{entry.licence}, to be accepted" if entry.ask else entry.licence,
            "present" if entry.name in found else "missing",
            _name_source(entry),
        )
        for entry in entries
    ]
    print_table(console, ("name", "steps", "size", "licence", "here", "source"), rows, right=("size",))
    total = sum(lock[name].bytes for name in problems)
    size = f"{total / 1e6:,.1f} MB are missing"
    print_line(console, f"{len(found)} of {len(entries)} are present; {size}. Cache: {cache_folder()}")


def _name_source(entry: WeightsEntry) -> str:
    match entry.sources[0]:
        case Url(url=url):
            return urlsplit(url).hostname or url
        case Wheel(package=package, version=version):
            return f"package {package}=={version}"
        case _:
            return "not published"


def _write_size(entry: WeightsEntry) -> str:
    return f"{entry.bytes / 1e6:,.1f} MB"


_LARGE = 50e6  # bytes; a longer download shows a line for each quarter


@contextmanager
def downloads(console: Console) -> "Iterator[ProgressCallback]":
    """Yield a callback that shows the progress of downloads."""
    amounts = (bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn())
    columns = (bars.TextColumn("{task.description:<30}"), bars.BarColumn(), *amounts)
    disable = not console.is_terminal
    tasks: dict[str, bars.TaskID] = {}
    quarters: dict[str, int] = {}
    with bars.Progress(*columns, console=console, disable=disable) as progress:

        def watch(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
                if disable:
                    print_line(console, f"Fetching {name} ({total / 1e6:,.1f} MB)")
            progress.update(tasks[name], completed=done)
            if disable and total > _LARGE and 4 * done // total > quarters.get(name, 0):
                quarters[name] = 4 * done // total
                print_line(console, f"{name}: {25 * quarters[name]}% of {total / 1e6:,.1f} MB")

        yield watch
