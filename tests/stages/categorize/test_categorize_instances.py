"""Categories of instances: each mask by itself, in order, null for an empty mask."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln.device import prepare
from framekiln_stages.categorize.instance_crops import context_crop, masked_crop
from framekiln_stages.categorize.stage import DRAWN, Categorize
from framekiln_stages.categorize.zero_shot import CATEGORIES
from framekiln_stages.nets.clip.architectures import OPENAI
from framekiln_stages.shared.masks import MASK, encode
from tests.support.media.clip_factory import call, embeddings, stage_of
from tests.support.media.photos import photo

FILL = np.array([123, 117, 104], np.uint8)  # OpenAI's mean colour
NEAR = 2e-3  # two steps of float16 below 1

pytestmark = pytest.mark.usefixtures("one_thread")


def mask_of(shape, top, left, bottom, right):
    mask = np.zeros(shape, bool)
    mask[top:bottom, left:right] = True
    mask[top, left : (left + right + 1) // 2] = False  # not a rectangle
    return mask


SIZE = (427, 640)  # h w of the photos of scikit-learn
MASKS = {
    "china.jpg": [(SIZE, 10, 10, 200, 100), (SIZE, 0, 0, 427, 640), (SIZE, 300, 400, 330, 460), (SIZE, 5, 5, 5, 5)],
    "flower.jpg": [((854, 1280), 100, 200, 700, 600)],  # of twice the photo's size
}


def record(mask):
    coded = encode([mask])[0]
    return {"segmentation": coded, "area": int(mask.sum()), "box": None, "point": None}


@pytest.fixture(scope="module", name="rows")
def _rows():
    """Images with their masks: four with one empty; none; null; one of another size."""
    images = [photo("china.jpg"), photo("grace_hopper.jpg"), photo("china.jpg")[:200], photo("flower.jpg")]
    found = {name: [record(mask_of(*one)) for one in several] for name, several in MASKS.items()}
    return images, [found["china.jpg"], [], None, found["flower.jpg"]]


def ask(stage, images, masks):
    return stage(pa.table({stage.pixels: pack(list(images)), "masks": pa.array(list(masks), pa.list_(MASK))}))


def instances(tiny, **settings_):
    return stage_of(tiny, of="instances", keep_embedding=True, top_k=99, **settings_)


@pytest.mark.parametrize("kind", ["both", "masked", "context"])
def test_crops_of_a_device_give_the_same_embeddings(tiny, rows, kind):
    on_host, on_device = instances(tiny, crop=kind), instances(tiny, crop=kind)
    on_device._on_device = True
    found = [ask(stage, *rows)["instances"].to_pylist() for stage in (on_host, on_device)]
    assert [[one is None for one in row or ()] for row in found[0]] == [
        [one is None for one in row or ()] for row in found[1]
    ]
    vectors = [np.array([one["embedding"] for row in each for one in row or () if one], float) for each in found]
    lengths = [np.linalg.norm(each, axis=1) for each in vectors]
    cosines = (vectors[0] * vectors[1]).sum(axis=1) / (lengths[0] * lengths[1])
    assert len(cosines) == 4 and cosines.min() > 0.9999


def test_each_mask_has_its_result_in_its_position(tiny, rows):
    stage = instances(tiny)
    table = ask(stage, *rows)
    assert table.schema.equals(stage.outputs, check_metadata=True)
    table.validate(full=True)
    found = table["instances"].to_pylist()
    assert [one if one is None else len(one) for one in found] == [4, 0, None, 1]
    assert [one is None for one in found[0]] == [False, False, False, True], "only the mask without pixels is null"
    for one in (*found[0][:3], *found[3]):
        likely = [item["probability"] for item in one["categories"]]
        assert {item["name"] for item in one["categories"]} == CATEGORIES.keys()
        assert abs(sum(likely) - 1) < 1e-5 and likely == sorted(likely, reverse=True)
        assert (one["category"], one["probability"]) == tuple(one["categories"][0].values())
        assert abs(np.linalg.norm(np.array(one["embedding"], float)) - 1) < 1e-3
    assert found[0][2]["box"] == pytest.approx({"x0": 400 / 640, "y0": 300 / 427, "x1": 460 / 640, "y1": 330 / 427})


def test_an_instance_equals_its_crops_as_images(tiny, rows):
    """Each crop is an image of its own for the other mode of the stage."""
    images, masks = rows
    whole = stage_of(tiny, keep_embedding=True, top_k=99)
    for crop, margins in (("masked", (0.3, 0)), ("context", (0, 0.3)), ("both", (0.1, 0.2))):
        stage = instances(tiny, crop=crop, masked_margin=margins[0], context_margin=margins[1])
        found = ask(stage, images, masks)["instances"].to_pylist()
        for row, own in ((0, slice(0, 3)), (3, slice(0, 1))):
            for one, mask in zip(found[row][own], masks[row][own], strict=True):
                seen = [masked_crop(images[row], mask["segmentation"], margins[0], FILL)] * (crop != "context")
                seen += [context_crop(images[row], mask["segmentation"], margins[1], FILL)] * (crop != "masked")
                expected = embeddings(call(whole, *seen)).mean(axis=0)
                expected /= np.linalg.norm(expected)
                assert np.abs(np.array(one["embedding"], float) - expected).max() < NEAR
                if crop != "both":
                    (row_,) = call(whole, *seen).to_pylist()
                    assert abs(one["probability"] - row_["category_probability"]) < 1e-5


def test_pixels_outside_a_mask_matter_in_context_only(tiny, rows):
    images, masks = rows
    mask = mask_of(*MASKS["china.jpg"][0])
    other = np.where(mask[..., None], images[0], 255 - images[0])
    one = [[masks[0][0]]]
    for crop, same in (("masked", True), ("context", False), ("both", False)):
        stage = instances(tiny, crop=crop)
        assert ask(stage, [images[0]], one).equals(ask(stage, [other], one)) is same


@pytest.mark.heavy
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.permutations(range(4)), size=st.integers(1, 6))
def test_chunks_and_neighbours_change_nothing(tiny, rows, order, size):
    images, masks = rows
    stage = instances(tiny)
    expected = ask(stage, images, masks)["instances"].to_pylist()
    stage.chunk_sizes["instances"] = size
    found = ask(stage, [images[i] for i in order], [masks[i] for i in order])["instances"].to_pylist()
    for answer, number in zip(found, order, strict=True):
        own = expected[number]
        assert (answer is None) == (own is None)
        for a, b in zip(answer or [], own or [], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a["category"] == b["category"] and a["box"] == b["box"]
                assert np.allclose(a["embedding"], b["embedding"], atol=NEAR)


def test_crops_are_cut_a_chunk_at_a_time(tiny, monkeypatch):
    """At most one chunk of crops is held as the model's input, and 32 crops in preparation."""
    sizes = []

    def watched(images, *rest):
        sizes.append(len(images))
        return prepare(images, *rest)

    monkeypatch.setattr("framekiln_stages.categorize.stage.prepare", watched)
    stage = instances(tiny)
    seen = []
    real = stage._net.images
    monkeypatch.setattr(stage._net, "images", lambda pixels: (seen.append(len(pixels)), real(pixels))[1])
    shape = (300, 400)
    masks = [record(mask_of(shape, i % 290, i % 390, i % 290 + 9, i % 390 + 7)) for i in range(150)]
    (found,) = ask(stage, [np.zeros((*shape, 3), np.uint8)], [masks])["instances"].to_pylist()
    assert len(found) == 150
    assert seen == [64, 64, 64, 64, 22, 22] and set(sizes) == {22, 32}


