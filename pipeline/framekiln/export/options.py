"""The options of an export as a person gives them in Python or by the command, made a request."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypedDict

from framekiln.contract.errors import ConfigError, check_known
from framekiln.export.clip_request import ClipRequest
from framekiln.export.request import CLIPS, ExportRequest
from framekiln.planning.settings import validated
from framekiln.selection.selection import Selection


class ExportOptions(TypedDict, total=False):
    """Options of an export; those that are absent have their defaults."""

    selection: str | None  # name of a saved selection; all frames without it
    where: str | None  # a condition in its place, as in `select`
    include: str | Iterable[str] | None  # kinds of annotations; identities and embeddings leave only when named
    images: str | None  # link, copy, resize:1024 (the short side in px), crop:faces, or none
    split: str | None  # percentages for train, val and test, such as 80/10/10
    by: str  # file, person, shot or duplicate: none of these is in two splits
    keypoints: str  # coco17, or all that the stage found
    folders: str | None  # the column that names the folders of `folder`; category, if there is one
    shard_rows: int  # frames in each file of webdataset and hf, and in each commit of lance
    of: str  # of clips: shots with a chosen frame, or frames that follow each other
    cut: str  # of clips: copy, from a key frame on, or exact, encoded again
    min_seconds: float  # of clips: shorter ones are left out
    max_seconds: float | None  # of clips: longer ones are divided
    columns: Sequence[str]  # of clips: further columns of their table


_NAMES = tuple(ExportOptions.__annotations__)


def make_request(to: str, options: ExportOptions) -> ExportRequest:
    """Return the request of options.

    Raises ConfigError: an option or a value is unknown, has a wrong type, or two of them exclude each other.
    """
    given: dict[str, Any] = {**options}
    for name in given:
        check_known(name, _NAMES, f"export: unknown setting {name!r}.", code="FK-UNKNOWN-SETTING")
    if isinstance(given.get("selection"), Selection):
        message = "export: setting 'selection' is a name; save the selection by .save(name), and give the name."
        raise ConfigError(message, code="FK-INVALID-SETTING")
    clips = {item.name: given.pop(item.name) for item in fields(ClipRequest) if item.name in given}
    of_clips = validated(ClipRequest, clips, "export") if clips or to == CLIPS else None
    given |= {"to": to, "clips": of_clips, "include": read_include(given.get("include"))}
    request: ExportRequest = validated(ExportRequest, given, "export")
    return request


def read_include(words: Any) -> Any:
    """Return the kinds in `boxes,masks` or in a list; None, and whatever is neither, stays as it is.

    >>> sorted(read_include("masks, boxes"))
    ['boxes', 'masks']
    """
    if not isinstance(words, Iterable):
        return words
    names = words.split(",") if isinstance(words, str) else list(words)
    known = all(isinstance(name, str) for name in names)
    return frozenset(name.strip() for name in names if name.strip()) if known else names
