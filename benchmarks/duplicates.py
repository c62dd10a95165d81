"""Time and memory of the search for copies, among hashes that lie as real ones do.

    python -m benchmarks.duplicates [--pictures 1000000]

Hashes of the sample photos' windows are changed in a quarter of their bits each, so that they crowd as those of photos
do; a thousand are crops of others. A second line has a tenth as many, to show how the time grows.
"""

from __future__ import annotations

import argparse
import resource
import time

import cv2
import numpy as np

from framekiln_stages.duplicates.hashes import VIEWS, WINDOWS, hash_windows
from framekiln_stages.duplicates.search import FAR, find_near
from tests.support.media.photos import PHOTOS, photo

TILES = 8  # of each side of a photo: 192 different pictures
PLANTED = 1000
NEW = 100  # pictures that are added later


def make_hashes(count: int) -> np.ndarray:
    """Return hashes (n w 16), of which the first thousand are crops of the second thousand."""
    rng = np.random.default_rng(0)
    tiles = []
    for name in PHOTOS:
        luma = cv2.cvtColor(photo(name), cv2.COLOR_RGB2GRAY)
        rows = np.array_split(luma, TILES, axis=0)
        tiles += [
            hash_windows(np.ascontiguousarray(tile), len(WINDOWS))
            for row in rows
            for tile in np.array_split(row, TILES, axis=1)
        ]
    hashes = np.array(tiles)[rng.integers(0, len(tiles), count)]
    quarter = rng.integers(0, 256, (count, 1, 16), dtype=np.uint8) & rng.integers(
        0, 256, (count, 1, 16), dtype=np.uint8
    )
    hashes ^= quarter
    hashes[:PLANTED, 0] = hashes[PLANTED : 2 * PLANTED, 3]
    return hashes


def main() -> None:
    """Search twice, and print both, with processor seconds: one core does all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--pictures", type=int, default=1_000_000)
    options = parser.parse_args()
    for count in (options.pictures // 10, options.pictures):
        hashes = make_hashes(count)
        begin = time.process_time()
        pairs = find_near(hashes, FAR, range(len(VIEWS)))
        seconds = time.process_time() - begin
        found = int(((pairs.distance == 0) & (np.maximum(pairs.first, pairs.second) < 2 * PLANTED)).sum())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{count:>9,} pictures  {seconds:6.1f} s  {peak:.1f} GB  {found:,} of {PLANTED:,} planted crops", flush=True
        )
        begin = time.process_time()
        pairs = find_near(hashes, FAR, range(len(VIEWS)), np.arange(count) < NEW)
        seconds, found = time.process_time() - begin, int((pairs.distance == 0).sum())
        print(f"{NEW:>9,} new among them  {seconds:6.1f} s  {found:,} of {NEW:,} planted crops", flush=True)


if __name__ == "__main__":
    main()