def test_no_rows_and_no_masks(tiny, rows):
    stage = instances(tiny)
    assert ask(stage, [], []).equals(stage.outputs.empty_table())
    table = ask(stage, rows[0][:2], [[], None])
    assert table["instances"].to_pylist() == [[], None] and table.schema.equals(stage.outputs)


def test_a_drawing_outlines_the_largest(tiny, rows):
    stage = instances(tiny)
    found = ask(stage, *rows).to_pylist()
    drawing = stage.draw(found[0])
    assert len(drawing.lines) == 4 * 3
    assert (0.0, 0.0, 1.0, 0.0) in drawing.lines[:4], "the mask of the whole image comes first"
    assert drawing.caption.startswith(found[0]["instances"][1]["category"]) and "more" not in drawing.caption
    assert stage.draw(found[1]) is None and stage.draw(found[2]) is None
    many = {"instances": [found[3]["instances"][0]] * (DRAWN + 2)}
    assert stage.draw(many).caption.endswith(", 2 more") and len(stage.draw(many).lines) == 4 * DRAWN


def test_both_modes_fit_into_one_pipeline():
    stages = [Categorize(Categorize.Config(of=of, keep_embedding=True)) for of in ("frames", "instances")]
    assert stages[0].inputs == ("frame_384",) and stages[1].inputs == ("frame_1280", "masks")
    assert not set(stages[0].outputs.names) & set(stages[1].outputs.names)


def test_the_fill_is_neutral_after_preprocessing():
    seen = prepare([np.full((9, 9, 3), FILL)], OPENAI, Placement(), torch.float32)
    assert seen.abs().max() < 0.5 / 255 / min(OPENAI.std) + 1e-6, "half a level of 255"
