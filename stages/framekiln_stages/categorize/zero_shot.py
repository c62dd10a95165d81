"""Zero-shot classification: sentences to one embedding a category, probabilities to columns.

Shapes: n images or instances, k categories, d dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.array_cache import ArrayCache
from framekiln_stages.nets.clip.towers import TwoTowers

if TYPE_CHECKING:
    import torch

_VERSION = 1  # of `category_embeddings`: increase it when the same sentences give other embeddings

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
"""The common subjects of photo albums; two or three phrases for each, since one word has several meanings."""

CATEGORY = pa.struct([("name", pa.string()), ("probability", pa.float32())])


def kept_embeddings(arrays: ArrayCache, model: str, net: TwoTowers, prompts: list[list[str]]) -> torch.Tensor:
    """Return `category_embeddings`, from an earlier run with the same weights and sentences if there was one."""
    import torch

    facts = {"version": _VERSION, "model": model, "prompts": prompts}
    values = arrays.array(facts, lambda: category_embeddings(net, prompts).cpu().numpy())
    return torch.from_numpy(values).to(net.device)


def category_embeddings(net: TwoTowers, prompts: list[list[str]]) -> torch.Tensor:
    """Return one embedding for each category's sentences: k d float32, of length 1.

    It is the mean of the sentences' embeddings, scaled to length 1 again, as in `zeroshot_classifier` of openai/CLIP,
    notebooks/Prompt_Engineering_for_ImageNet.ipynb.
    """
    import torch
    from torch.nn.functional import normalize

    embeddings = net.texts([text for texts in prompts for text in texts])
    means = [part.mean(dim=0) for part in torch.split(embeddings, [len(texts) for texts in prompts])]
    return normalize(torch.stack(means), dim=-1)


def top_categories(names: NDArray[np.object_], probabilities: NDArray[np.float32], top_k: int) -> list[pa.Array]:
    """Return the likeliest categories with their probabilities, the name of the first, and its probability.

    Args:
        names: k.
        probabilities: n k.
        top_k: number of categories kept.

    Returns:
        Arrays of n: list<CATEGORY>, string, float32.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(probabilities, order, axis=1)
    values = pa.StructArray.from_arrays(
        [pa.array(names[order].reshape(-1), pa.string()), best.reshape(-1)], fields=list(CATEGORY)
    )
    offsets = pa.array(np.arange(len(order) + 1) * order.shape[1], pa.int32())
    first = [pa.array(names[order[:, 0]], pa.string()), pa.array(best[:, 0], pa.float32())]
    return [pa.ListArray.from_arrays(offsets, values), *first]
