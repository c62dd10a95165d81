"""The spanning tree of `identities` on a GPU: rounding decides which of several edges of one weight it has."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from framekiln_stages.identities.hdbscan import spanning_tree
from tests.support.stages.faces.identities_factory import blobs
from tests.support.stages.on_gpu import DEVICE, needs_gpu

pytestmark = needs_gpu


def test_a_gpu_returns_a_tree_of_the_same_weights():
    vectors = blobs(np.random.default_rng(2), 3000, 128)
    here, there = spanning_tree(vectors, 2), spanning_tree(vectors, 2, DEVICE)
    np.testing.assert_allclose(np.sort(here.weights), np.sort(there.weights), atol=1e-12)
    graph = coo_array((np.ones(len(there.edges)), there.edges.T), shape=(3000, 3000))
    assert connected_components(graph, directed=False)[0] == 1
