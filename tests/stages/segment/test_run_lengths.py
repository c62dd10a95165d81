"""Run lengths of masks from the places where pixels change: the text of pycocotools."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framekiln_stages.shared.masks import decode_starts, encode, encode_masks


def masks(height: int, width: int) -> np.ndarray:
    """Return masks with few and many runs, which begin and end with either value: n h w."""
    rng = np.random.default_rng(height * width)
    noise = [rng.random((height, width)) < share for share in (0.01, 0.5, 0.99)]
    y, x = np.mgrid[:height, :width]
    shapes = [np.zeros(x.shape, bool), np.ones(x.shape, bool), np.hypot(x - 3, y - width / 2) < width / 3]
    return np.stack([*noise, *shapes, x % 2 == 0, y >= height - 1])


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 1), (31, 47), (700, 900)])
def test_the_text_is_that_of_pycocotools(size):
    given = masks(*size)
    columns = torch.from_numpy(given).transpose(1, 2).contiguous()
    assert encode_masks(columns) == encode(list(given))


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 7), (5, 1), (31, 47), (700, 900), pytest.param((3000, 5000), marks=pytest.mark.heavy)]
)
def test_the_starts_of_runs_are_read_back(size):
    for mask in masks(*size):
        pixels = mask.T.ravel()
        expected = np.flatnonzero(np.diff(pixels.astype(np.int8), prepend=0))
        assert decode_starts(encode([mask])[0]["counts"]).tolist() == expected.tolist()


def test_no_mask_has_no_text():
    assert encode_masks(torch.zeros((0, 4, 5), dtype=torch.bool)) == []


def test_long_runs_keep_all_their_bits():
    given = np.zeros((1, 9000, 6000), bool)
    given[0, 8000:, 5000:] = True
    assert encode_masks(torch.from_numpy(given).transpose(1, 2)) == encode(list(given))
