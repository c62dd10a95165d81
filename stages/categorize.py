"""What a picture or a part of it shows, in words that a person chose: zero-shot categories by CLIP or SigLIP2.

Each category is described by phrases in several templates; its embedding is the mean of theirs, made once in a process.
A picture's probabilities compare it with all categories. Of instances, each mask of a picture is looked at by itself.
Model cards put any use for recognising or watching people out of scope (openai/CLIP, model-card.md).

Shapes: n pictures or instances, k categories, d dimensions; pixels h w 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline import columns
from pipeline.columns import Image, pixels_of, views
from pipeline.device import dtype_of, prepare
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.clip import MODELS, TwoTowers
from stages.nets.drawings import label_of
from stages.nets.instances import Instance, area, context, listed, masked, outline, share_box
from stages.nets.likeness import (
    Things,
    both_vectors,
    by_boxes,
    cosine_figures,
    cosines,
    mean_distance,
    numbers,
    share_equal,
)
from stages.nets.masks import BOX
from stages.nets.zero_shot import CATEGORIES, CATEGORY, category_embeddings, kept, ranked

if TYPE_CHECKING:
    import torch

MOST_MARGIN = 10.0  # of a box's longer side: beyond, nothing is left of what it shows
SHOWN = 5  # instances outlined in a preview: more hide the picture
SIZES = {"frames": 512, "instances": 1280}
"""Short side of the pixels looked at where the settings are silent.

Frames: levels of 255 by which a model's input is off from one made by Pillow's bicubic from full size, 27 photos of .2
to 2.2 MP: 224 by 2.0 in the mean (8.6 in the worst photo) and 162 at most, since bicubic is left with a factor of 1 to
2; 448 by up to 2.6 and 112. 512 is full size, and off by 1 at most, up to a short side of 1,023 px; in two larger
photos by .3 and .5, and by 6 and 36.

