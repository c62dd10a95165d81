"""The search of the output's last run: a hundred new photos are compared with a million, and no others are compared.

Pairs of unchanged photos stay. Removed, changed and new photos are found by their hashes.

Shapes: n photos, no two with the same hash.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract import MEDIA_ID, Table, field
from framekiln_stages.duplicates.hashes import Bytes
from framekiln_stages.duplicates.search import CHUNK, Ints, Pairs, concat

SEARCHED, PAIRS = "searched_photos", "copy_pairs"
TABLES = {
    SEARCHED: Table(
        schema=pa.schema([MEDIA_ID, field("look", pa.int64(), "digest of its hashes and thumbnail", nullable=False)]),
        keys=("media_id",),
        description="compared photos, one of each hash; the next run continues from them",
    ),
    PAIRS: Table(
        schema=pa.schema(
            [
                MEDIA_ID,
                field("other_media_id", pa.string(), "the other picture; a crop of the first if `window` is above 0"),
                field("window", pa.int32(), "number of the first one's window that shows the second; 0: the whole"),
                field("view", pa.int32(), "0 unchanged, 1 mirrored, 2 turned by 90 degrees, 3 by 180"),
                field("distance", pa.int32(), "differing bits of their 128-bit hashes"),
            ]
        ),
        keys=("media_id", "other_media_id"),
        description="pairs of copies with different hashes; the next run continues from them",
    ),
}
_ENDS = ("media_id", "other_media_id")
MOST_FRESH = 0.1  # share of new photos; with more, all are compared again, which takes hardly longer


def digest_looks(hashes: Bytes, thumbnails: Bytes, version: int) -> Ints:
    """Return a digest (n) of everything that decides a photo's pairs, in this version of the stage."""
    flat = [part.reshape(len(part), int(np.prod(part.shape[1:]))) for part in (hashes, thumbnails)]
    rows = np.concatenate(flat, axis=1)
    factors = np.random.default_rng(version).integers(1, 1 << 63, rows.shape[1] // 8, dtype=np.uint64) | np.uint64(1)
    parts = [
        (rows[at : at + CHUNK].view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
        for at in range(0, len(rows), CHUNK)
    ]
    return np.concatenate([np.empty(0, np.uint64), *parts]).view(np.int64)


def read_earlier(kept: Mapping[str, pa.Table], names: pa.Array, looks: Ints) -> tuple[NDArray[np.bool_], Pairs]:
    """Return which photos (n) are new or changed, and the pairs of the others."""
    searched = kept[SEARCHED]
    at = pc.index_in(names, value_set=searched["media_id"].combine_chunks())
    known = at.is_valid().to_numpy(zero_copy_only=False)
    before = searched["look"].combine_chunks().take(at.drop_null()).to_numpy()
    fresh = ~known
    fresh[known] = before != looks[known]
    if fresh.sum() > MOST_FRESH * len(fresh):
        return np.ones(len(names), np.bool_), concat(Pairs, [])
    ends = [pc.index_in(kept[PAIRS][name].combine_chunks(), value_set=names) for name in _ENDS]
    both = pc.and_(*(end.is_valid() for end in ends))
    first, second = (end.filter(both).to_numpy().astype(np.int64) for end in ends)
    left = kept[PAIRS].filter(both)
    facts = {name: left[name].to_numpy().astype(np.int64) for name in ("window", "view", "distance")}
    pairs = Pairs(first=first, second=second, **facts)
    return fresh, pairs.choose(~fresh[first] & ~fresh[second])


def make_tables(names: pa.Array, looks: Ints, pairs: Pairs) -> dict[str, pa.Table]:
    """Make the tables from which the next run continues."""
    ends = {name: names.take(pa.array(at)) for name, at in zip(_ENDS, (pairs.first, pairs.second), strict=True)}
    facts = {name: pa.array(getattr(pairs, name), pa.int32()) for name in ("window", "view", "distance")}
    return {
        SEARCHED: pa.table({"media_id": names, "look": looks}, schema=TABLES[SEARCHED].schema),
        PAIRS: pa.table(ends | facts, schema=TABLES[PAIRS].schema),
    }
