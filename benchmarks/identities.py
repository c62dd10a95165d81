"""How long HDBSCAN takes over faces: hdbscan by itself against the tree by blocked matrix products, in one run.

    python benchmarks/identities.py                                # 10,000 x 512, both; minutes
    python benchmarks/identities.py --faces 55000 --plain none     # ours alone
    python benchmarks/identities.py --faces 55000 --plain none --device cuda

Faces are made up: as many people as one in 25 faces, sizes as in an album (few appear often), cosines within a person
from about .5 to .8, strangers about 0, and one face in ten nobody's. `default` is hdbscan as one would call it, on unit
vectors; `generic` is the one whose labels must be equal, on a matrix of all distances, which takes 8 bytes times the
square of the faces.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stages.nets.clusters import Clusters, clusters
from stages.nets.spanning import spanning_tree

MIN_SIZE, MIN_SAMPLES = 3, 2


def album(count: int, length: int, seed: int = 0) -> NDArray[np.float32]:
    """Embeddings of made-up faces: count x length, of length 1."""
    random = np.random.default_rng(seed)
    people = max(2, count // 25)
    share = random.pareto(1.2, people) + 0.1
    who = random.choice(people, count, p=share / share.sum())
    middle = random.normal(size=(people, length)).astype(np.float32)
    spread = random.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    faces = middle[who] + spread * random.normal(size=(count, length)).astype(np.float32)
    nobody = random.random(count) < 0.1
    faces[nobody] = random.normal(size=(int(nobody.sum()), length))
    return faces / np.linalg.norm(faces, axis=1, keepdims=True)


def ours(faces: NDArray[np.float32], device: str) -> Clusters:
    """By blocked products."""
    return clusters(spanning_tree(faces, MIN_SAMPLES, device), MIN_SIZE)


def plain(faces: NDArray[np.float32], algorithm: str) -> Any:
    """By hdbscan alone."""
    from hdbscan import HDBSCAN

    settings = {"min_cluster_size": MIN_SIZE, "min_samples": MIN_SAMPLES}
    if algorithm == "default":
        return HDBSCAN(**settings).fit(faces.astype(np.float64))
    exact = faces.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    distances = (1 - exact @ exact.T).clip(0)
    np.fill_diagonal(distances, 0)
    return HDBSCAN(**settings, metric="precomputed", algorithm="generic").fit(distances)


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds by the clock, seconds of all cores together, and what came of it."""
    start, used = time.perf_counter(), time.process_time()
    made = work()
    return time.perf_counter() - start, time.process_time() - used, made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--faces", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plain", default="default,generic", help="default, generic, both with a comma, or none")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faces = album(given.faces, given.length)
    ours(faces[:500], given.device)  # libraries load at the first call
    load = os.getloadavg()[0]
    seconds, used, found = timed(lambda: ours(faces, given.device))
    size = f"{given.faces:,} x {given.length}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{size}, {given.device}, {given.threads} threads; load before the run {load:.1f}; {os.cpu_count()} cores")
    people, noise = found.labels.max() + 1, (found.labels < 0).sum()
    print(f"blocked products  {seconds:8.1f} s  {used:8.1f} core-s   {people:,} clusters, {noise:,} noise", end="")
    print(f"; peak memory {peak:.1f} GB")
    for algorithm in [name for name in given.plain.split(",") if name != "none"]:
        other, used, model = timed(lambda algorithm=algorithm: plain(faces, algorithm))  # type: ignore[misc]
        same = "" if algorithm == "default" else f"; labels equal: {np.array_equal(model.labels_, found.labels)}"
        print(f"hdbscan {algorithm:9} {other:8.1f} s  {used:8.1f} core-s   {other / seconds:.1f} times as long{same}")


if __name__ == "__main__":
    main()
