"""Segment: the same masks as the published algorithm written once more, and as transformers' model called plainly.

There are no trained weights beside this checkout, so nothing here can say whether masks are good; only that they are
what the published network and algorithm make of the same weights, which are random.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from pipeline.columns import pack, pixels_of  # noqa: E402
from pipeline.device import prepare  # noqa: E402
from pipeline.ledger import cover  # noqa: E402
from pipeline.media.config import DecodeConfig  # noqa: E402
from pipeline.media.decode import decode as decode_media  # noqa: E402
from pipeline.media.listing import list_media  # noqa: E402
from pipeline.stage import Placement  # noqa: E402
from pipeline.storage import Store  # noqa: E402
from pipeline.weights import default_lock  # noqa: E402
from stages.nets import proposals  # noqa: E402
from stages.nets.masks import decode  # noqa: E402
from stages.nets.sam2 import MODELS, PREPARATION, Sam2, configured, vision  # noqa: E402
from stages.segment import Segment  # noqa: E402
from tests import sam_reference as reference  # noqa: E402
from tests.material import media  # noqa: E402
from tests.sam_weights import TOY, lively  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SIZE = (120, 160)
ANY = {"pred_iou_thresh": 0, "stability_score_thresh": 0}
FLOAT = torch.float32
UNCLEAN = {"min_mask_region_area": 0}
LEAST_GAP = 1e-3  # between values on both sides of a threshold
POINTS = [(0.2, 0.3), (0.7, 0.6), (0.5, 0.9), (0.21, 0.3)]
BOXES = [(0.1, 0.2, 0.6, 0.7), (0.5, 0.1, 0.95, 0.5), (0, 0, 1, 1)]


@pytest.fixture(scope="module", autouse=True)
def toy():
    """A model that a test can afford, beside the published ones."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    MODELS["toy"] = TOY
    yield
    del MODELS["toy"]
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def toy_file(toy, tmp_path_factory):
    return lively(TOY, tmp_path_factory.mktemp("weights") / "toy.safetensors")


@pytest.fixture(scope="module")
def plain(toy_file):
    """The same weights in transformers' model."""
    from transformers import Sam2Model

    model = Sam2Model(configured(TOY)).eval()
    model.load_state_dict(load_file(toy_file))
    return model


@pytest.fixture(scope="module")
def make(toy_file):
    def build(placement=None, **given):
        stage = Segment(Segment.Config(**{"model": "toy", "size": 0, "points_per_side": 2} | given))
        stage.setup({"toy": toy_file}, placement or Placement())
        return stage

    return build


@pytest.fixture(scope="module")
def photo():
    image = cv2.imread(str(media("categories/sam_truck.jpg")))[:, :, ::-1]
    return np.ascontiguousarray(cv2.resize(image, SIZE[::-1], interpolation=cv2.INTER_AREA))


@pytest.fixture(scope="module")
def answers(plain):
    """On the very pixels that the stage prepares, so that not even a rounding differs before the filters."""
    return reference.answering(plain, TOY.side, lambda image, _: prepare([image], TOY.preparation, Placement(), FLOAT))


@pytest.fixture(scope="module")
def chosen(answers, photo):
    return settled(answers, photo, points_per_side=4)


def settled(answers, image, **given):
    """Settings at which each filter has something to do, and nothing lies within rounding of a threshold."""
    chosen = ANY | {"box_nms_thresh": 1, "crop_nms_thresh": 1} | given
    for name, kind, low, high in (
        ("mask_threshold", "logits", 0.988, 0.992),
        ("pred_iou_thresh", "iou", 0.1, 0.3),
        ("stability_score_thresh", "stability", 0.1, 0.3),
        ("box_nms_thresh", "nms", 0.6, 0.9),
        ("crop_nms_thresh", "crop_nms", 0.05, 0.4),
    ):
        judged = reference.generate(answers, image, reference.Settings(**chosen | UNCLEAN)).judged[kind]
        if len(judged):
            values = np.unique(np.concatenate([np.ravel(value) for value in judged]))
            least, most = (low, high) if "nms" in kind else np.quantile(values, (low, high))
            values = np.array([least, *values[(values > least) & (values < most)], most])
            widest = np.diff(values).argmax()
            assert np.diff(values)[widest] > LEAST_GAP
            chosen[name] = float(values[widest : widest + 2].mean())
    return chosen


