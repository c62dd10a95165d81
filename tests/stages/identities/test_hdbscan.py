"""Clusters: hdbscan's own labels, from an exact spanning tree that does not depend on the order of points."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree

from framekiln_stages.identities.hdbscan import hdbscan_clusters, spanning_tree
from framekiln_stages.identities.known import summarize
from tests.support.machine.command_line import ROOT
from tests.support.stages.faces.identities_factory import blobs, unit


def as_hdbscan(vectors, labels, **arguments):
    """Return hdbscan's own result, which has these labels, by other numbers or the same."""
    from hdbscan import HDBSCAN  # with sklearn it takes seconds: never while tests are collected
    from sklearn.metrics import adjusted_rand_score

    expected = HDBSCAN(metric="precomputed", algorithm="generic", **arguments).fit(distances(vectors))
    assert adjusted_rand_score(expected.labels_, labels) == 1.0
    return expected


def test_hdbscan_is_bounded_since_private_functions_of_it_are_called():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = [item for item in project["dependencies"] if item.startswith("hdbscan")]
    assert "<" in bound


def distances(vectors):
    """Return all distances, 1 - cosine, by one product; symmetric to the last bit, whatever the threads of BLAS.

    A distance and a core distance are equal or not by that bit, which decides between edges of a tree.
    """
    exact = (1 - unit(vectors) @ unit(vectors).T).clip(0)
    np.fill_diagonal(exact, 0)
    return np.maximum(exact, exact.T)


def reachability(vectors, min_samples):
    """Return all mutual reachability distances, by the definition."""
    exact = distances(vectors)
    core = np.sort(exact, axis=1)[:, min(min_samples, len(exact) - 1)]
    return np.maximum(np.maximum(exact, core), core[:, None])


def total(vectors, min_samples):
    """Return the weight of scipy's minimum spanning tree; scipy reads zero as no edge."""
    return minimum_spanning_tree(reachability(vectors, min_samples) + 1).sum() - (len(vectors) - 1)


def spans(tree, count):
    """Return True if the edges connect all points."""
    group = list(range(count))

    def root(point):
        while group[point] != point:
            point = group[point]
        return point

    for a, b in tree.edges.tolist():
        group[root(a)] = root(b)
    return len(tree.edges) == count - 1 and len({root(point) for point in range(count)}) == 1


CASES = [
    (seed, count, length, samples, size)
    for seed, (count, length, samples, size) in enumerate(
        [
            *[(300, 8, 1, 3), (300, 64, 2, 3), (300, 512, 3, 5), (500, 16, 2, 10), (500, 128, 5, 5)],
            *[(700, 8, 2, 3), (700, 32, 1, 5), (1000, 16, 3, 3), (1000, 128, 2, 3), (1000, 512, 2, 3)],
            *[(1500, 8, 5, 10), (1500, 32, 2, 3), (1500, 64, 10, 10), (2000, 16, 2, 5), (2000, 128, 3, 3)],
            *[(2500, 8, 2, 3), (2500, 64, 5, 3), (3000, 32, 20, 20), (4000, 64, 2, 3), (5000, 32, 2, 3)],
        ]
    )
]


@pytest.mark.parametrize(
    ("seed", "count", "length", "samples", "size"),
    [*CASES[:3], *(pytest.param(*case, marks=pytest.mark.heavy) for case in CASES[3:])],
)
def test_labels_are_those_of_hdbscan(seed, count, length, samples, size):
    vectors = blobs(np.random.default_rng(seed), count, length)
    found = hdbscan_clusters(spanning_tree(vectors, samples), size)
    expected = as_hdbscan(vectors, found.labels, min_cluster_size=size, min_samples=samples)
    assert expected.labels_.max() >= 1, "the data have no clusters"
    np.testing.assert_allclose(found.probabilities, expected.probabilities_, atol=1e-9)
    np.testing.assert_allclose(found.outliers, expected.outlier_scores_, atol=1e-9)


def test_clusters_are_not_split_within_a_distance_as_in_hdbscan():
    random = np.random.default_rng(5)
    middles = np.repeat(blobs(random, 15, 64), 4, axis=0) + 0.05 * random.normal(size=(60, 64))
    vectors = unit(np.repeat(middles, 10, axis=0) + 0.02 * random.normal(size=(600, 64)))
    arguments = {"min_cluster_size": 3, "min_samples": 2, "cluster_selection_epsilon": 0.3}
    tree = spanning_tree(vectors, 2)
    expected = as_hdbscan(vectors, hdbscan_clusters(tree, 3, epsilon=0.3).labels, **arguments)
    assert hdbscan_clusters(tree, 3).labels.max() > expected.labels_.max() > 1, "the setting changes nothing"


# The tree


def special(name):
    random = np.random.default_rng(3)
    return {
        "signs": np.sign(random.normal(size=(400, 6))),
        "copies": random.normal(size=(40, 32))[random.integers(40, size=500)],
        "two faces": np.repeat(random.normal(size=(2, 16)), 200, axis=0),
        "one face": np.repeat(random.normal(size=(1, 128)), 100, axis=0),
        "nearly one face": np.ones((200, 64)) + 1e-5 * random.normal(size=(200, 64)),
        "axes": np.eye(60),
        "a line": np.stack([np.cos(a := np.linspace(0, 1.5, 300)), np.sin(a)], axis=1),
    }[name]


@pytest.mark.parametrize("samples", [1, 2, 30])
@pytest.mark.parametrize("name", ["signs", "copies", "two faces", "one face", "nearly one face", "axes", "a line"])
def test_with_ties_the_tree_is_as_light_in_any_order(name, samples):
    vectors = special(name)
    shuffled = vectors[np.random.default_rng(1).permutation(len(vectors))]
    for given in (vectors, shuffled):
        tree = spanning_tree(given, samples)
        assert spans(tree, len(given))
        assert tree.weights.sum() == pytest.approx(total(vectors, samples), abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 16, 17, 18, 40])
def test_trees_of_few_points(count):
    vectors = np.random.default_rng(count).normal(size=(count, 5))
    tree = spanning_tree(vectors, 4)
    assert spans(tree, count)
    assert tree.weights.sum() == pytest.approx(total(vectors, 4), abs=1e-12)


def test_weights_of_a_tree_are_those_of_its_edges():
    vectors = blobs(np.random.default_rng(8), 700, 48)
    tree = spanning_tree(vectors, 3)
    np.testing.assert_allclose(tree.weights, reachability(vectors, 3)[tuple(tree.edges.T)], atol=1e-12)
    assert tree.weights.sum() == pytest.approx(total(vectors, 3), abs=1e-10)


@pytest.mark.parametrize("bad", [np.zeros((3, 4)), np.full((3, 4), np.nan), np.ones((1, 4))])
def test_points_without_a_tree_are_refused(bad):
    with pytest.raises(ValueError, match=r"vector|two points"):
        spanning_tree(bad, 2)


# A cluster's summary


def test_a_medoid_is_most_similar_to_the_others():
    vectors = blobs(np.random.default_rng(4), 60, 8)
    own = np.arange(5, 50, 3)
    found = summarize(vectors, own, 4)
    cosines = vectors[own] @ vectors[own].T
    mean = (cosines.sum(axis=1) - 1) / (len(own) - 1)
    assert found.medoid == own[mean.argmax()]
    assert found.cohesion == pytest.approx(mean.max())
    first, second = found.exemplars[:2]
    assert first == found.medoid
    assert second == own[cosines[mean.argmax()].argmin()], "the second is least similar to the first"
