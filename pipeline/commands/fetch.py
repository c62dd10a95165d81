"""`framemill fetch`: bring the weights that a run needs, look at them, check them, carry them to other machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.commands.options import INTERRUPTED, PipelinePath, Profile, Settings, Stages, WeightsDir, names
from pipeline.errors import ConfigError, WeightsError, did_you_mean
from pipeline.machines import ROOMY
from pipeline.manifest import read_pipeline, read_profile
from pipeline.plan import Choices, make_plan
from pipeline.telemetry.downloads import downloads
from pipeline.weights import Entry, Url, Wheel, cache_folder, default_lock, refuse_unaccepted, search

if TYPE_CHECKING:
    from pipeline.weights.download import Watch

Names = Annotated[list[str] | None, typer.Argument(help="Weights by name. [dim]Default: what the steps need.[/dim]")]
All = Annotated[bool, typer.Option("--all", help="Everything in the lockfile.")]
List = Annotated[bool, typer.Option("--list", help="Show what there is, what is at hand and where it comes from.")]
Verify = Annotated[bool, typer.Option("--verify", help="Read all that is at hand again and compare its hash.")]
To = Annotated[Path | None, typer.Option("--to", help="Put copies there too, for --weights-dir on other machines.")]
Accept = Annotated[bool, typer.Option("--accept-license", help="Fetch also weights whose licence forbids some uses.")]
Users = Mapping[str, Sequence[str]]
"""By name of weights, the steps that use them."""


def fetch(
    wanted: Names = None,
    stages: Stages = "",
    settings: Settings = None,
    profile: Profile = "cpu-only",
    pipeline: PipelinePath = None,
    all_: All = False,
    list_: List = False,
    verify: Verify = False,
    to: To = None,
    accept_license: Accept = False,
    weights_dir: WeightsDir = None,
) -> None:
    """Bring the weights that a run needs. A cut download goes on where it stopped; what is at hand stays as it is."""
    console = Console()
    users = _users(pipeline, profile, Choices(stages=names(stages), settings=tuple(settings or ())))
    everything = all_ or ((list_ or verify) and not stages)
    entries = _chosen(wanted or (), list(default_lock()) if everything else list(users))
    if list_:
        _print_list(console, entries, users, weights_dir)
    elif verify:
        _verify(console, entries, weights_dir)
    else:
        _bring(console, entries, weights_dir, to, accepted=accept_license)


def _users(pipeline: str | None, profile: str, choices: Choices) -> Users:
    """What a run with the same options would need."""
    steps, places = read_pipeline(pipeline), read_profile(profile)
    plan = make_plan(steps, places, choices, [ROOMY], check_weights=False, check_fit=False)
    found: dict[str, list[str]] = defaultdict(list)
    for step in plan.steps:
        for name in step.stage.weights:
            found[name].append(step.name)
    return found


def _chosen(wanted: Sequence[str], otherwise: Sequence[str]) -> list[Entry]:
    lock = default_lock()
    for name in wanted:
        if name not in lock:
            raise ConfigError(f"The weights lockfile has no entry {name!r}.{did_you_mean(name, lock)}")
    return [lock[name] for name in dict.fromkeys(wanted or otherwise)]


def _bring(
    console: Console, entries: Sequence[Entry], weights_dir: Path | None, to: Path | None, *, accepted: bool
) -> None:
    """Each entry from the first source that has it; all are tried before those that failed are told."""
    refuse_unaccepted(entries, accepted=accepted)
    failed: list[str] = []
    try:
        with downloads(console) as watch:
            found = [(entry, _one(entry, weights_dir, to, watch, failed)) for entry in entries]
    except KeyboardInterrupt:  # Typer would end in a word
        _say(Console(stderr=True), "Interrupted. What is there is kept; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    for entry, path in found:
        if path is not None:
            _say(console, f"{entry.name}: {path} ({_size(entry)}, {entry.licence})")
    if not entries:
        _say(console, "These steps need no weights.")
    if failed:
        raise WeightsError("\n".join(failed))


def _one(entry: Entry, weights_dir: Path | None, to: Path | None, watch: Watch, failed: list[str]) -> Path | None:
    from pipeline.weights.fetch import carry, fetch

    try:
        path = fetch(entry, weights_dir=weights_dir, watch=watch)
        return carry(entry, path, to) if to else path
    except WeightsError as error:
        failed.append(str(error))
        return None


def _print_list(console: Console, entries: Sequence[Entry], users: Users, weights_dir: Path | None) -> None:
    found, problems = search([entry.name for entry in entries], weights_dir=weights_dir)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("name", "steps", "size", "licence", "here", "source"):
        table.add_column(head, justify="right" if head == "size" else "left", overflow="fold")
    for entry in entries:
        here = "at hand" if entry.name in found else "missing"
        licence = f"{entry.licence}, to be accepted" if entry.ask else entry.licence
        table.add_row(entry.name, ", ".join(users.get(entry.name, ())), _size(entry), licence, here, _source(entry))
    console.print(table)
    total = sum(entry.bytes for entry in entries if entry.name in problems)
    _say(
        console,
        f"{len(found)} of {len(entries)} are at hand; {total / 1e6:,.1f} MB are missing. Cache: {cache_folder()}",
    )


def _verify(console: Console, entries: Sequence[Entry], weights_dir: Path | None) -> None:
    from pipeline.weights.fetch import verify

    failed: list[str] = []
    good = 0
    for entry in entries:
        try:
            path = verify(entry, weights_dir)
        except WeightsError as error:
            failed.append(str(error))
            continue
        if path is not None:
            good += 1
            _say(console, f"{entry.name}: {path} is what the lockfile says")
    _say(console, f"{good} verified, {len(failed)} wrong, {len(entries) - good - len(failed)} not at hand.")
    if failed:
        raise WeightsError("\n".join(failed))


def _source(entry: Entry) -> str:
    match entry.sources[0]:
        case Url(url=url):
            return urlsplit(url).hostname or url
        case Wheel(package=package, version=version):
            return f"package {package}=={version}"
        case _:
            return "not published"


def _size(entry: Entry) -> str:
    return f"{entry.bytes / 1e6:,.1f} MB"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