def call(stage, *images, **columns):
    given = {"height": [len(image) for image in images], "width": [image.shape[1] for image in images]} | columns
    return stage(pa.table({stage.pixels: pack(list(images))} | given).select(stage.inputs))


def found(stage, *images, **columns):
    return call(stage, *images, **columns)["masks"].to_pylist()


def iou(a, b):
    return (a & b).sum() / max(1, (a | b).sum())


def assert_same(masks, expected):
    """Masks of the stage and of the reference, in their order."""
    assert len(masks) == len(expected.masks)
    for number, mask in enumerate(masks):
        pixels = decode(mask["segmentation"])
        assert pixels.shape == expected.masks[number].shape
        assert iou(pixels, expected.masks[number]) >= 0.99
        assert mask["predicted_iou"] == pytest.approx(expected.scores[number], abs=1e-3)
        assert mask["stability_score"] == pytest.approx(expected.stabilities[number], abs=0.01)
        assert (mask["point"]["x"], mask["point"]["y"]) == pytest.approx(expected.points[number])


def assert_whole(mask, image):
    """A mask's numbers are those of its pixels."""
    pixels = decode(mask["segmentation"])
    assert mask["area"] == pixels.sum()
    expected = np.array(reference.box_of(pixels)) / np.tile(pixels.shape[::-1], 2) if pixels.any() else np.zeros(4)
    assert np.allclose(list(mask["box"].values()), expected)


# The same as the published algorithm


def test_the_grid_finds_what_the_published_algorithm_finds(make, answers, photo):
    given = settled(answers, photo, points_per_side=5)
    expected = reference.generate(answers, photo, reference.Settings(**given))
    assert len(expected.masks) >= 10
    assert min(expected.dropped[name] for name in ("iou", "stability", "nms")) >= 1, expected.dropped
    masks = found(make(**given), photo)[0]
    assert_same(masks, expected)
    for mask in masks:
        assert_whole(mask, photo)


@pytest.mark.heavy
def test_crops_find_what_the_published_algorithm_finds(make, answers):
    image = cv2.imread(str(media("categories/sam_truck.jpg")))[:, :, ::-1]
    photo = np.ascontiguousarray(cv2.resize(image, (320, 240), interpolation=cv2.INTER_AREA))
    given = {"crop_n_layers": 1, "points_per_side": 6, "crop_n_points_downscale_factor": 2, "min_mask_region_area": 12}
    given = settled(answers, photo, **given)
    expected = reference.generate(answers, photo, reference.Settings(**given))
    assert len(expected.masks) >= 10
    assert min(expected.dropped[name] for name in ("iou", "stability", "nms", "edge", "crop_nms")) >= 1, (
        expected.dropped
    )
    assert np.abs(np.array(expected.judged["edge"]) - 20).min() > 1e-6
    assert_same(found(make(**given), photo)[0], expected)


# The same as transformers' model


def independent(image):
    """What facebookresearch/sam2 does: in floating point, antialiased, in one pass over both axes."""
    levels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].double() / 255
    small = torch.nn.functional.interpolate(levels, (1024, 1024), mode="bilinear", antialias=True)
    return (small - torch.tensor(reference.MEAN).view(3, 1, 1)) / torch.tensor(reference.STD).view(3, 1, 1)


@pytest.mark.parametrize("name", ["categories/sam_truck.jpg", "categories/cat.bmp", "inpaint/bunny.jpeg"])
def test_pixels_are_prepared_as_published(name):
    image = np.asarray(Image.open(media(name)).convert("RGB"))
    ours = prepare([image], PREPARATION, Placement(), torch.float32).double()
    levels = torch.tensor(reference.STD).view(3, 1, 1) * 255
    by_pillow = ((ours - reference.pixel_values(image)) * levels).abs()
    by_meta = ((ours - independent(image)) * levels).abs()
    assert by_pillow.max() <= 2.01 and (by_pillow > 1.01).double().mean() < 1e-4
    assert by_meta.max() <= 2 and by_meta.mean() < 0.5, "whole levels against fractions of them"


