"""Time of HDBSCAN on faces: the hdbscan package, and our tree by blocked matrix products, in one run.

    python -m benchmarks.identities                                # 10,000 x 512, both; minutes
    python -m benchmarks.identities --faces 55000 --plain none     # ours alone
    python -m benchmarks.identities --faces 55000 --plain none --device cuda

Faces are random: one person for 25 faces, cluster sizes as in an album (few people appear often), cosines within a
person from about 0.5 to 0.8, between strangers about 0, and one face in ten of no person. `default` is hdbscan with its
defaults, on unit vectors. `generic` must give equal labels; its matrix of all distances takes 8 bytes times the square
of the number of faces.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framekiln_stages.identities.hdbscan import Clusters, hdbscan_clusters, spanning_tree

MIN_SIZE, MIN_SAMPLES = 3, 2


def album(count: int, length: int, seed: int = 0) -> NDArray[np.float32]:
    """Return random embeddings of faces: count x length, of norm 1."""
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
    """Cluster by blocked products."""
    return hdbscan_clusters(spanning_tree(faces, MIN_SAMPLES, device), MIN_SIZE)


def plain(faces: NDArray[np.float32], algorithm: str) -> Any:
    """Cluster by hdbscan alone."""
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
    """Return wall seconds, processor seconds of all cores, and the result."""
    start, used = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - used, result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--faces", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plain", default="default,generic", help="default, generic, both with a comma, or none")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faces = album(options.faces, options.length)
    ours(faces[:500], options.device)  # libraries load at the first call
    load = os.getloadavg()[0]
    seconds, used, result = timed(lambda: ours(faces, options.device))
    size = f"{options.faces:,} x {options.length}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{size}, {options.device}, {options.threads} threads; load before the run {load:.1f}; {os.cpu_count()} cores"
    )
    people, noise = result.labels.max() + 1, (result.labels < 0).sum()
    print(f"blocked products  {seconds:8.1f} s  {used:8.1f} core-s   {people:,} clusters, {noise:,} noise", end="")
    print(f"; peak memory {peak:.1f} GB")
    for algorithm in [name for name in options.plain.split(",") if name != "none"]:
        other, used, model = timed(lambda algorithm=algorithm: plain(faces, algorithm))  # type: ignore[misc]
        same = "" if algorithm == "default" else f"; labels equal: {np.array_equal(model.labels_, result.labels)}"
        print(f"hdbscan {algorithm:9} {other:8.1f} s  {used:8.1f} core-s   {other / seconds:.1f} times as long{same}")


if __name__ == "__main__":
    main()
