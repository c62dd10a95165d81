"""All errors that Framekiln raises, in one tree by who can fix them.

FramekilnError
├── UserError             a mistake with a fix; the command line prints one sentence and exits with 2
│   ├── InputError        the input is missing, empty or of no known kind
│   ├── OutputError       the output cannot be written, or belongs to another run
│   │   ├── GoneError     a file of the output is gone
│   │   └── DamagedError  a file of the output cannot be read any more
│   ├── ConfigError       a manifest, profile, setting or name is wrong
│   ├── ResourceError     a worker does not fit the machines
│   └── WeightsError      weights are missing or differ from the lockfile
├── MediaError            one file cannot be read: a row in the errors table, never the end of a run
├── BudgetError           a step failed on more rows than its budget allows: the run stops early
├── StartError            Ray does not start on this machine: the run could go on without it
├── SetupError            a stage could not load what it needs: the run stops and names it
└── ContractError         a stage broke the contract: the run stops and names it
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

V = TypeVar("V")

_SECRET = re.compile(
    r"(?<=://)(?:[^/\s@<>&\"'#;]+|[^/\s@<>&\"'#;]*:[^\s@<>&\"'#;]*)@"
)  # user and key; keys have slashes


def without_secrets(text: str) -> str:
    """Return a text without the names and passwords in its URLs.

    >>> without_secrets("The output 's3://id:key@bucket/out' is not writable")
    "The output 's3://bucket/out' is not writable"
    """
    return _SECRET.sub("", text)


class FramekilnError(Exception):
    """Base of everything raised on purpose.

    Each raise gives a code, which `docs/errors.md` lists with its cause and fix. Programs and tests tell errors apart
    by codes, since sentences may change.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(without_secrets(message))
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), code=self.code), (str(self),)


class UserError(FramekilnError):
    """A mistake that the user can fix; the message is one sentence with problem, cause and fix."""

    exit_code = 2


class InputError(UserError):
    """The input is missing, empty or of no known kind."""


class OutputError(UserError):
    """The output cannot be written, or belongs to another run."""


class GoneError(OutputError, FileNotFoundError):
    """A file of the output is gone."""


class DamagedError(OutputError):
    """A file of the output cannot be read any more."""


class ConfigError(UserError):
    """A manifest, profile, setting or name is wrong."""


class ResourceError(UserError):
    """A worker does not fit the machines."""


class WeightsError(UserError):
    """Weights are missing or differ from the lockfile."""


class Reason(StrEnum):
    """Reasons why a file, or a part of it, gave no frame; the `kind` column of the errors table."""

    EMPTY = "empty"  # zero bytes, or a container without an image
    UNSUPPORTED = "unsupported"  # content that is not a supported photo or video
    CORRUPT = "corrupt"  # a known type with content that cannot be decoded
    TRUNCATED = "truncated"  # the end is missing
    TOO_LARGE = "too_large"  # more pixels (by the header) or more frames than the limits
    CRASHED = "crashed"  # the decoder crashes or hangs
    PASSED_OVER = "passed_over"  # no media, by name and content; counted apart, and no error
    UNREACHABLE = "unreachable"  # a bucket or web server did not answer; the next run reads the file again
    UNREADABLE = "unreadable"  # the operating system, the object store or the web server refused to read it
    REFUSED = "refused"  # its owner does not allow this use of it, or it lies at a private address


class MediaError(FramekilnError):
    """One file cannot be read."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message, code="FK-MEDIA")
        self.reason = reason

    def __reduce__(self) -> "tuple[type[MediaError], tuple[Reason, str]]":
        return MediaError, (self.reason, str(self))


class BudgetError(FramekilnError):
    """A step failed on more rows than its budget allows; the run stops early."""


class StartError(FramekilnError):
    """Ray does not start on this machine, although the request is valid; the run could go on without Ray."""


class SetupError(FramekilnError):
    """A stage could not load what it needs; it is named."""


class ContractError(FramekilnError):
    """A stage broke the contract, such as by undeclared columns or a wrong number of rows; it is named."""


OWN_CODE: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Exceptions that a stage's own code may raise. `sys.exit` is one of them: it ends neither the run nor the process."""


def check_known(
    name: str, known: Collection[str], problem: str, *, code: str, find_fix: Callable[[str], str] = lambda _: ""
) -> None:
    """Check that a name is known; the message is the problem, and a fix that is found or the nearest known name.

    Raises ConfigError: it is not known.
    """
    if name not in known:
        raise ConfigError(f"{problem}{find_fix(name) or did_you_mean(name, known)}", code=code)


def once(pairs: Iterable[tuple[str, V]], option: str, *, code: str) -> dict[str, V]:
    """Return pairs of a name and a value. Raises ConfigError: an option has a name twice."""
    found: dict[str, V] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigError(f"{option} has {name!r} twice; leave one of them out.", code=code)
        found[name] = value
    return found


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or all of them.

    Returns:
        " Did you mean 'lighting'?" or " Known: flow, lighting, pose."
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""