@pytest.mark.heavy
def test_compiled_calls_say_the_same_and_compile_once(make, photo, chosen, monkeypatch):
    """Traced as on a GPU; code is not generated, which takes minutes here and is torch's own business."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    images = [photo, np.ascontiguousarray(photo[:, ::-1]), np.ascontiguousarray(photo[:60])]
    plain, compiled = make(**chosen), make(Placement(compile=True), **chosen)
    for stage in (plain, compiled):
        stage.chunk_rows["prompts"] = 12  # of 16: the last call is filled up
    counters.clear()
    for image in images:
        one, other = found(compiled, image)[0], found(plain, image)[0]
        assert len(one) == len(other) >= 3
        for a, b in zip(one, other, strict=True):
            assert iou(decode(a["segmentation"]), decode(b["segmentation"])) > 0.99
        assert counters["stats"]["unique_graphs"] == 2, "one that looks and one that answers"


@pytest.mark.heavy
def test_the_published_architecture_says_what_transformers_says(photo):
    """Tiny, 1024 px, drawn weights; in bfloat16 too, by what is left of the pictures' features."""
    from transformers import Sam2Config, Sam2Model

    net = Sam2(MODELS["sam2.1-hiera-tiny"], None, Placement())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Sam2Model(Sam2Config()).eval()
    pixels = independent(photo).float()
    with torch.no_grad():
        expected = model(pixel_values=pixels, input_points=torch.tensor(POINTS)[None, :, None] * 1024)
    features = net.look(pixels)
    for one, other in zip(features, expected.image_embeddings, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    points, labels = torch.tensor(POINTS)[:, None], torch.ones(len(POINTS), 1, dtype=torch.long)
    logits, scores = net.answer(features, points, labels, several=True, rows=64)
    assert torch.allclose(logits, expected.pred_masks[0], atol=1e-5)
    assert torch.allclose(scores, expected.iou_scores[0], atol=1e-5)
    half = Sam2(MODELS["sam2.1-hiera-tiny"], None, Placement(precision="bf16")).look(pixels.bfloat16())
    for one, other in zip(half, features, strict=True):
        assert torch.nn.functional.cosine_similarity(one.float(), other, dim=1).min() > 0.99


def test_boxes_and_single_masks_are_what_transformers_says(make, plain, photo):
    pixels = prepare([photo], TOY.preparation, Placement(), torch.float32)
    with torch.no_grad():
        seen = plain.get_image_embeddings(pixels)
    for several in (True, False):
        with torch.no_grad():
            answer = plain(
                image_embeddings=list(seen), input_boxes=torch.tensor(BOXES)[None] * TOY.side, multimask_output=several
            )
        best = answer.iou_scores[0].argmax(1)
        stage = make(prompts="boxes", prompt_column="faces", multimask_output=several, mask_size="low")
        rows = [[{"box": dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)), "score": 1.0} for box in BOXES]]
        masks = found(stage, photo, faces=rows)[0]
        assert len(masks) == len(BOXES)
        for number, mask in enumerate(masks):
            expected = answer.pred_masks[0, number, best[number]].numpy() > 0
            assert iou(decode(mask["segmentation"]), expected) > 0.999
            assert mask["predicted_iou"] == pytest.approx(float(answer.iou_scores[0, number, best[number]]), abs=1e-4)
            assert mask["point"] is None


def test_several_points_of_one_thing_are_one_prompt(make, plain, photo):
    rows = [
        {"x": x, "y": y, "label": label, "object": thing}
        for (x, y), label, thing in zip(POINTS, (1, 1, 0, 1), (7, 8, 7, 7), strict=True)
    ]
    masks = found(make(prompts="points", prompt_column="p", mask_size="low"), photo, p=[rows])[0]
    assert [round(mask["point"]["x"], 3) for mask in masks] == [0.2, 0.7]
    with torch.no_grad():
        answer = plain(
            pixel_values=prepare([photo], TOY.preparation, Placement(), torch.float32),
            input_points=torch.tensor([[[POINTS[0], POINTS[2], POINTS[3]]]]) * TOY.side,
            input_labels=torch.tensor([[[1, 0, 1]]]),
        )
    expected = answer.pred_masks[0, 0, answer.iou_scores[0, 0].argmax()].numpy() > 0
    assert iou(decode(masks[0]["segmentation"]), expected) > 0.999
    assert iou(decode(masks[1]["segmentation"]), expected) < 0.98, "the other prompt is another"


