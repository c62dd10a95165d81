"""The request for an export, checked before anything is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framekiln.contract.errors import ConfigError, check_known

SHOTS, FRAMES = "shots", "frames"
COPY, EXACT = "copy", "exact"


@dataclass(frozen=True, kw_only=True)
class ClipRequest:
    """The requested clips, and how they are cut.

    Raises ConfigError: a number or a word is wrong.
    """

    of: str = SHOTS  # shots with a chosen frame, or consecutive chosen frames
    cut: str = COPY  # copy from a key frame, or encode again from first to last frame
    min_seconds: float = 0.0  # shorter clips are left out: video models are trained on clips of at least 2 s
    max_seconds: float | None = None  # longer clips are divided, since such models read this many frames at once
    columns: Sequence[str] = ()  # further columns of the clips' table, names or SQL expressions

    def __post_init__(self) -> None:
        if self.of not in (SHOTS, FRAMES) or self.cut not in (COPY, EXACT):
            message = f"Clips are of {SHOTS} or {FRAMES}, by {COPY} or {EXACT}, not of {self.of!r} by {self.cut!r}."
            raise ConfigError(message, code="FK-EXPORT-CLIPS")
        if self.min_seconds < 0 or (self.max_seconds is not None and self.max_seconds <= self.min_seconds):
            message = "The seconds of clips must rise: --min-seconds from 0 on, and --max-seconds above it."
            raise ConfigError(message, code="FK-EXPORT-SECONDS")

    @property
    def exact(self) -> bool:
        return self.cut == EXACT


KINDS = ("boxes", "masks", "poses", "faces", "tracks", "categories", "identities", "embeddings")
BIOMETRIC = frozenset({"identities", "embeddings"})
"""Kinds that are exported only if named."""
GROUPS = ("file", "person", "shot", "duplicate")
"""Groups that no split may divide."""
SPLITS = ("train", "val", "test")
CLIPS = "clips"
"""The format of video parts as separate files; the others hold frames."""
WHOLE = "all"
"""The name of the single split if none is requested."""
_SHARDED, _SHARD_ROWS = ("webdataset", "hf", "lance"), 1000
_SPLIT = re.compile(r"\d+(?:/\d+){1,2}")
_IMAGES = re.compile(r"link|copy|none|crop:faces|resize:[1-9]\d{0,4}")


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The content and form of an export.

    Raises ConfigError: a value is unknown, or two exclude each other.
    """

    to: str  # a format
    selection: str | None = None  # name of a saved selection
    where: str | None = None  # an SQL expression over columns
    include: frozenset[str] | None = None  # some of KINDS; None: the format's defaults
    images: str | None = None  # link, copy, resize:N, crop:faces or none; None: see `framekiln.export.export`
    split: str | None = None  # percentages for train, val, test: 80/10/10
    by: str = "file"  # one of GROUPS
    keypoints: str = "coco17"  # or all
    folders: str | None = None  # the column that names the folders of `folder`; None: category, if present
    shard_rows: int = _SHARD_ROWS  # rows of each file of webdataset and hf: 100 to 300 MB of photos of 1 MP
    clips: ClipRequest | None = None  # only with the format CLIPS

    def __post_init__(self) -> None:
        for kind in self.include or ():
            check_known(kind, KINDS, f"--include {kind}: there is no such kind.", code="FK-EXPORT-INCLUDE")
        check_known(self.by, GROUPS, f"--by {self.by}: there is no such group.", code="FK-EXPORT-BY")
        check_known(self.keypoints, ("coco17", "all"), f"--keypoints {self.keypoints}:", code="FK-EXPORT-KEYPOINTS")
        self._check_idle()
        if self.clips is not None and not self.clips.exact and self.split is not None and self.by == "shot":
            message = "Copied clips begin in the shot before, perhaps of another split; use --cut exact or --by file."
            raise ConfigError(message, code="FK-EXPORT-CLIP-LEAK")
        if self.selection is not None and self.where is not None:
            raise ConfigError(
                "--selection and --where each choose frames; give one, or save a selection by both conditions.",
                code="FK-EXPORT-BOTH",
            )
        if self.shard_rows < 1:
            message = f"--shard-rows must be at least 1, not {self.shard_rows}."
            raise ConfigError(message, code="FK-EXPORT-SHARD-ROWS")
        if self.images is not None and not _IMAGES.fullmatch(self.images):
            known = "link, copy, resize:1024, crop:faces or none"
            raise ConfigError(f"--images {self.images!r} is none of {known}.", code="FK-EXPORT-IMAGES")
        if self.split is not None and (not _SPLIT.fullmatch(self.split) or sum(self.shares.values()) != 100):
            raise ConfigError(
                f"--split {self.split!r} is not such as 80/10/10: percentages for train, val and test, 100 in all.",
                code="FK-EXPORT-SPLIT",
            )

    def _check_idle(self) -> None:
        for names, given, wanted in (
            ("cut, --clips, --column or seconds of clips", self.to != CLIPS and self.clips, f"--to {CLIPS}"),
            ("include", self.to == CLIPS and self.include, "an export of frames"),
            ("images", self.to == CLIPS and self.images, "an export of frames"),
            ("folders", self.to != "folder" and self.folders, "--to folder"),
            ("by", self.split is None and self.by != "file", "--split, such as 80/10/10"),
            ("shard-rows", self.to not in _SHARDED and self.shard_rows != _SHARD_ROWS, f"--to {' or '.join(_SHARDED)}"),
            ("keypoints", not self._may_have_points and self.keypoints != "coco17", "poses or faces in the export"),
        ):
            if given:
                message = f"--{names} has no effect without {wanted}; give that, or leave it out."
                raise ConfigError(message, code="FK-IDLE-OPTION")

    @property
    def _may_have_points(self) -> bool:
        if self.to in (CLIPS, "folder", "mot"):
            return False
        return self.include is None or not self.include.isdisjoint(("poses", "faces"))

    @property
    def shares(self) -> Mapping[str, int]:
        if self.split is None:
            return {WHOLE: 100}
        return dict(zip(SPLITS, map(int, self.split.split("/")), strict=False))
