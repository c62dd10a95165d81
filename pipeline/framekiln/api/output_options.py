"""The options of `Output.select` and `Output.export` and their commands, and the resulting requests."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict

from framekiln.api.options import checked, option
from framekiln.contract.errors import ConfigError
from framekiln.selection.request import SelectionRequest, read_per

if TYPE_CHECKING:  # the command line reads the options without importing tables
    from framekiln.export.request import ExportRequest


class SelectOptions(TypedDict, total=False):
    """Conditions on frames, in the order in which they are applied."""

    where: Annotated[
        str | Sequence[str] | None,
        option("Conditions in SQL, such as 'sharpness > 300 and len(faces) = 1'; all must hold.", several=True),
    ]
    unique: Annotated[bool, option("Without copies, and without frames that equal the next one.", False)]
    per: Annotated[
        Mapping[str, int] | str | Sequence[str] | None,
        option(
            "At most this many of each, the best first: shot=1, identity=20, media_id=5; may be repeated.",
            metavar="NAME=NUMBER",
            several=True,
        ),
    ]
    balance: Annotated[
        str | None,
        option("As many rows of each value as the rarest has. With --limit, rare values stay whole.", metavar="COLUMN"),
    ]
    diverse: Annotated[
        int | None,
        option("This many, as different as possible by CLIP's embeddings (else by hashes).", metavar="NUMBER"),
    ]
    order: Annotated[
        str | None,
        option(
            "The highest first: sharpness, or -noise for the lowest; 'rating, -noise', also 'noise desc|asc'. "
            "[dim]Default: by file and frame.[/dim]",
            metavar="COLUMNS",
        ),
    ]
    limit: Annotated[int | None, option("At most this many rows.", metavar="NUMBER")]


def make_selection_request(options: SelectOptions) -> SelectionRequest:
    """Return the request for the options. Raises ConfigError: an option or a value is unknown or of a wrong type."""
    given = checked(SelectOptions, options)
    return SelectionRequest(**{**given, "where": all_of(given["where"]), "per": read_per(given["per"])})


class ExportOptions(TypedDict, total=False):
    """Options of an export."""

    selection: Annotated[str | None, option("A saved selection. [dim]Default: all frames.[/dim]", metavar="NAME")]
    where: Annotated[str | Sequence[str] | None, option("SQL conditions, as for select; all must hold.", several=True)]
    include: Annotated[
        str | Sequence[str] | AbstractSet[str] | None,
        option(
            "boxes, masks, poses, faces, tracks, categories, or none; identities and embeddings only if named. "
            "[dim]Default: what the format takes.[/dim]",
            metavar="KIND,KIND",
        ),
    ]
    images: Annotated[
        str | None,
        option(
            "link, copy, resize:1024 (the short side), crop:faces or none. "
            "[dim]Default: link on a disk, copy into buckets and into files that hold pictures.[/dim]"
        ),
    ]
    split: Annotated[str | None, option("Percentages for train, val and test, as 80/10/10.", metavar="N/N/N")]
    by: Annotated[str, option("file, person, shot or duplicate: the group that no split divides.", "file")]
    keypoints: Annotated[str, option("coco17, or all keypoints.", "coco17")]
    folders: Annotated[str | None, option("Column that names folders. [dim]Default: category.[/dim]", metavar="COLUMN")]
    shard_rows: Annotated[
        int, option("Frames in each file of webdataset and hf, and in each commit of lance.", 1000, metavar="NUMBER")
    ]
    of: Annotated[
        str | None,
        option(
            "Shots with a chosen frame, or runs of chosen frames. [dim]Default: shots.[/dim]",
            names=("--clips",),
            metavar="shots|frames",
        ),
    ]
    cut: Annotated[
        str | None, option("Copy from a key frame, or encode again. [dim]Default: copy.[/dim]", metavar="copy|exact")
    ]
    min_seconds: Annotated[float | None, option("Shorter clips are left out.", metavar="SECONDS")]
    max_seconds: Annotated[float | None, option("Longer clips are divided.", metavar="SECONDS")]
    columns: Annotated[
        Sequence[str] | None,
        option(
            "A further column of the clips' table; may be repeated.",
            names=("--column",),
            metavar="COLUMN",
            several=True,
        ),
    ]


def make_export_request(to: str, options: ExportOptions) -> "ExportRequest":
    """Return the request for the options.

    Raises ConfigError: an option or a value is unknown or of a wrong type, or two exclude each other.
    """
    from framekiln.export.request import CLIPS, ClipRequest, ExportRequest
    from framekiln.selection.selection import Selection

    if isinstance(options.get("selection"), Selection):
        message = "export: setting 'selection' is a name; save the selection by .save(name), and give the name."
        raise ConfigError(message, code="FK-INVALID-SETTING")
    given: dict[str, Any] = checked(ExportOptions, options)
    words = given["include"]
    given["include"], given["where"] = words if words is None else read_include(words), all_of(given["where"])
    parts = {item.name: given.pop(item.name) for item in fields(ClipRequest)}
    clips = {name: value for name, value in parts.items() if value is not None}
    return ExportRequest(to=to, clips=ClipRequest(**clips) if clips or to == CLIPS else None, **given)


def read_include(words: str | Sequence[str] | AbstractSet[str]) -> frozenset[str]:
    """Return the kinds in `boxes,masks` or in a list; none for `none`.

    >>> sorted(read_include("masks, boxes")), sorted(read_include("none"))
    (['boxes', 'masks'], [])
    """
    names = words.split(",") if isinstance(words, str) else words
    return frozenset(name.strip() for name in names if name.strip()) - {"none"}


def all_of(conditions: str | Sequence[str] | None) -> str | None:
    """Return one SQL condition that holds if all of them hold; None without any.

    >>> all_of(["sharpness > 20", "rating = 5 or rating is null"])
    '(sharpness > 20) and (rating = 5 or rating is null)'
    """
    if isinstance(conditions, str):
        return conditions
    if not conditions or len(conditions) == 1:
        return conditions[0] if conditions else None
    return " and ".join(f"({text})" for text in conditions)
