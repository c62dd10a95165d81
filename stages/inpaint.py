"""Things taken out of pictures: LaMa makes up what is behind a mask, and every other pixel stays as it was.

Masks come from a step before (objects, faces, any column of masks) or from files. Each region is painted in a crop with
context, at most so large as the network is good at, and pasted back at full resolution.

    frame, masks -> regions (`stages.nets.regions`) -> crops -> LaMa (`stages.nets.lama`) -> paste -> image file
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import cv2
import numpy as np
import pyarrow as pa

from pipeline.columns import Image, field, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets import regions
from stages.nets.crops import GRID, Crop, Framing, crops, cut, paste
from stages.nets.likeness import mean_distance, numbers
from stages.nets.masks import Mask

if TYPE_CHECKING:
    from stages.nets.lama import Painter

BIG_LAMA = "big-lama"
CROPS = 8  # painted at once on a GPU unless the profile says otherwise; on the CPU they go one by one in any case
WRITERS = {
    "png": (".png", [cv2.IMWRITE_PNG_COMPRESSION, 1]),  # lossless
    "webp": (".webp", [cv2.IMWRITE_WEBP_QUALITY, 101]),  # above 100 OpenCV writes lossless WebP
    "jpeg": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 95]),  # changes pixels outside the mask as well
}
READS = {
    "all": ("masks",),
    "largest": ("masks",),
    "category": ("masks", "instances"),
    "faces": ("faces",),
    "files": ("media_id", "frame_index"),
}
"""Columns besides pixels by what is painted over; "column" reads the one that is named."""


class Inpaint(Stage):
    """Frames with some of what they show painted over, as image files.

    Pixels outside the dilated masks are bit-identical in the files of a lossless format.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=8)
    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """What is painted over, with how much context, and what is written.

        Raises:
            ValueError: a number out of range, or a region without what it needs to know.
        """

        # "eager" runs in 16 bits and compiled; "lama-cleaner" is that program's class and rounding, in fp32.
        implementation: Literal["eager", "lama-cleaner"] = "eager"
        # Of the masks of a frame: all, the largest, or those of some categories; the boxes of its faces; another column
        # of masks; or files. "largest" is the one choice that needs no word about what the pictures show.
        region: Literal["all", "largest", "category", "faces", "column", "files"] = "largest"
        categories: tuple[str, ...] = ()  # for "category": of the column `instances`, one for each mask
        min_probability: float = 0.5  # of a mask's category: likelier than all others together
        column: str = ""  # for "column": one mask of a frame, or a list of masks
        mask_folder: str = ""  # for "files": see `stages.nets.regions.of_file` for their names
        face_margin: float = 0.25  # of a box's side, at each end: the boxes leave out hair, ears and part of the chin
        # Outlines of segmentation are tight, and a JPEG's 8x8 blocks carry traces of what they touch.
        dilate: int = 8  # px
        feather: int = 4  # px, inside the dilated edge; at most `dilate`, lest the object show through
        # A region that fills its crop leaves nothing to go by: at .25 it is at most 44% of it.
        margin: float = 0.25  # of a region's longer side, on each side
        min_margin: int = 128  # px, as lama-cleaner's
        # LaMa was trained on 256 px and is shown by its authors up to about 2,000. Time and memory grow with the area.
        max_side: int = 1024  # px, a multiple of 64; larger crops are reduced for the network
        # Frames of which less or more than this would be painted stay as they are: specks, or a mask gone astray.
        min_share: float = 0.0
        max_share: float = 1.0
        format: Literal["png", "webp", "jpeg"] = "png"  # webp is lossless too, smaller and several times slower
        keep_unpainted: bool = False  # write a copy where nothing was painted; else the path is null

        def __post_init__(self) -> None:
            needed = {"category": "categories", "column": "column", "files": "mask_folder"}.get(self.region)
            if needed and not getattr(self, needed):
                raise ValueError(f"region {self.region!r} needs {needed}")
            for name in ("dilate", "feather", "margin", "min_margin", "face_margin"):
                if not getattr(self, name) >= 0:
                    raise ValueError(f"{name} must be at least 0, not {getattr(self, name)}")
            if self.feather > self.dilate:
                raise ValueError(
                    f"feather must be at most dilate, {self.dilate} px, lest what is painted over show through"
                )
            if self.max_side < GRID or self.max_side % GRID:
                raise ValueError(f"max_side must be a multiple of {GRID}, not {self.max_side}")
            if not 0 <= self.min_probability <= 1:
                raise ValueError(f"min_probability must lie between 0 and 1, not {self.min_probability}")
            if not 0 <= self.min_share <= self.max_share <= 1:
                raise ValueError("min_share and max_share must lie between 0 and 1, in this order")

        @property
        def framing(self) -> Framing:
            """How regions are shown to the network."""
            return Framing(margin=self.margin, least=self.min_margin, longest=self.max_side)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels at full size, and what says where to paint."""
        return ("frame", *(READS.get(self.config.region) or (self.config.column,)))

    @property
    def outputs(self) -> pa.Schema:
        """`inpainted`, null where nothing was painted unless copies are kept, and `inpainted_share`, never null."""
        kept = "" if self.config.keep_unpainted else "; null where nothing was painted"
        return pa.schema(
            [
                field("inpainted", pa.large_binary(), f"the frame without what was painted over, as a file{kept}"),
                field("inpainted_share", pa.float32(), "share of the frame's pixels that were painted, 0 to 1"),
            ]
        )

    @property
    def weights(self) -> tuple[str, ...]:
        """LaMa."""
        return (BIG_LAMA,)

    @property
    def files(self) -> tuple[str, ...]:
        """What it reads besides weights and columns: the folder of masks."""
        return (self.config.mask_folder,) if self.config.region == "files" else ()

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the network, or build it with random weights.

        Raises:
            ValueError: the file is not LaMa, the implementation cannot run as placed, or there is no folder of masks.
        """
        from stages.nets.lama import Eager, LamaCleaner

        for folder in self.files:
            if not Path(folder).is_dir():
                raise ValueError(f"mask_folder: there is no folder {folder}")
        path, rows = weights.get(BIG_LAMA), self.chunk_rows.get("crops", CROPS)
        eager = self.config.implementation == "eager"
        self._paint: Painter = Eager(path, placement, rows, phase=self.phase) if eager else LamaCleaner(path, placement)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Each frame painted over where its masks are."""
        frames = views(batch["frame"])
        with self.phase("preprocess"):
            masks = [self._mask(row, image) for row, image in zip(_rows(batch), frames, strict=True)]
            painted = {i: frames[i].copy() for i, mask in enumerate(masks) if mask.any()}
            found = [(i, crop) for i in painted for crop in crops(masks[i], self.config.framing)]
        for group in alike(found):
            for part in self.chunks(group, "crops", CROPS):
                self._fill(part, frames, masks, painted)
        with self.phase("postprocess"):
            kept = [i in painted or self.config.keep_unpainted for i in range(len(frames))]
            coded = [self._file(painted.get(i, frames[i])) if keep else None for i, keep in enumerate(kept)]
            shares = [float(mask.mean()) for mask in masks]
        arrays = [pa.array(coded, pa.large_binary()), pa.array(shares, pa.float32())]
        return pa.table(arrays, schema=self.outputs)

    def _fill(
        self, part: Sequence[tuple[int, Crop]], frames: list[Image], masks: list[Mask], painted: dict[int, Image]
    ) -> None:
        """Paint crops of one size, and paste them."""
        with self.phase("preprocess"):
            shown = [cut(frames[i], masks[i], crop) for i, crop in part]
        with self.phase("infer"):
            answers = self._paint([image for image, _ in shown], [mask for _, mask in shown])
        with self.phase("postprocess"):
            for (i, crop), answer in zip(part, answers, strict=True):
                paste(painted[i], masks[i], crop, answer, self.config.feather)

    def _mask(self, row: Mapping[str, Any], image: Image) -> Mask:
        """All pixels of a frame that are painted."""
        size = (image.shape[0], image.shape[1])
        mask = regions.dilate(self._region(row, *size), self.config.dilate)
        share = mask.mean()
        return mask if self.config.min_share <= share <= self.config.max_share else np.zeros(size, bool)

    def _region(self, row: Mapping[str, Any], height: int, width: int) -> Mask:
        config = self.config
        if config.region == "faces":
            boxes = [face["box"] for face in row["faces"] or ()]
            return regions.of_boxes(boxes, config.face_margin, height, width)
        if config.region == "files":
            mask = regions.of_file(Path(config.mask_folder), row["media_id"], row["frame_index"])
            return regions.union([] if mask is None else [mask], height, width)
        return regions.union(regions.decoded(self._chosen(row)), height, width)

    def _chosen(self, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Masks, encoded, of a row's columns."""
        config = self.config
        if config.region == "column":
            value = row[config.column] or []
            return [value] if isinstance(value, Mapping) else value
        masks = row["masks"] or []
        if config.region == "largest":
            return sorted(masks, key=regions.area)[-1:]
        if config.region == "category":
            instances = row["instances"] or []
            pairs = zip(masks, instances, strict=True)
            return [mask for mask, about in pairs if self._wanted(about)]
        return masks

    def _wanted(self, about: Mapping[str, Any]) -> bool:
        return about["category"] in self.config.categories and about["probability"] >= self.config.min_probability

    def _file(self, image: Image) -> bytes:
        suffix, how = WRITERS[self.config.format]
        coded, data = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), how)
        if not coded:
            raise ValueError(f"a frame of {image.shape[1]}x{image.shape[0]} does not fit into a {suffix} file")
        return data.tobytes()

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """How far the painted shares are apart; pictures are files, which are not compared."""
        mine, others = (numbers(one["inpainted_share"]) for one in (a, b))
        missing = float((np.isnan(mine) != np.isnan(others)).mean()) if len(mine) else 0.0
        share = mean_distance(mine, others)
        return {"painted_difference": share, "drift": min(1.0, max(share, missing))}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The frame as it was made, and the share that was painted, in words; None where nothing was."""
        share = row.get("inpainted_share")
        return Drawing(after=row.get("inpainted") or None, caption=f"{share:.1%} painted over") if share else None


def alike(found: Sequence[tuple[int, Crop]]) -> Iterator[list[tuple[int, Crop]]]:
    """Crops by their size, each with the number of its frame."""
    groups: dict[tuple[int, int], list[tuple[int, Crop]]] = {}
    for item in found:
        groups.setdefault(item[1].size, []).append(item)
    yield from groups.values()


def _rows(batch: pa.Table) -> list[dict[str, Any]]:
    """The batch without its pixels, as Python values."""
    rest = batch.drop_columns(["frame"])
    return rest.to_pylist()
