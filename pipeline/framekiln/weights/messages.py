"""Messages about missing weights and licences to accept, each with the command that helps."""

import shlex
from collections.abc import Iterable, Mapping

from framekiln.contract.errors import WeightsError
from framekiln.weights.lockfile import Local, WeightsEntry

ACCEPT = "--accept-license"


def describe_missing(entry: WeightsEntry) -> str:
    """Return the file, size and licence of an entry that is missing."""
    return f"{entry.file} ({entry.name}, {entry.bytes / 1e6:.1f} MB, licence {entry.licence}) is missing"


def explain_missing(problems: Mapping[WeightsEntry, str]) -> str:
    """Return one line for each problem, with a source where no command gets the file, and the command that gets all.

    A problem is `describe_missing`, or why the entry's file cannot be used.
    """
    lines = [f"  {problem}{_describe_source(entry)}" for entry, problem in problems.items()]
    command = fetch_command(problems)
    get = f"To get them: {command} (without network: --to DIR there, --weights-dir DIR here)" if command else ""
    return "\n".join(["Weights are missing:", *lines, *([get] if get else [])])


def _describe_source(entry: WeightsEntry) -> str:
    source = entry.sources[0]
    return f": name a folder that has it with --weights-dir ({source.note})." if isinstance(source, Local) else ""


def fetch_command(entries: Iterable[WeightsEntry]) -> str:
    """Return the command that fetches those entries that can be downloaded; empty if none can."""
    available = [entry for entry in entries if any(not isinstance(source, Local) for source in entry.sources)]
    if not available:
        return ""
    files = {entry.listed_in for entry in available if entry.listed_in}  # one at most: a run has one pipeline file
    options = [word for file in files for word in ("--pipeline", file)]
    words = ["framekiln", "fetch", *options, *(entry.name for entry in available)]
    return shlex.join([*words, ACCEPT] if any(entry.ask for entry in available) else words)


class NotFetchedError(WeightsError):
    """Weights that none of their sources gave, in one sentence, with the reasons."""

    def __init__(self, reasons: Mapping[str, str], *, offline: bool, code: str) -> None:
        """Write the sentence for some names with their reasons; `offline`: a source did not respond."""
        self.reasons, self.offline = dict(reasons), offline
        if len(reasons) == 1:
            ((names, reason),) = reasons.items()
            message, it = f"{names} could not be fetched: {reason}", "it"
        else:
            names, it = " ".join(reasons), "them"
            each = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
            message = f"{len(reasons)} weights could not be fetched: {each}"
        hint = f"; without network, copy {it} over with `framekiln fetch {names} --to DIR` and --weights-dir DIR"
        super().__init__(f"{message}{hint if offline else ''}.", code=code)

    @classmethod
    def joined(cls, errors: "Iterable[NotFetchedError]") -> "NotFetchedError":
        """Return several errors as one."""
        errors = list(errors)
        reasons = {name: reason for error in errors for name, reason in error.reasons.items()}
        return cls(reasons, offline=any(error.offline for error in errors), code="FK-FETCH-FAILED")


def check_licences(entries: Iterable[WeightsEntry], *, accepted: bool) -> None:
    """Refuse weights with restricted licences unless they were accepted.

    Raises WeightsError: some licences need acceptance and have none.
    """
    restricted = [entry for entry in entries if entry.ask]
    if restricted and not accepted:
        each = "; ".join(f"{entry.name} ({entry.licence}: {entry.licence_note})" for entry in restricted)
        message = f"Restricted licences are not accepted: {each}; add {ACCEPT} if they permit your use, "
        raise WeightsError(f"{message}or choose other weights.", code="FK-LICENCE-NOT-ACCEPTED")
