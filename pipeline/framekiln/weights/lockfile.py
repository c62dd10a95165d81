"""The weights lockfile, parsed strictly: unknown keys are errors, so that a typo cannot disable a check.

An entry is one file with its size, sha256, licence and format, and its sources in order of preference.

Messages about missing files and licences are here too. Each names the command that helps.
"""

import base64
import binascii
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from framekiln.contract.errors import WeightsError, did_you_mean

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # a plain name: never a way out of the weights folder


class LockModel(BaseModel):
    """A frozen model that rejects unknown keys and suggests the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"unknown key {key!r}.{did_you_mean(str(key), cls.model_fields)}")
        return data


class Url(LockModel):
    """The publisher's own download."""

    kind: Literal["url"]
    url: str = Field(pattern=r"^https://")


class Patch(LockModel):
    """Replacement bytes at an offset."""

    at: int = Field(ge=0)
    hex: str = Field(pattern=r"^([0-9a-f]{2})+$")


class BundlePart(LockModel):
    """A file inside a wheel, with the changes it gets in the bundle."""

    name: FileName  # name in the bundle
    member: str  # name in the wheel
    sha256: Sha256  # hash of the unchanged member
    patches: tuple[Patch, ...] = ()
    append: str = ""  # bytes added at the end, in base64

    @pydantic.field_validator("append")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        joined = "".join(value.split())
        try:
            base64.b64decode(joined, validate=True)
        except binascii.Error as error:
            raise ValueError(f"is not base64: {error}") from error
        return joined


class Wheel(LockModel):
    """One wheel of a package registry."""

    package: FileName
    version: FileName

    @property
    def wheels(self) -> str:
        """Pattern of the wheel's file name. Any platform will do, since each member has its own hash."""
        return f"{self.package}-{self.version}-*.whl"


class Bundle(Wheel):
    """An uncompressed zip, built from files inside one wheel of a package registry."""

    kind: Literal["bundle"]
    parts: tuple[BundlePart, ...] = Field(min_length=1)


class Member(Wheel):
    """One unchanged file inside a wheel of a package registry; the entry's own sha256 verifies it."""

    kind: Literal["member"]
    member: str


class Local(LockModel):
    """A file that cannot be downloaded."""

    kind: Literal["local"]
    note: str  # where it comes from


Source = Annotated[Url | Bundle | Member | Local, Field(discriminator="kind")]


class WeightsEntry(LockModel):
    """One file of weights."""

    name: SkipJsonSchema[FileName]  # its key in the lockfile, which a stage's `weights` names
    file: FileName  # its name in a weights folder
    bytes: int = Field(gt=0)
    sha256: Sha256
    licence: str
    licence_note: str
    ask: bool = False  # the licence is restricted: using it needs --accept-license
    format: str
    sources: tuple[Source, ...] = Field(min_length=1)
    stands_in_for: str = ""  # an entry for the same stage and task that replaces it if its file is missing
    listed_in: SkipJsonSchema[str] = ""  # path of the pipeline file that defines it; empty for the shipped lockfile


def _name_entries(entries: Any) -> Any:
    if not isinstance(entries, dict):
        return entries
    return {name: {"name": name} | body if isinstance(body, dict) else body for name, body in entries.items()}


Entries = Annotated[dict[str, WeightsEntry], pydantic.BeforeValidator(_name_entries)]


def load_lock(source: str | Path) -> dict[str, WeightsEntry]:
    """Return the entries of a lockfile by name; `source` is a YAML text or a path.

    Raises WeightsError: not YAML, an unknown or missing key, an invalid value, or a file name used twice.
    """
    where = str(source) if isinstance(source, Path) else "the weights lockfile"
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    try:
        lock: dict[str, WeightsEntry] = pydantic.TypeAdapter(Entries).validate_python(yaml.safe_load(text))
    except yaml.YAMLError as error:
        message = f"{where} is not valid YAML: {' '.join(str(error).split())}."
        raise WeightsError(message, code="FK-NOT-YAML") from error
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _make_invalid(f"{where}: {place}: {first['msg'].removeprefix('Value error, ')}") from error
    check_file_names(lock, where)
    return lock


def check_file_names(lock: Mapping[str, WeightsEntry], where: str) -> None:
    """Reject two entries that share a file name. Raises WeightsError."""
    owners: dict[str, str] = {}
    for entry in lock.values():
        first = owners.setdefault(entry.file, entry.name)
        if first != entry.name:
            raise _make_invalid(f"{where}: {first} and {entry.name} share the file name {entry.file!r}.")


def _make_invalid(message: str) -> WeightsError:
    return WeightsError(message, code="FK-LOCKFILE-INVALID")


ACCEPT = "--accept-license"


def explain_missing(problems: Mapping[WeightsEntry, str]) -> str:
    """Return a line for each problem, with a source if no command gets the file, and the command that gets the rest.

    A problem says why the file of an entry cannot be used: it is missing, or another file has its name.
    """
    lines = [f"  {problem}{_describe_source(entry)}" for entry, problem in problems.items()]
    command = fetch_command(problems)
    get = f"To get them: {command} (without network: --to DIR there, --weights-dir DIR here)" if command else ""
    return "\n".join(["Weights are missing:", *lines, *([get] if get else [])])


def _describe_source(entry: WeightsEntry) -> str:
    source = entry.sources[0]
    return f": name a folder that has it with --weights-dir ({source.note})." if isinstance(source, Local) else ""


def fetch_command(entries: Iterable[WeightsEntry]) -> str:
    """Return the command that fetches the entries that can be downloaded; empty if there are none."""
    available = [entry for entry in entries if any(not isinstance(source, Local) for source in entry.sources)]
    if not available:
        return ""
    files = {entry.listed_in for entry in available if entry.listed_in}  # at most one: a run has one pipeline file
    options = [word for file in files for word in ("--pipeline", file)]
    words = ["framekiln", "fetch", *options, *(entry.name for entry in available)]
    return shlex.join([*words, ACCEPT] if any(entry.ask for entry in available) else words)


class NotFetchedError(WeightsError):
    """Weights that no source gave, in one sentence, with the reasons."""

    def __init__(self, reasons: Mapping[str, str], *, offline: bool, code: str) -> None:
        """Build the message from names and reasons; `offline`: a source did not respond."""
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
        errors = list(errors)
        reasons = {name: reason for error in errors for name, reason in error.reasons.items()}
        return cls(reasons, offline=any(error.offline for error in errors), code="FK-FETCH-FAILED")


def check_licences(entries: Iterable[WeightsEntry], *, accepted: bool) -> None:
    """Reject weights with restricted licences that were not accepted. Raises WeightsError.

    Raises WeightsError: some licences need acceptance and have none.
    """
    restricted = [entry for entry in entries if entry.ask]
    if restricted and not accepted:
        each = "; ".join(f"{entry.name} ({entry.licence}: {entry.licence_note})" for entry in restricted)
        message = f"Restricted licences are not accepted: {each}; add {ACCEPT} if they permit your use, "
        raise WeightsError(f"{message}or choose other weights.", code="FK-LICENCE-NOT-ACCEPTED")
