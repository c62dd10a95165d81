"""Zero-shot categories of images, or of the instances in them, by CLIP or SigLIP2.

Each category is described by phrases in several templates. Its embedding is the mean of their embeddings, computed once
per process. An image is compared with all categories. Each mask of instances is classified by itself. The model card
puts recognition and surveillance of people out of scope (openai/CLIP, model-card.md).

Shapes: n images or instances, k categories, d dimensions; pixels h w 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, GpuMemory, Image, Placement, Stage, Weights, columns, views
from framekiln.contract.limits import Count, Limits, Natural
from framekiln.device import dtype_of, normalized, prepare, torch
from framekiln_stages.categorize import zero_shot
from framekiln_stages.categorize.instance_crops import CROPS, Instance, box_area, cut_and_fit, share_box, window_crops
from framekiln_stages.categorize.zero_shot import CATEGORIES, CATEGORY, SIZES
from framekiln_stages.nets.clip.architectures import MODELS
from framekiln_stages.shared.device_images import DeviceImages
from framekiln_stages.shared.masks import BOX, box_edges, box_label
from framekiln_stages.shared.settings import PixelStage
from framekiln_stages.shared.tables import BOXES, UNIT_LENGTH, list_array, vector_array

INSTANCES = 64  # instances embedded at once by default: few masks a photo, and 1.4 GB of CLIP-L
CROPS_AT_ONCE = 32  # instances prepared together: 5 MB each at worst
Margin = Annotated[float, Limits(ge=0, le=10)]  # shares of a box's longer side; more makes the box too small
DRAWN = 5  # instances outlined in a preview: more would hide the image


class Categorize(PixelStage):
    """The likeliest categories of each image, or of each of its masks from an earlier step."""

    version = 2  # 2: pixels of frame_384
    devices = ("cpu", "cuda")
    dummy_weights = True
    chunk_kinds = ("instances",)

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Model, categories, and written columns.

        Raises ValueError: an unknown model, too few categories or phrases, a template without `{}`.
        """

        of: Literal["frames", "instances"] = "frames"  # what is categorised; instances: each mask in the column `masks`
        # Weights. These have 75.5% on ImageNet zero-shot; clip-vit-b32 has 63.3%, is 12 times as fast and suits a
        # laptop
        model: str = "clip-vit-l14"
        # Names with their phrases, or names alone, which then serve as phrases. Each template gets each phrase.
        categories: Mapping[str, tuple[str, ...]] | tuple[str, ...] = field(default_factory=CATEGORIES.copy)
        # Sentences around the phrases: three of OpenAI's 80 for ImageNet (openai/CLIP,
        # notebooks/Prompt_Engineering_for_ImageNet), without the article, since phrases have one. Use ("{}",) if
        # phrases are whole sentences.
        templates: tuple[str, ...] = ("a photo of {}.", "a close-up photo of {}.", "a bad photo of {}.")
        top_k: Count = 3  # categories kept per image; further ones are seldom above 5%
        keep_embedding: bool = False  # write them, 1 to 1.5 KB an image or mask; the shipped pipeline does for images
        size: Natural | None = None  # short side of the pixels, as in frame_512; 0: full size; None: by `of`
        # Picture of an instance. masked: the instance on the model's mean colour, which is neutral to it (OV-Seg,
        # clip_adapter/adapter.py). context: with its surroundings. both: the mean of both embeddings, since some
        # objects are known by shape and others by their surroundings; HOV-SG weighs them 0.44 and 0.56.
        crop: Literal["masked", "context", "both"] = "both"
        # Margins around the box, as shares of its longer side: the two steps of OpenMask3D's crops (0.1 each).
        masked_margin: Margin = 0.1
        context_margin: Margin = 0.2

        def __post_init__(self) -> None:
            self.settle("size", SIZES[self.of])
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            if len(set(self.categories)) < max(2, len(self.categories)):
                raise ValueError("categories must be at least two, with distinct names")
            if not all(self.phrases.values()):
                raise ValueError("categories need at least one phrase each")
            if not self.templates or any(template.count("{}") != 1 for template in self.templates):
                raise ValueError("templates must each hold {} once, where the phrase goes")

        @property
        def phrases(self) -> dict[str, tuple[str, ...]]:
            if isinstance(self.categories, Mapping):
                return dict(self.categories)
            return {name: (name,) for name in self.categories}

        def prompts(self) -> dict[str, list[str]]:
            """Return, by category, all sentences that describe it."""
            return {
                name: [template.replace("{}", phrase) for phrase in phrases for template in self.templates]
                for name, phrases in self.phrases.items()
            }

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, and for instances their masks (list of `framekiln_stages.shared.masks.MASK`)."""
        return (self.pixels, "masks") if self.config.of == "instances" else (self.pixels,)

    @property
    def instance(self) -> pa.StructType:
        fields = [
            ("category", pa.string()),
            ("probability", pa.float32()),  # probability of `category`, 0 to 1, among all categories
            ("categories", pa.list_(CATEGORY)),  # likeliest first
            ("box", BOX),  # box of the mask; shares of width and height
        ]
        return pa.struct([*fields, *([("embedding", self._embedding)] if self.config.keep_embedding else [])])

    @property
    def _embedding(self) -> pa.DataType:
        return pa.list_(pa.float16(), MODELS[self.config.model].dims)

    @property
    def outputs(self) -> pa.Schema:
        """Frames: `categories`, `category`, `category_probability` and, if kept, `clip_embedding`; never null.

        Instances: `instances`, one for each mask in their order, null for an empty mask; null without `masks`.
        """
        if self.config.of == "instances":
            kept = f"; embedding by {self.config.model}, {UNIT_LENGTH}" if self.config.keep_embedding else ""
            about = f"for each of `masks`, in order: category, probability, likeliest categories; {BOXES}{kept}"
            item = columns.field("instances", pa.list_(self.instance), about)
            return pa.schema([columns.annotates(item, of="masks")])
        fields = [
            columns.field("categories", pa.list_(CATEGORY), "likeliest first, with `category_probability` of each"),
            columns.field("category", pa.string(), "the likeliest category"),
            columns.field("category_probability", pa.float32(), "share among all categories, 0 to 1; not calibrated"),
        ]
        if self.config.keep_embedding:
            about = f"of the image by {self.config.model}: {self._embedding.list_size} float16, {UNIT_LENGTH}"
            fields.append(columns.field("clip_embedding", self._embedding, about))
        return pa.schema(fields)

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.config.model, MODELS[self.config.model].tokenizer)

    def gpu_memory(self, placement: Placement) -> GpuMemory:
        chunk = placement.chunks.get("instances", INSTANCES)
        return MODELS[self.config.model].memory(placement.batch if self.config.of == "frames" else chunk)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, embed the categories, and free the text tower.

        Raises ValueError: a sentence is longer than the model's input, or the weights belong to another model.
        """
        from framekiln_stages.nets.clip.towers import TwoTowers

        model, tokenizer = self.weights
        self._placement, self._dtype = placement, dtype_of(placement)
        self._on_device = placement.device != "cpu"  # launches and uploads cost more than arithmetic there
        self._net = TwoTowers(MODELS[model], weights.get(model), weights.get(tokenizer), placement.device)
        self._names = np.array(list(self.config.phrases), dtype=object)
        self._texts = zero_shot.kept_embeddings(self.arrays, model, self._net, list(self.config.prompts().values()))
        rows = self.chunk_sizes.get("instances", INSTANCES) if self.config.of == "instances" else placement.batch
        self._net.keep_vision(placement, self._dtype, rows=rows)
        self._fill = np.rint(np.multiply(MODELS[model].preparation.mean, 255)).astype(np.uint8)

    def __call__(self, batch: pa.Table) -> pa.Table:
        images = views(batch[self.pixels])
        if not images:
            return self.outputs.empty_table()
        if self.config.of == "instances":
            return pa.table([self._classify_instances(images, batch["masks"].to_pylist())], schema=self.outputs)
        embeddings = self._embed([images])
        with self.phase("infer"):
            found = self._net.probabilities(embeddings, self._texts)
        with self.phase("download"):
            probabilities = found.cpu().numpy()
        with self.phase("postprocess"):
            arrays = zero_shot.top_categories(self._names, probabilities, self.config.top_k)
            if self.config.keep_embedding:
                arrays.append(vector_array(embeddings.cpu().numpy()))
            return pa.table(arrays, schema=self.outputs)

    def _embed(self, groups: Iterable[Sequence[Image]]) -> torch.Tensor:
        """Return the embeddings of groups of images, n d float32; each group is freed once it is prepared."""
        how = MODELS[self.config.model].preparation, self._placement, self._dtype, self.phase
        # a compiled model is compiled again for tensors made outside of inference mode
        with self.phase("preprocess"), torch.inference_mode():
            pixels = torch.cat([prepare(group, *how) for group in groups])
        with self.phase("infer"):
            return self._net.images(pixels)

    def _classify_instances(
        self, images: Sequence[Image], lists: Sequence[Sequence[Mapping[str, Any]] | None]
    ) -> pa.ListArray:
        """Return the column `instances`; instances of all images are embedded together, in chunks."""
        instances = [
            (image, mask["segmentation"]) for image, masks in zip(images, lists, strict=True) for mask in masks or ()
        ]
        boxes = [share_box(segmentation) for _, segmentation in instances]
        visible = [number for number, box in enumerate(boxes) if box]
        vectors, probabilities = self._describe([instances[number] for number in visible])
        with self.phase("postprocess"):
            categories, *best = zero_shot.top_categories(self._names, probabilities, self.config.top_k)
            arrays = [*best, categories, pa.array([boxes[number] for number in visible], BOX)]
            if self.config.keep_embedding:
                arrays.append(vector_array(vectors))
            values = pa.StructArray.from_arrays(arrays, fields=list(self.instance))
            rows = {number: row for row, number in enumerate(visible)}
            return list_array(values.take(pa.array(map(rows.get, range(len(instances))), pa.int64())), lists)

    def _describe(self, instances: Sequence[Instance]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the embeddings (n d) and probabilities (n k) of non-empty instances, in one download."""
        dims = MODELS[self.config.model].dims
        if not instances:
            return np.empty((0, dims), np.float32), np.empty((0, len(self._names)), np.float32)
        parts = []
        for chunk in self.chunks(instances, "instances", INSTANCES):
            vectors = self._embed_instances(chunk)
            with self.phase("infer"):
                parts.append(torch.cat([vectors, self._net.probabilities(vectors, self._texts)], dim=1))
        with self.phase("download"):
            values = torch.cat(parts).cpu().numpy()
        return values[:, :dims], values[:, dims:]

    def _embed_instances(self, instances: Sequence[Instance]) -> torch.Tensor:
        """Return the embeddings of non-empty instances: n d float32, of length 1."""
        config = self.config
        margins = {"masked": config.masked_margin, "context": config.context_margin}
        kinds = {kind: margins[kind] for kind in (CROPS if config.crop == "both" else [config.crop])}
        if self._on_device:
            embeddings = self._embed_on_device(instances, kinds)
            return torch.nn.functional.normalize(embeddings.view(len(kinds), len(instances), -1).mean(dim=0), dim=-1)
        means = []
        for kind, margin in kinds.items():
            parts = (instances[start : start + CROPS_AT_ONCE] for start in range(0, len(instances), CROPS_AT_ONCE))
            means.append(
                self._embed([CROPS[kind](*instance, margin, self._fill) for instance in part] for part in parts)
            )
        return torch.nn.functional.normalize(torch.stack(means).mean(dim=0), dim=-1)

    def _embed_on_device(self, instances: Sequence[Instance], kinds: Mapping[str, float]) -> torch.Tensor:
        """Return the embeddings of crops of each kind, with its margin, one kind after the other."""
        preparation, once = MODELS[self.config.model].preparation, {id(image): image for image, _ in instances}
        with self.phase("preprocess"), torch.inference_mode():
            images = DeviceImages(list(once.values()), self._placement, self.phase)
            owners = images.numbers([image for image, _ in instances])
            crops = window_crops(images, owners, [mask for _, mask in instances], kinds)
            levels = cut_and_fit(images, crops, preparation, self._fill)
            pixels = normalized(levels, preparation, self._placement, self._dtype)
        with self.phase("infer"):
            return self._net.images(pixels)

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Show the likeliest category, or outline and name the largest instances; None without any."""
        if self.config.of == "frames":
            category = row.get("category")
            return None if category is None else Drawing(caption=f"{category} {row['category_probability']:.0%}")
        instances = [instance for instance in row.get("instances") or () if instance]
        drawn = sorted(instances, key=lambda instance: -box_area(instance["box"]))[:DRAWN]
        if not drawn:
            return None
        names = [f"{instance['category']} {instance['probability']:.0%}" for instance in drawn]
        more = [f"{len(instances) - len(drawn)} more"] if len(instances) > len(drawn) else []
        return Drawing(
            lines=[edge for instance in drawn for edge in box_edges(instance["box"])],
            labels=[box_label(instance["box"], instance["category"]) for instance in drawn],
            caption=", ".join(names + more),
        )

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the share of images, or matched instances, with equal top category, and embedding cosines."""
        return zero_shot.agreement(a, b)
