"""CLIP and SigLIP2 with random weights at the published widths, against the reference's own forward pass.

No real weights are beside this checkout, so what a category means is not tested here: only that each number is the one
that the reference implementations make of the same weights, pictures and words.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from framekiln.contract.placement import Placement
from framekiln.weights.resolver import default_lock
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.nets.clip.architectures import MODELS, OPENAI, SIGLIP
from framekiln_stages.nets.clip.towers import model_and_config, siglip_tokens
from tests.device.test_device import of_pillow
from tests.support.media.clip_factory import TINY, bpe, call, distribution, embeddings, reference, stage_of

WORDS = {"categories": {"people": ("a person", "a group"), "food": ("a meal",)}, "templates": ("a photo of {}.", "{}")}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """ViT-B/32 at its full size, and its file."""
    model = reference(MODELS["clip-vit-b32"])
    path = tmp_path_factory.mktemp("weights") / "b32.safetensors"
    save_file(model.state_dict(), path)
    return model, path


@pytest.fixture(scope="module")
def full(published):
    return stage_of(published[1], keep_embedding=True, **WORDS)


# Against the reference


def pixels_of(images, how):
    """Preprocess images with Pillow and the published mean and deviation."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (how.mean, how.std))
    levels = torch.from_numpy(np.stack([of_pillow(image, how) for image in images])).float().permute(0, 3, 1, 2)
    return (levels / 255 - mean) / std


def zero_shot(model, tokenizer, images, prompts, how):
    """Return image embeddings and probabilities from the model's forward pass, one category at a time."""
    texts = []
    pixels = pixels_of(images, how)
    for sentences in prompts.values():
        encoded = tokenizer(sentences, padding=True, return_tensors="pt")
        out = model(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], pixel_values=pixels[:1])
        mean = out.text_embeds.mean(dim=0)
        texts.append(mean / mean.norm())
    image = model.get_image_features(pixel_values=pixels).pooler_output
    image = image / image.norm(dim=-1, keepdim=True)
    logits = model.logit_scale.exp() * image @ torch.stack(texts).T
    return image.numpy(), logits.softmax(dim=1).numpy()


@pytest.fixture(scope="module")
def truth(published, album):
    from transformers import CLIPTokenizer

    from framekiln_stages.nets.clip.towers import read_merges, vocabulary

    merges = read_merges(bpe())
    tokenizer = CLIPTokenizer(vocab=vocabulary(merges), merges=merges)
    with torch.inference_mode():
        return zero_shot(published[0], tokenizer, album, Categorize.Config(**WORDS).prompts(), OPENAI)


def agreement(table, truth):
    """Return the smallest cosine of embeddings, and the largest difference of probabilities."""
    found = embeddings(table)
    expected, probabilities = truth
    cosine = (found * expected).sum(1) / np.linalg.norm(found, axis=1)
    rows = [[row[name] for name in WORDS["categories"]] for row in distribution(table)]
    return cosine.min(), np.abs(np.array(rows) - probabilities).max()


@pytest.mark.heavy
def test_vit_b32_in_fp32_equals_the_reference(full, album, truth):
    cosine, off = agreement(call(full, *album), truth)
    assert cosine >= 0.9999
    assert off <= 1e-5
    across = truth[0] @ truth[0].T
    assert across[np.triu_indices(len(album), 1)].min() < 0.98, "the images must differ"
    assert np.ptp(truth[1], axis=0).max() > 1e-3, "their probabilities must differ"


@pytest.mark.heavy
def test_vit_l14_equals_the_reference(album, monkeypatch):
    """One image through two of its layers: with the same seed, transformers has the same weights."""
    large = MODELS["clip-vit-l14"]
    short = replace(large, text=(*large.text[:2], 1, 12), vision=(*large.vision[:2], 2, 16))
    monkeypatch.setitem(MODELS, "clip-vit-l14", short)
    model = reference(short)
    with torch.inference_mode():
        expected = model.get_image_features(pixel_values=pixels_of(album[:1], OPENAI)).pooler_output[0].numpy()
    del model
    stage = Categorize(Categorize.Config(keep_embedding=True, categories=("cat", "dog"), templates=("{}",)))
    stage.setup({}, Placement())
    (found,) = embeddings(call(stage, album[0]))
    assert found @ expected / np.linalg.norm(found) / np.linalg.norm(expected) >= 0.9999


@pytest.mark.heavy
def test_vit_b32_in_bf16_stays_close(published, album, truth):
    stage = stage_of(published[1], keep_embedding=True, placement=Placement(precision="bf16"), **WORDS)
    cosine, off = agreement(call(stage, *album), truth)
    assert cosine >= 0.999
    assert 1e-6 < off <= 5e-3, "not in bf16, or too far off"


@pytest.mark.parametrize(
    ("model", "count"), [("clip-vit-b32", 151277313), ("clip-vit-l14", 427616513), ("siglip2-base", 375187970)]
)
def test_architectures_have_the_published_number_of_parameters(model, count):
    kind, config = model_and_config(MODELS[model])
    with torch.device("meta"):
        network = kind(config)
    assert sum(value.numel() for value in network.parameters()) == count
    left = default_lock()[model].bytes - 4 * count
    assert 0 < left < 100_000, "the published file has only a header besides"


def test_siglip_equals_the_reference(tmp_path, album, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<eos>", "<bos>", "<unk>", "a", "photo", "of", "cat", "rocket", "."]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr("framekiln_stages.categorize.stage.MODELS", TINY)
    model = reference(TINY["siglip2-base"])
    with torch.no_grad():
        model.logit_bias.fill_(-1.0)
    save_file(model.state_dict(), tmp_path / "siglip.safetensors")
    stage = stage_of(
        tmp_path / "siglip.safetensors",
        tokenizer=tmp_path / "tokenizer.json",
        model="siglip2-base",
        categories=("CAT", "rocket"),
        templates=("A photo of {}.",),
    )
    ids = torch.zeros((2, 64), dtype=torch.int64)
    ids[:, :6] = torch.tensor([[4, 5, 6, 7, 9, 1], [4, 5, 6, 8, 9, 1]])
    with torch.inference_mode():
        expected = model(input_ids=ids, pixel_values=pixels_of(album, SIGLIP)).logits_per_image.sigmoid().numpy()
    found = [[row["CAT"], row["rocket"]] for row in distribution(call(stage, *album))]
    assert np.abs(np.array(found) - expected).max() < 1e-4
    assert np.ptp(expected) > 1e-2
    with pytest.raises(ValueError, match="66 tokens, .* 64"):
        siglip_tokens(tmp_path / "tokenizer.json")(["cat " * 65])
