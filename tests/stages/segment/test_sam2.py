"""SAM 2.1: the same results as transformers' model with the same weights; other weights are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from framekiln.contract.placement import Placement
from framekiln.device import prepare
from framekiln.weights.resolver import default_lock
from framekiln_stages.nets.sam2.image import MODELS, PREPARATION, Sam2, encoder_config
from framekiln_stages.shared.masks import decode
from tests.support.media.photos import PHOTOS, photo
from tests.support.stages.sam import image_reference as reference
from tests.support.stages.sam.segment_factory import POINTS, found, iou, small_photo, stage_of
from tests.support.stages.sam.weights import TOY

BOXES = [(0.1, 0.2, 0.6, 0.7), (0.5, 0.1, 0.95, 0.5), (0, 0, 1, 1)]


@pytest.fixture(scope="module")
def plain(sam_file):
    return reference.plain(sam_file)


def independent(image):
    """Preprocess as facebookresearch/sam2: in floating point, antialiased, in one pass over both axes."""
    levels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].double() / 255
    small = torch.nn.functional.interpolate(levels, (1024, 1024), mode="bilinear", antialias=True)
    return (small - torch.tensor(reference.MEAN).view(3, 1, 1)) / torch.tensor(reference.STD).view(3, 1, 1)


@pytest.mark.parametrize("name", PHOTOS)
def test_pixels_are_prepared_as_published(name):
    image = photo(name)
    ours = prepare([image], PREPARATION, Placement(), torch.float32).double()
    levels = torch.tensor(reference.STD).view(3, 1, 1) * 255
    by_pillow = ((ours - reference.pixel_values(image)) * levels).abs()
    by_meta = ((ours - independent(image)) * levels).abs()
    assert by_pillow.max() <= 2.01 and (by_pillow > 1.01).double().mean() < 1e-4
    assert by_meta.max() <= 2 and by_meta.mean() < 0.5, "rounded levels against fractions"


@pytest.mark.heavy
def test_the_published_architecture_equals_transformers():
    """Tiny, 1024 px, random weights; in bfloat16 too, by the features of half the side."""
    from transformers import Sam2Config, Sam2Model

    net = Sam2(MODELS["sam2.1-hiera-tiny"], None, Placement())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Sam2Model(Sam2Config()).eval()
    pixels = independent(small_photo()).float()
    with torch.no_grad():
        expected = model(pixel_values=pixels, input_points=torch.tensor(POINTS)[None, :, None] * 1024)
    features = net.encode(pixels)
    for one, other in zip(net.levels(features), expected.image_embeddings, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    points, labels = torch.tensor(POINTS)[None, :, None], torch.ones(1, len(POINTS), 1, dtype=torch.long)
    logits, scores = net.decode(features, points, labels, several=True, rows=1)
    assert torch.allclose(logits, expected.pred_masks, atol=1e-5)
    assert torch.allclose(scores, expected.iou_scores, atol=1e-5)
    smaller = replace(MODELS["sam2.1-hiera-tiny"], side=512)
    full, half = (Sam2(smaller, None, Placement(precision=name)) for name in ("fp32", "bf16"))
    pixels = pixels[..., ::2, ::2]
    for one, other in zip(half.levels(half.encode(pixels.bfloat16())), full.levels(full.encode(pixels)), strict=True):
        assert torch.nn.functional.cosine_similarity(one.float(), other, dim=1).min() > 0.99


def test_features_equal_transformers_bit_by_bit(sam, plain):
    pixels, net = prepare([small_photo()], TOY.preparation, Placement(), torch.float32), Sam2(TOY, sam, Placement())
    with torch.inference_mode():
        expected = plain.get_image_embeddings(pixels)
        found = net.levels(net.encode(pixels))
    assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True] * 3


def test_boxes_and_single_masks_equal_transformers(sam, plain):
    pixels = prepare([small_photo()], TOY.preparation, Placement(), torch.float32)
    with torch.no_grad():
        seen = plain.get_image_embeddings(pixels)
    for several in (True, False):
        with torch.no_grad():
            answer = plain(
                image_embeddings=list(seen), input_boxes=torch.tensor(BOXES)[None] * TOY.side, multimask_output=several
            )
        best = answer.iou_scores[0].argmax(1)
        stage = stage_of(sam, prompts="boxes", prompt_column="faces", multimask_output=several, mask_size="low")
        rows = [[{"box": dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)), "score": 1.0} for box in BOXES]]
        masks = found(stage, small_photo(), faces=rows)[0]
        assert len(masks) == len(BOXES)
        for number, mask in enumerate(masks):
            expected = answer.pred_masks[0, number, best[number]].numpy() > 0
            assert iou(decode(mask["segmentation"]), expected) > 0.999
            assert mask["predicted_iou"] == pytest.approx(float(answer.iou_scores[0, number, best[number]]), abs=1e-4)
            assert mask["point"] is None


def test_several_points_of_an_object_are_one_prompt(sam, plain):
    rows = [
        {"x": x, "y": y, "label": label, "object": thing}
        for (x, y), label, thing in zip(POINTS, (1, 1, 0, 1), (7, 8, 7, 7), strict=True)
    ]
    masks = found(stage_of(sam, prompts="points", prompt_column="p", mask_size="low"), small_photo(), p=[rows])[0]
    assert [round(mask["point"]["x"], 3) for mask in masks] == [0.2, 0.7]
    with torch.no_grad():
        answer = plain(
            pixel_values=prepare([small_photo()], TOY.preparation, Placement(), torch.float32),
            input_points=torch.tensor([[[POINTS[0], POINTS[2], POINTS[3]]]]) * TOY.side,
            input_labels=torch.tensor([[[1, 0, 1]]]),
        )
    expected = answer.pred_masks[0, 0, answer.iou_scores[0, 0].argmax()].numpy() > 0
    assert iou(decode(masks[0]["segmentation"]), expected) > 0.999
    assert iou(decode(masks[1]["segmentation"]), expected) < 0.98, "two prompts must differ"


# Files of weights


@pytest.mark.parametrize("name", MODELS)
def test_the_size_of_a_saved_model_is_the_published_one(name):
    """A file of safetensors is a header in JSON, padded to eight bytes, and the bytes of the tensors."""
    from transformers import Sam2VideoConfig, Sam2VideoModel

    with torch.device("meta"):
        state = Sam2VideoModel(Sam2VideoConfig(vision_config=encoder_config(MODELS[name]))).state_dict()
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for key in sorted(state):
        end = offset + state[key].numel() * 4
        header[key] = {"dtype": "F32", "shape": list(state[key].shape), "data_offsets": [offset, end]}
        offset = end
    length = len(json.dumps(header, separators=(",", ":")))
    assert 8 + -(-length // 8) * 8 + offset == default_lock()[name].bytes


def test_missing_and_unexpected_weights_are_refused(sam_file, tmp_path):
    state = load_file(sam_file)
    save_file(state | {"memory_attention.layer_norm.weight": torch.ones(1)}, tmp_path / "video.safetensors")
    Sam2(TOY, tmp_path / "video.safetensors", Placement())
    save_file(state | {"lm_head.weight": torch.ones(1)}, tmp_path / "more.safetensors")
    with pytest.raises(ValueError, match=r"more\.safetensors .*lm_head\.weight"):
        Sam2(TOY, tmp_path / "more.safetensors", Placement())
    state.pop("mask_decoder.iou_token.weight")
    save_file(state, tmp_path / "less.safetensors")
    with pytest.raises(ValueError, match=r"less\.safetensors .*mask_decoder\.iou_token\.weight"):
        Sam2(TOY, tmp_path / "less.safetensors", Placement())