@pytest.mark.parametrize("name", [name for name in MODELS if name != "toy"])
def test_the_size_of_a_saved_model_is_the_published_one(name):
    """A file of safetensors is a header in JSON, filled up to eight bytes, and the bytes of the tensors."""
    from transformers import Sam2VideoConfig, Sam2VideoModel

    with torch.device("meta"):
        state = Sam2VideoModel(Sam2VideoConfig(vision_config=vision(MODELS[name]))).state_dict()
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for key in sorted(state):
        end = offset + state[key].numel() * 4
        header[key] = {"dtype": "F32", "shape": list(state[key].shape), "data_offsets": [offset, end]}
        offset = end
    length = len(json.dumps(header, separators=(",", ":")))
    assert 8 + -(-length // 8) * 8 + offset == default_lock()[name].bytes


# Parts, against loops


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(0, 40), threshold=st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0]))
def test_suppression_is_the_greedy_rule(seed, count, threshold):
    draw = np.random.default_rng(seed)
    low = draw.integers(0, 6, (count, 2))
    boxes = np.concatenate([low, low + draw.integers(1, 6, (count, 2))], axis=1).astype(float)
    scores = draw.integers(0, 5, count) / 4  # many ties
    kept = proposals.apart(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
    assert kept.tolist() == reference.suppressed(boxes.tolist(), scores.tolist(), threshold)


def test_suppression_of_many_boxes_goes_in_parts(monkeypatch):
    draw = np.random.default_rng(0)
    low = draw.random((500, 2))
    boxes, scores = np.concatenate([low, low + draw.random((500, 2)) / 2], axis=1), draw.random(500)
    monkeypatch.setattr(proposals, "ROWS", 64)
    kept = proposals.apart(torch.from_numpy(boxes), torch.from_numpy(scores), 0.5)
    assert kept.tolist() == reference.suppressed(boxes.tolist(), scores.tolist(), 0.5)
    assert 10 < len(kept) < 400


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), least=st.integers(1, 40), share=st.sampled_from([0.05, 0.4, 0.6, 0.95]))
def test_cleaning_is_flood_filling(seed, least, share):
    mask = np.random.default_rng(seed).random((12, 17)) < share
    changed, expected = reference.without_small_regions(mask, least)
    after = proposals.cleaned(mask, least)
    assert changed <= (after is not mask)
    if 0 < expected.sum() < least:  # all islands are small, and of equally large ones any may stay
        near = cv2.dilate(after.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        assert after.sum() == expected.sum() and not (near & mask & ~after).any()
    else:
        assert (after == expected).all()


@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 4000), width=st.integers(1, 4000), layers=st.integers(0, 3), overlap=st.floats(0, 0.99))
def test_crops_are_the_published_ones_and_hold_pixels(height, width, layers, overlap):
    ours = [(layer, *box) for layer, box in proposals.crops(height, width, layers, overlap)]
    theirs = reference.crop_boxes(height, width, layers, overlap)
    assert ours == [one for one in theirs if one[1] < one[3] and one[2] < one[4]]


# Prompts


