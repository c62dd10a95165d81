"""Rows that are unlike each other are those that plain arithmetic chooses."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln.selection.selection import spread_out


def test_rows_without_a_vector_are_the_last_choice():
    vectors = np.array([[1, 0], [0, 0], [0.9, 0.1], [0, 1]], np.float32)
    assert spread_out(vectors, 9).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("seed", range(3))
def test_of_rows_that_are_equally_far_the_first_is_chosen(seed):
    signs = np.random.default_rng(seed).choice([-1, 1], (60, 128))
    chosen = [0]
    for _ in range(19):
        alike = (signs @ signs[chosen].T).max(axis=1)
        alike[chosen] = 129
        chosen.append(int(alike.argmin()))
    assert spread_out(signs.astype(np.float32), 20).tolist() == chosen
