"""What a picture shows, in words that a person chose: zero-shot categories by CLIP or SigLIP2.

Each category is described by phrases in several templates; its embedding is the mean of theirs, made once in a process.
A picture's probabilities compare it with all categories. Model cards put any use for recognising or watching people out
of scope (openai/CLIP, model-card.md).

Shapes: n pictures, k categories, d dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import columns
from pipeline.columns import pixels_of, views
from pipeline.device import dtype_of, prepare
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets.clip import MODELS, TwoTowers

if TYPE_CHECKING:
    import torch

CATEGORIES: dict[str, tuple[str, ...]] = {
    "people": ("a person", "a group of people"),
    "animals": ("an animal", "a pet"),
    "plants": ("flowers", "a plant"),
    "food": ("food", "a meal"),
    "landscape": ("a landscape", "mountains", "the sea"),
    "buildings": ("a building", "a city street"),
    "indoors": ("a room", "the inside of a building"),
    "vehicles": ("a vehicle", "a car"),
    "objects": ("an object", "a product"),
    "documents": ("a document", "a page of text", "a screenshot"),
    "art": ("a painting", "a drawing"),
}
"""What albums are commonly sorted by; two or three everyday words for each, since one word means several things."""

CATEGORY = pa.struct([("name", pa.string()), ("probability", pa.float32())])


class Categorize(Stage):
    """The likeliest categories of each picture."""

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=16)
    devices = ("cpu", "cuda")

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which model, which categories, and what is kept.

        Raises:
            ValueError: an unknown model, fewer than two categories, one without phrases, a template without its `{}`.
        """

        # 605 MB, and a laptop copes; clip-vit-l14 is better, and takes 12 times as long on a GPU
        model: str = "clip-vit-b32"
        # Name and phrases, each of which is put into each template; or names that are their own phrases.
        categories: Mapping[str, tuple[str, ...]] | tuple[str, ...] = field(default_factory=CATEGORIES.copy)
        # Three of the 80 with which OpenAI measured ImageNet (openai/CLIP, notebooks/Prompt_Engineering_for_ImageNet),
        # without their article: the phrases have one. ("{}",) where the phrases are whole sentences.
        templates: tuple[str, ...] = ("a photo of {}.", "a close-up photo of {}.", "a bad photo of {}.")
        top_k: int = 3  # categories kept of each picture; the rest is seldom above 5%
        keep_embedding: bool = False  # 1 to 1.5 kB a picture
        # Short side, as in frame_512; 0 is full size. Levels of 255 by which a model's input is off from one made by
        # Pillow's bicubic from full size, 27 photos of .2 to 2.2 MP: 224 by 2.0 in the mean (8.6 in the worst photo)
        # and 162 at most, since bicubic is left with a factor of 1 to 2; 448 by up to 2.6 and 112. 512 is full size,
        # and off by 1 at most, up to a short side of 1,023 px; in two larger photos by .3 and .5, and by 6 and 36.
        size: int = 512

        def __post_init__(self) -> None:
            if self.model not in MODELS:
                raise ValueError(f"there is no model {self.model!r}, only {', '.join(MODELS)}")
            if len(set(self.categories)) < max(2, len(self.categories)):
                raise ValueError("categories must be at least two, each of another name")
            if not all(self.phrases.values()):
                raise ValueError("categories need at least one phrase each")
            if not self.templates or any(template.count("{}") != 1 for template in self.templates):
                raise ValueError("templates must each hold {} once, where the phrase goes")
            if self.top_k < 1 or self.size < 0:
                raise ValueError("top_k must be at least 1, and size at least 0")

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
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only."""
        return (self.pixels,)

    @property
    def outputs(self) -> pa.Schema:
        """`categories`, `category`, `category_probability` and, where it is kept, `clip_embedding`; never null."""
        fields = [
            columns.field("categories", pa.list_(CATEGORY), "likeliest categories first, with their probabilities"),
            columns.field("category", pa.string(), "the likeliest category"),
            columns.field("category_probability", pa.float32(), "of `category`, 0 to 1, among all categories"),
        ]
        if self.config.keep_embedding:
            dtype = pa.list_(pa.float16(), MODELS[self.config.model].dims)
            fields.append(columns.field("clip_embedding", dtype, "the picture in the model's space, of length 1"))
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
        self._net = TwoTowers(MODELS[model], weights[model], weights[tokenizer], placement.device)
        self._names = np.array(list(self.config.phrases), dtype=object)
        self._texts = category_embeddings(self._net, list(self.config.prompts().values()))
        self._net.keep_vision(self._dtype)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Categories of each picture."""
        images = views(batch[self.pixels])
        if not images:
            return self.outputs.empty_table()
        with self.phase("preprocess"):
            pixels = prepare(images, MODELS[self.config.model].preparation, self._placement, self._dtype)
        with self.phase("infer"):
            embeddings = self._net.images(pixels)
            probabilities = self._net.probabilities(embeddings, self._texts).cpu().numpy()
        with self.phase("postprocess"):
            arrays = ranked(self._names, probabilities, self.config.top_k)
            if self.config.keep_embedding:
                flat = pa.array(embeddings.cpu().numpy().astype(np.float16).reshape(-1))
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, embeddings.shape[1]))
            return pa.table(arrays, schema=self.outputs)

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """The likeliest category in words; None where there is none."""
        if row.get("category") is None:
            return None
        return Drawing(caption=f"{row['category']} {row['category_probability']:.0%}")


def category_embeddings(net: TwoTowers, prompts: list[list[str]]) -> torch.Tensor:
    """One embedding for each category's sentences: k d float32, of length 1.

    The mean of the sentences' embeddings, scaled to length 1 again: `zeroshot_classifier` in openai/CLIP,
    notebooks/Prompt_Engineering_for_ImageNet.ipynb.
    """
    import torch
    from torch.nn.functional import normalize

    embeddings = net.texts([text for texts in prompts for text in texts])
    means = [part.mean(dim=0) for part in torch.split(embeddings, [len(texts) for texts in prompts])]
    return normalize(torch.stack(means), dim=-1)


def ranked(names: NDArray[np.object_], probabilities: NDArray[np.float32], top_k: int) -> list[pa.Array]:
    """The columns `categories`, `category` and `category_probability`, from probabilities n k."""
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(probabilities, order, axis=1)
    values = pa.StructArray.from_arrays([pa.array(names[order].reshape(-1)), best.reshape(-1)], fields=list(CATEGORY))
    offsets = pa.array(np.arange(len(order) + 1) * order.shape[1], pa.int32())
    first = [pa.array(names[order[:, 0]], pa.string()), pa.array(best[:, 0], pa.float32())]
    return [pa.ListArray.from_arrays(offsets, values), *first]