@pytest.mark.heavy
def test_prompts_in_files_and_columns_say_the_same(make, photo, tmp_path):
    rows = [{"media_id": "a.jpg", "frame_index": index % 2, "x": x, "y": y} for index, (x, y) in enumerate(POINTS)]
    rows.append({"media_id": "007", "frame_index": 0, "x": 0.5, "y": 0.5})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    lines = ["media_id,frame_index,x,y", *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {"media_id": ["a.jpg", "a.jpg", "007", "b.jpg"], "frame_index": pa.array([1, 0, 0, 0], pa.int32())}
    column = [[rows[1], rows[3]], [rows[0], rows[2]], [rows[4]], None]
    column = [values and [{"x": one["x"], "y": one["y"]} for one in values] for values in column]
    given = {"prompts": "points", "mask_size": "low"}
    expected = found(make(**given, prompt_column="p"), *[photo] * 4, p=column)
    assert [len(masks) for masks in expected] == [2, 2, 1, 0]
    for ending in ("parquet", "csv", "jsonl"):
        stage = make(**given, prompt_file=str(tmp_path / f"p.{ending}"))
        assert stage.files == (str(tmp_path / f"p.{ending}"),)
        assert found(stage, *[photo] * 4, **keys) == expected, ending


def test_prompts_without_a_frame_go_for_all(make, photo, tmp_path):
    (tmp_path / "p.csv").write_text("media_id,x0,y0,x1,y1\na,0.1,0.1,0.9,0.8\n")
    stage = make(prompts="boxes", prompt_file=str(tmp_path / "p.csv"), mask_size="low")
    assert call(stage, photo, photo, media_id=["a", "b"], frame_index=[5, 5])["mask_count"].to_pylist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.csv", "media_id,x\na,0.1\n", "no column 'y'"),
        ("p.jsonl", '{"media_id": "a", "x": 0.1}\n', "no column 'y'"),
        ("p.csv", "media_id,x,y\na,200,0.1\n", "shares of the frame"),
        ("p.csv", "media_id,x,y,label\na,0.2,0.1,3\n", "label must be 0 or 1"),
    ],
)
def test_files_of_prompts_that_make_no_sense_are_refused(make, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        make(prompts="points", prompt_file=str(tmp_path / name))


def test_a_prompt_without_a_place_is_refused(make, photo):
    with pytest.raises(ValueError, match="lacks a number for one of x, y"):
        call(make(prompts="points", prompt_column="p"), photo, p=[[{"x": 0.5, "y": None}]])


# How it is asked, and what is kept


def test_sizes_of_chunks_change_nothing(make, photo, chosen):
    given = chosen | {"points_per_side": 3}
    expected = found(make(**given), photo)[0]
    assert len(expected) >= 3
    stage = make(**given)
    stage.chunk_rows.update(prompts=2, masks=1, views=2)
    masks = found(stage, photo)[0]
    assert len(masks) == len(expected)
    for one, other in zip(masks, expected, strict=True):
        assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.99


def test_frames_do_not_depend_on_their_neighbours(make, photo, chosen):
    images = [photo, np.ascontiguousarray(photo[:, ::-1]), np.ascontiguousarray(photo[:50])]
    stage = make(**chosen)
    together = call(stage, *images).to_pylist()
    assert together == [call(stage, image).to_pylist()[0] for image in images]
    assert call(stage, *images[::-1]).to_pylist() == together[::-1]


def test_fast_is_fewer_points_and_the_low_grid(make, photo):
    fast, slow = Segment.Config(fast=True), Segment.Config(points_per_side=16, mask_size="low")
    assert (fast.side(0), fast.low) == (slow.side(0), slow.low) == (16, True)
    assert Segment.Config(fast=True, points_per_side=2).side(0) == 2
    given = {"box_nms_thresh": 1, **ANY}
    masks = found(make(fast=True, **given), photo)[0]
    assert masks == found(make(mask_size="low", **given), photo)[0]
    assert {tuple(mask["segmentation"]["size"]) for mask in masks} == {(64, 64)}
    whole = found(make(**given), photo)[0]
    assert {tuple(mask["segmentation"]["size"]) for mask in whole} == {SIZE}
    for small, large in zip(masks, whole, strict=True):
        pixels = cv2.resize(decode(small["segmentation"]).astype(np.uint8), SIZE[::-1], interpolation=cv2.INTER_AREA)
        assert small["predicted_iou"] == large["predicted_iou"]
        assert iou(pixels > 0, decode(large["segmentation"])) > 0.7


def test_only_the_best_are_kept_best_first(make, photo):
    given = {"box_nms_thresh": 1, **ANY}
    masks = found(make(**given), photo)[0]
    scores = [mask["predicted_iou"] for mask in masks]
    assert len(masks) == 12 and scores == sorted(scores, reverse=True)
    assert found(make(max_masks=4, **given), photo)[0] == masks[:4]
    assert len(found(make(multimask_output=False, **given), photo)[0]) == 4


def test_masks_have_the_frames_size_whatever_was_read(make, photo):
    stage = make(size=64, box_nms_thresh=1, **ANY)
    assert stage.inputs == ("frame_64", "height", "width")
    half = cv2.resize(photo, (80, 60), interpolation=cv2.INTER_AREA)
    masks = found(stage, half, height=[120], width=[160])[0]
    assert {tuple(mask["segmentation"]["size"]) for mask in masks} == {SIZE}
    crops = make(size=64, crop_n_layers=1, points_per_side=1, crop_nms_thresh=1, box_nms_thresh=1, **ANY)
    for mask in found(crops, half, height=[120], width=[160])[0]:
        assert mask["segmentation"]["size"] == list(SIZE)
        assert_whole(mask, photo)


def test_no_rows_give_no_rows(make):
    stage = make()
    table = call(stage)
    assert table.num_rows == 0
    assert table.schema.equals(stage.outputs, check_metadata=True)


@pytest.mark.parametrize("size", [(1, 1), (8, 300), (300, 8), (40, 4000)])
def test_odd_shapes_are_answered(make, size):
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    stage = make(points_per_side=1, crop_n_layers=1, crop_nms_thresh=1, box_nms_thresh=1, min_mask_region_area=4, **ANY)
    (row,) = call(stage, noise).to_pylist()
    assert row["mask_count"] == len(row["masks"])
    for mask in row["masks"]:
        assert mask["segmentation"]["size"] == list(size)
        assert_whole(mask, noise)


def test_a_gpu_says_the_same(make, photo, chosen):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    expected = found(make(points_per_side=4, **chosen), photo)[0]
    masks = found(make(Placement(device="cuda"), points_per_side=4, **chosen), photo)[0]
    assert len(masks) == len(expected)
    for one, other in zip(masks, expected, strict=True):
        assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.95


# Declarations and set-up


def test_settings_shape_the_declarations():
    assert Segment().inputs == ("frame_1024", "height", "width")
    assert Segment().weights == ("sam2.1-hiera-large",)
    assert Segment().files == ()
    asked = Segment.Config(prompts="boxes", prompt_column="faces", model="sam2.1-hiera-tiny", size=0)
    stage = pickle.loads(pickle.dumps(Segment(asked)))
    assert stage.inputs == (pixels_of(0), "height", "width", "faces")
    filed = Segment(Segment.Config(prompts="points", prompt_file="p.csv"))
    assert filed.inputs == ("frame_1024", "height", "width", "media_id", "frame_index")
    assert {name for name in MODELS if name != "toy"} <= set(default_lock())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": "sam3"}, "no model 'sam3'"),
        ({"points_per_side": 0}, "points_per_side must be at least 1"),
        ({"max_masks": 0}, "max_masks must be at least 1"),
        ({"size": -1}, "size must be at least 0"),
        ({"box_nms_thresh": 1.5}, "box_nms_thresh must lie between 0 and 1"),
        ({"prompts": "points"}, "need either prompt_column or prompt_file"),
        ({"prompt_column": "faces"}, "prompts must be points or boxes"),
        ({"prompts": "boxes", "prompt_column": "f", "crop_n_layers": 1}, "crop_n_layers"),
        ({"prompts": "boxes", "prompt_file": "a.txt"}, "prompt_file must end in"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Segment.Config(**wrong)


def test_weights_are_those_of_sam_and_all_of_them(toy_file, tmp_path):
    state = load_file(toy_file)
    save_file(state | {"memory_attention.layer_norm.weight": torch.ones(1)}, tmp_path / "video.safetensors")
    Sam2(TOY, tmp_path / "video.safetensors", Placement())
    save_file(state | {"lm_head.weight": torch.ones(1)}, tmp_path / "more.safetensors")
    with pytest.raises(ValueError, match=r"more\.safetensors holds.* lm_head\.weight"):
        Sam2(TOY, tmp_path / "more.safetensors", Placement())
    state.pop("mask_decoder.iou_token.weight")
    save_file(state, tmp_path / "less.safetensors")
    with pytest.raises(ValueError, match=r"less\.safetensors lacks mask_decoder\.iou_token\.weight"):
        Sam2(TOY, tmp_path / "less.safetensors", Placement())


def test_the_drawing_is_masks_with_their_holes(make, photo):
    stage = make(box_nms_thresh=1, **ANY)
    row = call(stage, photo).to_pylist()[0]
    drawing = stage.preview(row)
    assert drawing.caption == "12 masks"
    assert [area.colour for area in drawing.areas] == list(range(12))
    assert all(0 <= value <= 1 for area in drawing.areas for ring in area.rings for place in ring for value in place)
    square = np.zeros((50, 100), bool)
    square[10:30, 20:60] = True
    square[15:25, 30:40] = False
    from stages.nets.masks import encode

    (code,) = encode([square])
    drawing = stage.preview({"masks": [{"segmentation": code, "area": 700}], "mask_count": 1})
    (area,) = drawing.areas
    outer, hole = ([(x * 100 - 0.5, y * 50 - 0.5) for x, y in ring] for ring in area.rings)
    assert {(round(x), round(y)) for x, y in outer} == {(20, 10), (59, 10), (59, 29), (20, 29)}
    assert all(28.9 < x < 40.1 and 13.9 < y < 25.1 for x, y in hole) and drawing.caption == "1 mask"
    assert stage.preview({"masks": [], "mask_count": 0}) is None


# At the real size


MEMORY = """
import json, sys, numpy as np, pyarrow as pa, torch
from dataclasses import replace
from pathlib import Path
from pipeline.columns import pack
from pipeline.stage import Placement
from stages.nets.sam2 import MODELS
from stages.segment import Segment
from tests.memory import peak_mb
from tests.sam_weights import TOY
torch.set_num_threads(2)
MODELS["toy"] = replace(TOY, side=128)
stage = Segment(Segment.Config(model="toy", size=0, max_masks=96, **json.loads(sys.argv[2])))
stage.setup({"toy": Path(sys.argv[1])}, Placement())
noise = np.random.default_rng(0).integers(0, 256, (2160, 3840, 3), dtype=np.uint8)
batch = pa.table({"frame": pack([noise]), "height": [2160], "width": [3840]})
before = peak_mb()
table = stage(batch)
print(peak_mb() - before, table["mask_count"][0], stage.clock.seconds)
"""


@pytest.mark.heavy
def test_a_4k_photo_with_many_prompts_stays_small(toy_file):
    """1,024 prompts, of whose 3,072 masks 96 are written; more would only repeat that, in parts of the same size.

    The model says its masks on a grid of 32. On one of 256, those of all prompts take .8 GB, twice that while they are
    joined, and 64 prompts in float32 2.4 GB: 8 GB less these 4 are left for what is tested here.
    """
    given = json.dumps(ANY | {"box_nms_thresh": 1, "mask_threshold": -1000})
    command = [sys.executable, "-c", MEMORY, str(toy_file), given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    grown, count = done.stdout.split()[:2]
    assert count == "96"
    assert float(grown) < 4000


@pytest.mark.slow
def test_the_engine_writes_what_the_stage_says(framemill, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "cat.bmp").write_bytes(media("categories/cat.bmp").read_bytes())
    given = {"model": "sam2.1-hiera-tiny", "points_per_side": 1, "fast": True, "box_nms_thresh": 1.0, **ANY}
    step = {"use": "stages.segment:Segment", "with": given}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({"steps": {"segment": step}}))
    places = ("--pipeline", tmp_path / "pipeline.yaml", "--input", tmp_path / "in", "--output", tmp_path / "out")
    framemill("run", *places, "--missing-weights", "dummy")
    (written,) = pq.read_table(tmp_path / "out" / "frames").select(["masks", "mask_count"]).to_pylist()
    stage = Segment(Segment.Config(**given))
    stage.setup({}, Placement())
    listed = list_media(str(tmp_path / "in"))
    units = cover(Store(str(tmp_path / "units")), listed, listed, slots=1)
    packets = [p.rows for u in units for p in decode_media(u, (stage.pixels,), 0, DecodeConfig())]
    (rows,) = [rows for rows in packets if rows.num_rows]
    (direct,) = stage(rows.select(stage.inputs)).to_pylist()
    assert written["mask_count"] == direct["mask_count"] == 3
    for one, other in zip(written["masks"], direct["masks"], strict=True):
        assert one["predicted_iou"] == pytest.approx(other["predicted_iou"], abs=1e-5)
        assert iou(decode(one["segmentation"]), decode(other["segmentation"])) > 0.999
