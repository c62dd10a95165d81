"""Zero-shot classification: embeddings of sentences, columns of probabilities, and the agreement of two runs.

Shapes: n images or instances, k categories, d dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.array_cache import ArrayCache
from framekiln.device import torch
from framekiln_stages.shared import result_agreement as runs

if TYPE_CHECKING:
    from framekiln_stages.nets.clip.towers import TwoTowers

SIZES = {"frames": 384, "instances": 1280}
"""Default short side of the pixels.

Frames: JPEG's decoder halves an image at a third to half of the cost where the half is large enough. Difference of a
model's input, in levels of 255, from one made by Pillow's bicubic filter from full size: mean, and mean of the worst
photo, over 21 photos with short sides of 384 to 1,411 px. At 224 2.0 and 8.9, since the bicubic filter is left with a
factor of 1 to 2; at 384 0.21 and 2.6; at 512 0.06 and 0.45. On five photos with a short side of 800 px 0.94 and 3.0 at
224 and at 384, which both read 400 px, and 0.03 and 0.14 at 512, which reads all. Embeddings of the 21 photos by a B/32
with random weights have cosines of 0.9998, 0.99997 and 1.0000 at least; trained weights were not at hand. So 384: a
short side of 768 px and more is read at half or less.

Instances are parts of an image: at 1280, one of a sixth of the short side still has about the 224 px of the models'
input. Faces are cut from the same column, which is then decoded once for both steps.
"""
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
    """Return `category_embeddings`, from an earlier run with the same weights and sentences if possible."""
    facts = {"version": 1, "model": model, "prompts": prompts}  # change it if equal sentences give other embeddings
    values = arrays.array(facts, lambda: category_embeddings(net, prompts).cpu().numpy())
    return torch.from_numpy(values).to(net.device)


def category_embeddings(net: TwoTowers, prompts: list[list[str]]) -> torch.Tensor:
    """Return one embedding for each category's sentences: k d float32, of length 1.

    It is the mean of the sentences' embeddings, scaled to length 1 again, as in `zeroshot_classifier` of openai/CLIP,
    notebooks/Prompt_Engineering_for_ImageNet.ipynb.
    """
    embeddings = net.texts([text for texts in prompts for text in texts])
    means = [part.mean(dim=0) for part in torch.split(embeddings, [len(texts) for texts in prompts])]
    return torch.nn.functional.normalize(torch.stack(means), dim=-1)


def top_categories(names: NDArray[np.object_], probabilities: NDArray[np.float32], top_k: int) -> list[pa.Array]:
    """Return the likeliest categories with their probabilities, the name of the first, and its probability.

    `names`: k. `probabilities`: n k. `top_k`: categories kept. The arrays (n): list<CATEGORY>, string, float32.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(probabilities, order, axis=1)
    values = pa.StructArray.from_arrays(
        [pa.array(names[order].reshape(-1), pa.string()), best.reshape(-1)], fields=list(CATEGORY)
    )
    offsets = pa.array(np.arange(len(order) + 1) * order.shape[1], pa.int32())
    first = [pa.array(names[order[:, 0]], pa.string()), pa.array(best[:, 0], pa.float32())]
    return [pa.ListArray.from_arrays(offsets, values), *first]


def agreement(a: pa.Table, b: pa.Table) -> dict[str, float]:
    """Return the share of images, or matched instances, with equal top category, and embedding cosines."""
    if "instances" in a.column_names:
        both = [runs.Detections.from_column(run["instances"]) for run in (a, b)]
        matches = runs.match_by_boxes(*both)
        names = [pc.struct_field(run.values, "category").to_pylist() for run in both]
        equal = [names[0][i] == names[1][j] for i, j in zip(matches.first, matches.second, strict=True)]
        share = runs.mean_or(1.0, np.array(equal))
        return {"instances_found": matches.share, "category_agreement": share, "drift": 1 - matches.share * share}
    same = runs.equal_share(a["category"], b["category"])
    off = runs.mean_distance(*(runs.float_values(run["category_probability"]) for run in (a, b)))
    figures = {"category_agreement": same, "probability_difference": off, "drift": 1 - same}
    if "clip_embedding" not in a.column_names:
        return figures
    cosines = runs.cosine_similarities(*runs.vectors_in_both(a["clip_embedding"], b["clip_embedding"]))
    return figures | runs.cosine_figures(cosines)
