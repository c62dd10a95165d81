"""Removal of objects from images: LaMa paints over masks; every other pixel stays as it is.

Masks come from an earlier step (objects, faces, any column of masks) or from files. Each region is painted in a crop
with context, reduced to a size that suits the network, and pasted back at full resolution.

    frame, masks -> regions (`mask_sources`) -> crops -> LaMa (`nets.lama.runners`) -> paste -> image file
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from framekiln.contract import Drawing, GpuMemory, Image, Placement, Stage, Weights, field, views
from framekiln.contract.limits import Limits, Natural, NonNegative, Proportion
from framekiln.device import indices_by_key
from framekiln_stages.inpaint import crops as cropping
from framekiln_stages.inpaint.crops import GRID, Crop, Framing
from framekiln_stages.inpaint.mask_sources import box_mask, dilate, read_mask, union
from framekiln_stages.shared.masks import Mask, decode, mask_share
from framekiln_stages.shared.result_agreement import float_values, mean_distance, unmatched_share

if TYPE_CHECKING:
    from framekiln_stages.nets.lama.runners import Painter

BIG_LAMA = "big-lama"
CROPS = 8  # crops painted at once on a GPU unless the profile sets another number; on the CPU always one
READS = {
    "all": ("masks",),
    "largest": ("masks",),
    "category": ("masks", "instances"),
    "faces": ("faces",),
    "files": ("media_id", "frame_index"),
}
"""Columns read in addition to pixels, by `region`; "column" reads the configured column."""
OUTPUTS = pa.schema(
    [
        field("inpainted", pa.large_binary(), "the painted frame as a PNG file; null where nothing was painted"),
        field("inpainted_share", pa.float32(), "painted share of the frame's pixels, 0 to 1"),
    ]
)


class Inpaint(Stage):
    """Frames with regions painted over, as PNG files.

    Pixels outside the dilated masks are bit-identical.
    """

    version = 2  # 2: crops of few shapes
    thread_safe = True
    placement = Placement(batch=8)
    devices = ("cpu", "cuda")
    dummy_weights = True
    chunk_kinds = ("crops",)
    weights = (BIG_LAMA,)
    outputs = OUTPUTS

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Regions, their context, and the written files.

        Raises ValueError: settings contradict each other, or one that `region` needs is missing.
        """

        # "eager" is the network in torch, which can run in 16 bits and compiled; "lama-cleaner" is that program's class
        # and rounding, in fp32.
        implementation: Literal["eager", "lama-cleaner"] = "eager"
        # The painted regions: all masks of a frame, the largest, masks of some categories, the boxes of its faces,
        # another column of masks, or mask files. "largest" is the only choice without knowledge of the images.
        region: Literal["all", "largest", "category", "faces", "column", "files"] = "largest"
        categories: tuple[str, ...] = ()  # for "category": categories in the column `instances`
        # For "category": least probability; above 0.5 it is likelier than all others together.
        min_probability: Proportion = 0.5
        column: str = ""  # for "column": one mask of a frame, or a list of masks
        mask_folder: str = ""  # for "files": see `framekiln_stages.inpaint.mask_sources.read_mask` for their names
        # For "faces": share of a box's side, at each end; boxes exclude hair, ears and part of the chin.
        face_margin: NonNegative = 0.25
        # Growth of the region. Outlines of segmentation are tight, and a JPEG's 8x8 blocks carry traces of the object.
        dilate: Natural = 8  # px
        feather: Natural = 4  # px of soft edge inside the dilated one; at most `dilate`, or the object shows through
        # Context around a region; at 0.25 the region is at most 44% of its crop.
        margin: NonNegative = 0.25  # share of a region's longer side, on each side
        min_margin: Natural = 128  # least margin in px, as in lama-cleaner
        # Longest side of a crop in px; larger crops are reduced for the network. LaMa was trained on 256 px; its
        # authors show results up to about 2,000. Time and memory grow with the area.
        max_side: Annotated[int, Limits(ge=GRID, multiple_of=GRID)] = 1024
        # Shapes of crops. few: eight, and LaMa is compiled once for each. many: all multiples of 64 px, which saves
        # padding on a CPU.
        shapes: Literal["few", "many"] = "few"

        def __post_init__(self) -> None:
            needed = {"category": "categories", "column": "column", "files": "mask_folder"}.get(self.region)
            if needed and not getattr(self, needed):
                raise ValueError(f"region {self.region!r} needs {needed}")
            if self.feather > self.dilate:
                raise ValueError(f"feather must be at most dilate, {self.dilate} px, or the object shows through")

        @property
        def framing(self) -> Framing:
            return Framing(
                margin=self.margin, min_margin=self.min_margin, longest=self.max_side, few=self.shapes == "few"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels at full size, and the columns of the regions."""
        return ("frame", *(READS.get(self.config.region) or (self.config.column,)))

    @property
    def files(self) -> tuple[str, ...]:
        return (self.config.mask_folder,) if self.config.region == "files" else ()

    def gpu_memory(self, placement: Placement) -> GpuMemory | None:
        """See `Stage`: weights in fp16, except those of the Fourier units; crops of 512 px, or fewer larger ones."""
        if self.config.implementation != "eager":
            return None
        return GpuMemory(weights_gb=0.1126, call_gb=0.11 * placement.chunks.get("crops", CROPS))

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the network, or build it with random weights.

        Raises ValueError: the file is not LaMa, the implementation does not support the placement, or the folder of
        masks is missing.
        """
        from framekiln_stages.nets.lama.runners import EagerLama, LamaCleaner

        for folder in self.files:
            if not Path(folder).is_dir():
                raise ValueError(f"mask_folder: there is no folder {folder}")
        path, rows = weights.get(BIG_LAMA), self.chunk_sizes.get("crops", CROPS)
        self._paint: Painter
        if self.config.implementation == "eager":
            known = cropping.shapes(self.config.max_side) if self.config.shapes == "few" else ()
            self._paint = EagerLama(path, placement, rows, shapes=known, phase=self.phase)
        else:
            self._paint = LamaCleaner(path, placement)

    def __call__(self, batch: pa.Table) -> pa.Table:
        frames = views(batch["frame"])
        with self.phase("preprocess"):
            rows = batch.drop_columns(["frame"]).to_pylist()
            regions = [self._find_region(row, *image.shape[:2]) for row, image in zip(rows, frames, strict=True)]
            masks = [dilate(region, self.config.dilate) for region in regions]
            painted = {i: frames[i].copy() for i, mask in enumerate(masks) if mask.any()}
            crops = [(i, crop) for i in painted for crop in cropping.mask_crops(masks[i], self.config.framing)]
        self.item_counts.add("crops", 0)  # also where no mask is
        for group in indices_by_key(crop.shape for _, crop in crops):
            for numbers in self.chunks(group, "crops", CROPS):
                self._paint_crops([crops[number] for number in numbers], frames, masks, painted)
        with self.phase("postprocess"):
            files = [png(painted[i]) if i in painted else None for i in range(len(frames))]
            shares = [float(mask.mean()) for mask in masks]
        return pa.table([pa.array(files, pa.large_binary()), pa.array(shares, pa.float32())], schema=OUTPUTS)

    def _paint_crops(
        self, crops: Sequence[tuple[int, Crop]], frames: list[Image], masks: list[Mask], painted: dict[int, Image]
    ) -> None:
        """Paint crops of one shape, each with the number of its frame, and paste them."""
        with self.phase("preprocess"):
            inputs = [cropping.cut(frames[i], masks[i], crop) for i, crop in crops]
        with self.phase("infer"):
            results = self._paint(*zip(*inputs, strict=True))
        with self.phase("postprocess"):
            for (i, crop), result in zip(crops, results, strict=True):
                cropping.paste(painted[i], masks[i], crop, result, self.config.feather)

    def _find_region(self, row: Mapping[str, Any], height: int, width: int) -> Mask:
        config = self.config
        if config.region == "faces":
            boxes = [face["box"] for face in row["faces"] or ()]
            return box_mask(boxes, config.face_margin, height, width)
        if config.region == "files":
            mask = read_mask(Path(config.mask_folder), row["media_id"], row["frame_index"])
            return union([] if mask is None else [mask], height, width)
        return union((decode(mask.get("segmentation", mask)) for mask in self._select_masks(row)), height, width)

    def _select_masks(self, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        config = self.config
        if config.region == "column":
            value = row[config.column] or []
            return [value] if isinstance(value, Mapping) else value
        masks = row["masks"] or []
        if config.region == "largest":
            return sorted(masks, key=mask_share)[-1:]
        if config.region == "category":
            pairs = zip(masks, row["instances"] or [], strict=True)
            likely = [(mask, item["category"]) for mask, item in pairs if item["probability"] >= config.min_probability]
            return [mask for mask, category in likely if category in config.categories]
        return masks

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Show the painted frame with its painted share; None if nothing was painted."""
        share = row.get("inpainted_share")
        if not share:
            return None
        return Drawing(result_image=row.get("inpainted") or None, caption=f"{share:.1%} painted over")

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the difference of painted shares; image files are not compared."""
        mine, others = (float_values(run["inpainted_share"]) for run in (a, b))
        share = mean_distance(mine, others)
        return {"painted_difference": share, "drift": min(1.0, max(share, unmatched_share(mine, others)))}


PNG_START = b"\x89PNG\r\n\x1a\n"
SUB = 1  # the filter: a pixel's difference from the one to its left (PNG, 9.2)
LEVEL = 1  # of igzip, 0 to 3: 0 is a tenth faster and a fifth larger, 2 and 3 gain 2 %


def png(image: Image) -> bytes:
    """Return an RGB image (h w 3) as a PNG file.

    A PNG holds each row as differences of neighbouring pixels, compressed by igzip (isal). This takes 7 ms a megapixel
    on one core. libpng takes 45 ms at its fastest level, for files that are 4 % smaller. Measured on three photos of 1
    MP; one of 12 MP takes 76 instead of 439 ms. Lossless WebP takes 35 ms at its fastest, by Pillow, for files a third
    smaller.
    """
    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits a sample, RGB
    levels = np.ascontiguousarray(image).reshape(height, -1)
    rows = np.empty((height, 1 + levels.shape[1]), np.uint8)
    rows[:, 0], rows[:, 1:4] = SUB, levels[:, :3]
    np.subtract(levels[:, 3:], levels[:, :-3], out=rows[:, 4:])
    parts = (
        _make_chunk(b"IHDR", header),
        _make_chunk(b"IDAT", isal_zlib.compress(rows, LEVEL)),
        _make_chunk(b"IEND", b""),
    )
    return b"".join((PNG_START, *parts))


def _make_chunk(kind: bytes, data: bytes) -> bytes:
    check = isal_zlib.crc32(data, isal_zlib.crc32(kind))
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
