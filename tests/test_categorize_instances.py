"""Categories of masks: each by itself, in order, as a model would see its crops; none where there is nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.columns import pack
from pipeline.device import prepare
from pipeline.errors import ConfigError
from pipeline.manifest import StepEntry
from pipeline.packet import Packet
from pipeline.settings import build
from pipeline.stage import Placement
from stages.categorize import SHOWN, Categorize
from stages.nets.clip import OPENAI
from stages.nets.instances import context, masked
from stages.nets.masks import MASK, encode
from stages.nets.zero_shot import CATEGORIES
from tests.clip_factory import call, embeddings, read, stage_of

FILL = np.array([123, 117, 104], np.uint8)  # OpenAI's mean colour
NEAR = 2e-3  # two steps of float16 below 1

pytestmark = pytest.mark.usefixtures("one_thread")


def mask_of(shape, top, left, bottom, right):
    mask = np.zeros(shape, bool)
    mask[top:bottom, left:right] = True
    mask[top, left : (left + right + 1) // 2] = False  # no mere rectangle
    return mask


CAT = (341, 512)  # h w
MASKS = {
    "cat.bmp": [(CAT, 10, 10, 200, 100), (CAT, 0, 0, 341, 512), (CAT, 300, 400, 330, 460), (CAT, 5, 5, 5, 5)],
    "rocket.jpg": [((854, 1280), 100, 200, 700, 600)],  # of twice the picture's size, whatever that is
}


def record(mask):
    coded = encode([mask])[0]
    return {"segmentation": coded, "area": int(mask.sum()), "box": None, "point": None}


@pytest.fixture(scope="module", name="rows")
def _rows():
    """Pictures and their masks: four, one of which is empty; none; null; one of another size."""
    images = [read(f"categories/{name}") for name in ("cat.bmp", "coffee.png", "brick.png", "rocket.jpg")]
    found = {name: [record(mask_of(*one)) for one in several] for name, several in MASKS.items()}
    return images, [found["cat.bmp"], [], None, found["rocket.jpg"]]


def ask(stage, images, masks):
    return stage(pa.table({stage.pixels: pack(list(images)), "masks": pa.array(list(masks), pa.list_(MASK))}))


def instances(tiny, **settings_):
    return stage_of(tiny, of="instances", keep_embedding=True, top_k=99, **settings_)


def test_each_mask_has_its_answer_in_its_place(tiny, rows):
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
    assert found[0][2]["box"] == pytest.approx({"x0": 400 / 512, "y0": 300 / 341, "x1": 460 / 512, "y1": 330 / 341})


def test_an_instance_is_what_its_crops_are(tiny, rows):
    """Each crop as a picture of its own, through the other mode of the stage."""
    images, masks = rows
    whole = stage_of(tiny, keep_embedding=True, top_k=99)
    for crop, margins in (("masked", (0.3, 0)), ("context", (0, 0.3)), ("both", (0.1, 0.2))):
        stage = instances(tiny, crop=crop, masked_margin=margins[0], context_margin=margins[1])
        found = ask(stage, images, masks)["instances"].to_pylist()
        for row, own in ((0, slice(0, 3)), (3, slice(0, 1))):
            for one, mask in zip(found[row][own], masks[row][own], strict=True):
                seen = [masked(images[row], mask["segmentation"], margins[0], FILL)] * (crop != "context")
                seen += [context(images[row], mask["segmentation"], margins[1], FILL)] * (crop != "masked")
                expected = embeddings(call(whole, *seen)).mean(axis=0)
                expected /= np.linalg.norm(expected)
                assert np.abs(np.array(one["embedding"], float) - expected).max() < NEAR
                if crop != "both":
                    (row_,) = call(whole, *seen).to_pylist()
                    assert abs(one["probability"] - row_["category_probability"]) < 1e-5


def test_what_lies_outside_of_a_mask_matters_in_context_only(tiny, rows):
    images, masks = rows
    mask = mask_of(*MASKS["cat.bmp"][0])
    other = np.where(mask[..., None], images[0], 255 - images[0])
    one = [[masks[0][0]]]
    for crop, same in (("masked", True), ("context", False), ("both", False)):
        stage = instances(tiny, crop=crop)
        assert ask(stage, [images[0]], one).equals(ask(stage, [other], one)) is same


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.permutations(range(4)), size=st.integers(1, 6))
def test_chunks_and_company_change_nothing(tiny, rows, order, size):
    images, masks = rows
    stage = instances(tiny)
    expected = ask(stage, images, masks)["instances"].to_pylist()
    stage.chunk_rows["instances"] = size
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
    """However many instances: never more prepared at once than a chunk has, and one being prepared."""
    sizes = []

    def watched(images, *rest):
        sizes.append(len(images))
        return prepare(images, *rest)

    monkeypatch.setattr("stages.categorize.prepare", watched)
    stage = instances(tiny)
    seen = []
    real = stage._net.images
    monkeypatch.setattr(stage._net, "images", lambda pixels: (seen.append(len(pixels)), real(pixels))[1])
    shape = (300, 400)
    masks = [record(mask_of(shape, i % 290, i % 390, i % 290 + 9, i % 390 + 7)) for i in range(150)]
    (found,) = ask(stage, [np.zeros((*shape, 3), np.uint8)], [masks])["instances"].to_pylist()
    assert len(found) == 150
    assert seen == [64, 64, 64, 64, 22, 22] and set(sizes) == {1}


def test_no_rows_and_no_masks(tiny, rows):
    stage = instances(tiny)
    assert ask(stage, [], []).equals(stage.outputs.empty_table())
    table = ask(stage, rows[0][:2], [[], None])
    assert table["instances"].to_pylist() == [[], None] and table.schema.equals(stage.outputs)


def test_columns_survive_packets(tiny, rows):
    table = ask(instances(tiny), *rows)
    ids = pa.array(["m"] * 4)
    sealed = Packet(unit="u", start=0, stop=4, rows=table.append_column("media_id", ids)).seal()
    assert Packet.open(sealed).rows.select(["instances"]).to_pylist() == table.to_pylist()


def test_a_preview_outlines_the_largest(tiny, rows):
    stage = instances(tiny)
    found = ask(stage, *rows).to_pylist()
    drawing = stage.preview(found[0])
    assert len(drawing.lines) == 4 * 3
    assert (0.0, 0.0, 1.0, 0.0) in drawing.lines[:4], "the mask of the whole picture comes first"
    assert drawing.caption.startswith(found[0]["instances"][1]["category"]) and "more" not in drawing.caption
    assert stage.preview(found[1]) is None and stage.preview(found[2]) is None
    many = {"instances": [found[3]["instances"][0]] * (SHOWN + 2)}
    assert stage.preview(many).caption.endswith(", 2 more") and len(stage.preview(many).lines) == 4 * SHOWN


def test_both_modes_fit_into_one_pipeline():
    made = [Categorize(Categorize.Config(of=of, keep_embedding=True)) for of in ("frames", "instances")]
    assert made[0].inputs == ("frame_512",) and made[1].inputs == ("frame_1280", "masks")
    assert not set(made[0].outputs.names) & set(made[1].outputs.names)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"masked_margin": -0.1}, "between 0 and 10"), ({"context_margin": 11}, "between 0 and 10"), ({"of": "x"}, "of")],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        build("categorize", StepEntry.model_validate({"use": "stages.categorize:Categorize", "with": wrong}), {})


def test_the_fill_is_seen_as_nothing():
    seen = prepare([np.full((9, 9, 3), FILL)], OPENAI, Placement(), torch.float32)
    assert seen.abs().max() < 0.5 / 255 / min(OPENAI.std) + 1e-6, "half a level of 255"
