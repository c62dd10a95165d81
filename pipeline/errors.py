"""Every error Framemill raises, in one tree, so that a caller can tell whose mistake it was.

FramemillError
├── UserError             one sentence with the fix; the command line prints it and exits with 2
│   ├── InputError        the input is missing, empty or of no known kind
│   ├── OutputError       the output cannot be written, or belongs to another run
│   │   ├── GoneError     something that was in the output has gone
│   │   └── DamagedError  something in the output cannot be read any more
│   ├── ConfigError       a manifest, profile, setting or name is wrong
│   ├── ResourceError     a worker does not fit the machines
│   └── WeightsError      weights are missing or are not what the lockfile says
├── MediaError            one file cannot be read: a line in the errors table, never the end of a run
├── BudgetError           a step failed on more rows than its budget allows: the run stops early
├── SetupError            a stage could not load what it needs: the run stops and names it
└── ContractError         a stage broke its promise: the run stops and names it
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum


class FramemillError(Exception):
    """Base of everything raised on purpose."""


class UserError(FramemillError):
    """Somebody can mend this by changing what they typed or wrote; the message says how."""

    exit_code = 2


class InputError(UserError):
    """The input is missing, empty or of no known kind."""


class OutputError(UserError):
    """The output cannot be written, or belongs to another run."""


class GoneError(OutputError, FileNotFoundError):
    """Something that was in the output has gone."""


class DamagedError(OutputError):
    """Something in the output cannot be read any more."""


class ConfigError(UserError):
    """A manifest, profile, setting or name is wrong."""


class ResourceError(UserError):
    """A worker does not fit the machines."""


class WeightsError(UserError):
    """Weights are missing or are not what the lockfile says."""


class Reason(StrEnum):
    """Why a file, or a part of it, gave no frame; the `kind` column of the errors table."""

    EMPTY = "empty"  # zero bytes, or a container with no picture in it
    UNSUPPORTED = "unsupported"  # read and recognised as something that is not a photo or a video we decode
    CORRUPT = "corrupt"  # of a known type, but its content cannot be decoded
    TRUNCATED = "truncated"  # the end is missing
    TOO_LARGE = "too_large"  # more pixels than the limit, by its header, or more frames
    CRASHED = "crashed"  # its decoder dies of it, or hangs
    UNREADABLE = "unreadable"  # the operating system or the object store would not hand over the bytes


class MediaError(FramemillError):
    """One file cannot be read, and why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[MediaError], tuple[Reason, str]]:
        return MediaError, (self.reason, str(self))


class BudgetError(FramemillError):
    """A step failed on more rows than its budget allows."""


class SetupError(FramemillError):
    """A stage could not load what it needs."""


class ContractError(FramemillError):
    """A stage returned other rows or columns than it declared."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or all of them.

    Returns:
        " Did you mean 'lighting'?" or " Known: flow, lighting, pose."
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""
