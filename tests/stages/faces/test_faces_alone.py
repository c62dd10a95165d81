"""Faces: the result for an image depends on that image alone, not on batches, chunks, processes or memory layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stages.faces.faces_factory import call, embedding


@pytest.fixture(scope="module")
def alone(ready, images):
    """Return the result for each image by itself."""
    return [call(ready, image).to_pylist()[0] for image in images]


def test_the_album_has_images_without_with_one_and_two_faces(alone):
    assert [row["face_count"] for row in alone] == [1, 0, 2, 0, 2, 0, 1]
    assert alone[1] == {"faces": [], "face_count": 0}


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_batches_their_order_and_chunks_change_nothing(alone, ready, images, data):
    order = data.draw(st.lists(st.integers(0, len(images) - 1), max_size=6))
    ready.chunk_sizes["faces"] = data.draw(st.integers(1, 5))
    assert call(ready, *(images[i] for i in order)).to_pylist() == [alone[i] for i in order]


def test_faces_of_a_crowd_go_in_chunks(make_stage, small_face):
    """The stage's own network is wrapped, not replaced."""
    stage = make_stage(size=0, detect_side=0, max_faces=300)
    sizes, recognise = [], stage._recognize.outputs

    def listen(crops):
        sizes.append(len(crops))
        return recognise(crops)

    stage._recognize.outputs = listen
    stage.chunk_sizes["faces"] = 64
    crowd = np.tile(small_face, (10, 20, 1))
    (row,) = call(stage, crowd).to_pylist()
    assert (row["face_count"], sizes) == (200, [64, 64, 64, 8])
    vectors = np.stack([embedding(one) for one in row["faces"]])
    assert np.median(vectors @ vectors[0]) > 0.8  # 23 px wide, and cut from other phases of the detector's grid


@settings(max_examples=10, deadline=None)
@given(height=st.integers(1, 40), width=st.integers(1, 40), seed=st.integers(0, 9))
def test_tiny_images_have_no_faces(ready, height, width, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    assert call(ready, noise)["face_count"].to_pylist() == [0]