Instances are parts of a picture: at 1280, one of a sixth of the short side still has about the 224 px that the models
look at. It is what faces are cut from, so that both steps read the same column.
"""


class Categorize(Stage):
    """The likeliest categories of each picture, or of each mask that a step before has found in it."""

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=16)
    devices = ("cpu", "cuda")
    dummy_weights = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, which categories, and what is kept.

        Raises:
            ValueError: an unknown model, fewer than two categories, one without phrases, a template without its `{}`,
                a number or margin that makes no sense.
        """

        of: Literal["frames", "instances"] = "frames"  # instances: of the column `masks`
        # ImageNet zero-shot 75.5%, against 63.3% of clip-vit-b32, which is 12 times as fast and suits a laptop
        model: str = "clip-vit-l14"
        # Name and phrases, each of which is put into each template; or names that are their own phrases.
        categories: Mapping[str, tuple[str, ...]] | tuple[str, ...] = field(default_factory=CATEGORIES.copy)
        # Three of the 80 with which OpenAI measured ImageNet (openai/CLIP, notebooks/Prompt_Engineering_for_ImageNet),
        # without their article: the phrases have one. ("{}",) where the phrases are whole sentences.
        templates: tuple[str, ...] = ("a photo of {}.", "a close-up photo of {}.", "a bad photo of {}.")
        top_k: int = 3  # categories kept of each picture; the rest is seldom above 5%
        keep_embedding: bool = False  # 1 to 1.5 kB a picture
        size: int | None = None  # short side of the pixels, as in frame_512; 0 is full size, None as in SIZES
        # What is seen of an instance: `masked`, by itself on the model's mean colour, with which a model sees nothing
        # (OV-Seg, clip_adapter/adapter.py); `context`, with what is around it; `both`, the mean of their embeddings, as
        # HOV-SG weights them about evenly (.44 and .56), since shape tells some things and surroundings others.
        crop: Literal["masked", "context", "both"] = "both"
        # Around the box, as shares of its longer side: the first and second step of OpenMask3D's crops (.1 each).
        masked_margin: float = 0.1
        context_margin: float = 0.2
        # int8: linear layers of the image tower in 8 bits. B/32 with random weights: 98 MB instead of 352, 2.5 times as
        # fast on a processor, cosines with fp32 from .9999. Trained weights, with their outliers, were not measured.
        quantize: Literal["none", "int8"] = "none"

        def __post_init__(self) -> None:
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            if len(set(self.categories)) < max(2, len(self.categories)):
                raise ValueError("categories must be at least two, each of another name")
            if not all(self.phrases.values()):
                raise ValueError("categories need at least one phrase each")
            if not self.templates or any(template.count("{}") != 1 for template in self.templates):
                raise ValueError("templates must each hold {} once, where the phrase goes")
            if self.top_k < 1 or (self.size or 0) < 0:
                raise ValueError("top_k must be at least 1, and size at least 0")
            if not (0 <= self.masked_margin <= MOST_MARGIN and 0 <= self.context_margin <= MOST_MARGIN):
                raise ValueError(f"masked_margin and context_margin must lie between 0 and {MOST_MARGIN:g}")

        @property
        def phrases(self) -> dict[str, tuple[str, ...]]:
            """By category, how it is described."""
            if isinstance(self.categories, Mapping):
                return dict(self.categories)
            return {name: (name,) for name in self.categories}

        def prompts(self) -> dict[str, list[str]]:
            """By category, all sentences that describe it."""
            return {
                name: [template.replace("{}", phrase) for phrase in phrases for template in self.templates]
                for name, phrases in self.phrases.items()
            }

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        size = self.config.size
        return pixels_of(SIZES[self.config.of] if size is None else size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels, and of instances their masks (list of `stages.nets.masks.MASK`)."""
        return (self.pixels, "masks") if self.config.of == "instances" else (self.pixels,)

    @property
    def instance(self) -> pa.StructType:
        """What is said of one instance."""
        fields = [
            ("category", pa.string()),
            ("probability", pa.float32()),  # of `category`, 0 to 1, among all categories
            ("categories", pa.list_(CATEGORY)),  # likeliest first
            ("box", BOX),  # the mask's own; shares of width and height
        ]
        return pa.struct([*fields, *([("embedding", self._embedding)] if self.config.keep_embedding else [])])

    @property
    def _embedding(self) -> pa.DataType:
        return pa.list_(pa.float16(), MODELS[self.config.model].dims)

    @property
    def outputs(self) -> pa.Schema:
        """Of frames `categories`, `category`, `category_probability` and, where it is kept, `clip_embedding`, no nulls.

        Of instances `instances`: one for each mask in their order, null for one without pixels; null without `masks`.
        """
        if self.config.of == "instances":
            about = "what each of `masks` shows, in their order: category, probability, likeliest categories, box"
            return pa.schema([columns.field("instances", pa.list_(self.instance), about)])
        fields = [
            columns.field("categories", pa.list_(CATEGORY), "likeliest categories first, with their probabilities"),
            columns.field("category", pa.string(), "the likeliest category"),
            columns.field("category_probability", pa.float32(), "of `category`, 0 to 1, among all categories"),
        ]
        if self.config.keep_embedding:
            about = "the picture in the model's space, of length 1"
            fields.append(columns.field("clip_embedding", self._embedding, about))
        return pa.schema(fields)

    @property
    def weights(self) -> tuple[str, ...]:
        """The model and its tokenizer."""
        return (self.config.model, MODELS[self.config.model].tokenizer)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Load the model, embed the categories, and let go of the half that reads text.

        Raises:
            ValueError: a sentence is longer than the model can read, or the weights are another model's.
        """
        model, tokenizer = self.weights
        self._placement, self._dtype = placement, dtype_of(placement)
        self._net = TwoTowers(MODELS[model], weights.get(model), weights.get(tokenizer), placement.device)
        self._names = np.array(list(self.config.phrases), dtype=object)
        self._texts = category_embeddings(self._net, list(self.config.prompts().values()))
        self._net.keep_vision(placement, self._dtype, int8=self.config.quantize == "int8")
        self._fill = np.rint(np.multiply(MODELS[model].preparation.mean, 255)).astype(np.uint8)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Categories of each picture or of each of its masks."""
        images = views(batch[self.pixels])
        if not images:
            return self.outputs.empty_table()
        if self.config.of == "instances":
            return pa.table([self._lists(images, batch["masks"].to_pylist())], schema=self.outputs)
        embeddings = self._embedded([images])
        with self.phase("postprocess"):
            arrays = ranked(self._names, self._probabilities(embeddings), self.config.top_k)
            if self.config.keep_embedding:
                arrays.append(kept(embeddings.cpu().numpy()))
            return pa.table(arrays, schema=self.outputs)

    def _embedded(self, groups: Iterable[Sequence[Image]]) -> torch.Tensor:
        """Embeddings of pictures: n d float32. Groups are asked for one after the other, and let go once prepared."""
        import torch

        how = MODELS[self.config.model].preparation
        # a tensor made outside of inference mode is of another kind, for which a compiled model is compiled again
        with self.phase("preprocess"), torch.inference_mode():
            pixels = torch.cat([prepare(group, how, self._placement, self._dtype, self.phase) for group in groups])
        with self.phase("infer"):
            return self._net.images(pixels)

    def _probabilities(self, embeddings: torch.Tensor) -> NDArray[np.float32]:
        with self.phase("infer"):
            found = self._net.probabilities(embeddings, self._texts)
        with self.phase("download"):
            return found.cpu().numpy()

    def _lists(self, images: Sequence[Image], lists: Sequence[Sequence[Mapping[str, Any]] | None]) -> pa.ListArray:
        """The column `instances`. Instances of all pictures are embedded together, some at a time."""
        every = [
            (image, mask["segmentation"]) for image, masks in zip(images, lists, strict=True) for mask in masks or ()
        ]
        boxes = [share_box(segmentation) for _, segmentation in every]
        seen = [number for number, box in enumerate(boxes) if box]
        embeddings = [np.empty((0, MODELS[self.config.model].dims), np.float32)]
        probabilities = [np.empty((0, len(self._names)), np.float32)]
        for part in self.chunks([every[number] for number in seen], "instances"):
            found = self._instances(part)
            probabilities.append(self._probabilities(found))
            embeddings.append(found.cpu().numpy())
        with self.phase("postprocess"):
            categories, *first = ranked(self._names, np.concatenate(probabilities), self.config.top_k)
            arrays = [*first, categories, pa.array([boxes[number] for number in seen], BOX)]
            if self.config.keep_embedding:
                arrays.append(kept(np.concatenate(embeddings)))
            values = pa.StructArray.from_arrays(arrays, fields=list(self.instance))
            places = {number: place for place, number in enumerate(seen)}
            return listed(values.take(pa.array(map(places.get, range(len(every))), pa.int64())), lists)

    def _instances(self, part: Sequence[Instance]) -> torch.Tensor:
        """Embeddings of instances with pixels: n d float32, of length 1."""
        import torch
        from torch.nn.functional import normalize

        config = self.config
        crops = {"masked": (masked, config.masked_margin), "context": (context, config.context_margin)}
        ways = crops.values() if config.crop == "both" else [crops[config.crop]]
        found = [self._embedded([crop(*one, margin, self._fill)] for one in part) for crop, margin in ways]
        return normalize(torch.stack(found).mean(dim=0), dim=-1)

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Share of pictures, or of instances with a partner, with one likeliest category; cosines of embeddings."""
        if "instances" in a.column_names:
            return _instances_agree(Things.of(a["instances"]), Things.of(b["instances"]))
        same = share_equal(a["category"], b["category"])
        off = mean_distance(*(numbers(one["category_probability"]) for one in (a, b)))
        figures = {"category_agreement": same, "probability_difference": off, "drift": 1 - same}
        if "clip_embedding" not in a.column_names:
            return figures
        return figures | cosine_figures(cosines(*both_vectors(a["clip_embedding"], b["clip_embedding"])))

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The likeliest category in words, or the largest instances outlined and named; None where there is none."""
        if self.config.of == "frames":
            found = row.get("category")
            return Drawing(caption=f"{found} {row['category_probability']:.0%}") if found is not None else None
        instances = [one for one in row.get("instances") or () if one]
        shown = sorted(instances, key=lambda one: -area(**one["box"]))[:SHOWN]
        if not shown:
            return None
        said = [f"{one['category']} {one['probability']:.0%}" for one in shown]
        more = [f"{len(instances) - len(shown)} more"] if len(instances) > len(shown) else []
        return Drawing(
            lines=[line for one in shown for line in outline(**one["box"])],
            labels=[label_of(one["box"], one["category"]) for one in shown],
            caption=", ".join(said + more),
        )


def _instances_agree(first: Things, second: Things) -> dict[str, float]:
    pairs = by_boxes(first, second)
    names = [pc.struct_field(one.values, "category").to_pylist() for one in (first, second)]
    same = [names[0][i] == names[1][j] for i, j in zip(pairs.first, pairs.second, strict=True)]
    share = sum(same) / len(same) if same else 1.0
    return {"instances_found": pairs.found, "category_agreement": share, "drift": 1 - pairs.found * share}
