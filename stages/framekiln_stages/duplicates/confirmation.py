"""Copies confirmed by CLIP's embeddings, if a run has them.

No limit holds for all models and collections. So a doubtful pair must be more alike than strangers of its own run.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln_stages.duplicates.search import SURE, Ints, Pairs

EMBEDDING = "clip_embedding"
STRANGERS = 0.99  # share of drawn pairs that a copy must exceed: drawn ones may be alike by chance
DRAWN, LEAST = 10_000, 100  # pairs; a hundredth of fewer than LEAST says nothing
TURNED = 2  # from this view on, views are turned, which changes embeddings


def confirm(pairs: Pairs, vectors: pa.ChunkedArray) -> Pairs:
    """Return the pairs of copies among n photos, without doubtful ones that `vectors` (n) show as alike as strangers.

    Pairs are doubtful if the hash does not decide. A pair without a vector stays.
    """
    doubtful = (pairs.distance > SURE) & (pairs.view < TURNED)
    keys = np.unique(np.random.default_rng(0).integers(0, max(1, len(vectors)) ** 2, DRAWN))
    own, other = np.divmod(keys, max(1, len(vectors)))
    copies = np.concatenate(
        [a * len(vectors) + b for a, b in ((pairs.first, pairs.second), (pairs.second, pairs.first))]
    )
    apart = (own != other) & ~np.isin(keys, copies)
    strangers = measure_cosines(vectors, own[apart], other[apart])
    strangers = strangers[~np.isnan(strangers)]
    if not doubtful.any() or len(strangers) < LEAST:
        return pairs
    alike = measure_cosines(vectors, pairs.first[doubtful], pairs.second[doubtful])
    confirmed = ~doubtful
    confirmed[doubtful] = ~(alike < np.quantile(strangers, STRANGERS))
    return pairs.choose(confirmed)


def measure_cosines(vectors: pa.ChunkedArray, first: Ints, second: Ints) -> NDArray[np.float32]:
    """Return the cosines of pairs (p) of unit vectors; NaN if one is null."""
    own, other = (_read(vectors.take(pa.array(at)).combine_chunks()) for at in (first, second))
    return np.asarray((own * other).sum(axis=1), np.float32)


def _read(vectors: pa.FixedSizeListArray) -> NDArray[np.float32]:
    found = np.full((len(vectors), vectors.type.list_size), np.nan, np.float32)
    known = vectors.is_valid().to_numpy(zero_copy_only=False)
    found[known] = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, vectors.type.list_size)
    return found
