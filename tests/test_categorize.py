"""Categories: the published architecture with random weights, against the reference's own forward pass.

No real weights are beside this checkout, so what a category means is not tested here: only that each number is the one
that the reference implementations make of the same weights, pictures and words.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from pipeline.columns import KEYS, pack
from pipeline.engine import session
from pipeline.errors import ConfigError
from pipeline.job import Job, Order
from pipeline.ledger import cover
from pipeline.manifest import PipelineFile, ProfileFile, StepEntry
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.packet import Packet
from pipeline.plan import Choices
from pipeline.second import FRAMES
from pipeline.settings import build as build_stage
from pipeline.storage import Store
from pipeline.weights import default_lock
from stages.categorize import CATEGORIES, Categorize
from stages.nets import clip
from stages.nets.clip import MODELS, OPENAI, SIGLIP, TwoTowers, build, configured, read_state, siglip_encoder
from tests.material import media, weights
from tests.test_device import of_pillow

BPE = "bpe_simple_vocab_16e6.txt.gz"
PHOTOS = ("cat.bmp", "coffee.png", "rocket.jpg", "brick.png", "sunflower.bmp", "apple.jpg")
TINY = {
    "clip-vit-b32": replace(MODELS["clip-vit-b32"], dims=32, text=(32, 64, 2, 2), vision=(48, 96, 2, 2)),
    "siglip2-base": replace(MODELS["siglip2-base"], dims=48, text=(48, 96, 2, 2), vision=(48, 96, 2, 2)),
}


def read(name):
    return np.asarray(Image.open(media(name)).convert("RGB"))


def reference(architecture):
    """The model of transformers, with random weights that differ from run to run in nothing."""
    torch.manual_seed(0)
    kind, config = configured(architecture)
    return kind(config).eval()


def stage_of(path, device="cpu", tokenizer=None, **settings_):
    stage = Categorize(Categorize.Config(**settings_))
    model, words = stage.weights
    stage.setup({model: path, words: tokenizer or weights(BPE)}, device)
    return stage


def call(stage, *images):
    return stage(pa.table({stage.pixels: pack(list(images))}))


def embeddings(table):
    return np.stack([np.asarray(row, np.float64) for row in table["clip_embedding"].to_pylist()])


def distribution(table):
    """Probabilities by name of each row."""
    return [{item["name"]: item["probability"] for item in row} for row in table["categories"].to_pylist()]


@pytest.fixture(scope="module")
def album():
    photos = [read(f"categories/{name}") for name in PHOTOS]
    return [*photos, np.zeros((1, 1, 3), np.uint8), np.full((8, 300, 3), 90, np.uint8)]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """ViT-B/32 at its full size, and its file."""
    model = reference(MODELS["clip-vit-b32"])
    path = tmp_path_factory.mktemp("weights") / "b32.safetensors"
    save_file(model.state_dict(), path)
    return model, path


@pytest.fixture(scope="module")
def full(published):
    return stage_of(published[1], top_k=len(CATEGORIES), keep_embedding=True)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A stage of two small layers, quick enough for many calls; its weights are scaled up so that pictures differ."""
    monkeypatch.setattr(clip, "MODELS", TINY)
    monkeypatch.setattr("stages.categorize.MODELS", TINY)
    state = {name: value * 3 for name, value in reference(TINY["clip-vit-b32"]).state_dict().items()}
    state["logit_scale"] = torch.tensor(4.6)  # the trained model's: log 100
    save_file(state, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


# Against the reference


def pixels_of(images, how):
    """What Pillow and the publisher's mean and deviation make of pictures."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (how.mean, how.std))
    levels = torch.from_numpy(np.stack([of_pillow(image, how) for image in images])).float().permute(0, 3, 1, 2)
    return (levels / 255 - mean) / std


def zero_shot(model, tokenizer, images, prompts, how):
    """Image embeddings and probabilities, straight through the model's forward pass, one category at a time."""
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

    from stages.nets.clip_text import read_merges, vocabulary

    merges = read_merges(weights(BPE))
    tokenizer = CLIPTokenizer(vocab=vocabulary(merges), merges=merges)
    with torch.inference_mode():
        return zero_shot(published[0], tokenizer, album, Categorize.Config().prompts(), OPENAI)


def agreement(table, truth):
    """The smallest cosine of embeddings, and the largest difference of probabilities."""
    found = embeddings(table)
    expected, probabilities = truth
    cosine = (found * expected).sum(1) / np.linalg.norm(found, axis=1)
    rows = [[row[name] for name in CATEGORIES] for row in distribution(table)]
    return cosine.min(), np.abs(np.array(rows) - probabilities).max()


@pytest.mark.slow
def test_vit_b32_in_fp32_equals_the_reference(full, album, truth):
    cosine, off = agreement(call(full, *album), truth)
    assert cosine >= 0.9999
    assert off <= 1e-5
    across = truth[0] @ truth[0].T
    assert across[np.triu_indices(len(album), 1)].min() < 0.98, "pictures must differ for this to say anything"
    assert np.ptp(truth[1], axis=0).max() > 1e-3, "so must their probabilities"


@pytest.mark.slow
def test_vit_b32_in_bf16_stays_close(published, album, truth):
    stage = stage_of(published[1], top_k=len(CATEGORIES), keep_embedding=True, precision="bf16")
    cosine, off = agreement(call(stage, *album), truth)
    assert cosine >= 0.999
    assert 1e-6 < off <= 5e-3, "not bf16 at all, or too far off"


@pytest.mark.parametrize(
    ("model", "count"), [("clip-vit-b32", 151277313), ("clip-vit-l14", 427616513), ("siglip2-base", 375187970)]
)
def test_architectures_have_the_published_number_of_parameters(model, count):
    kind, config = configured(MODELS[model])
    with torch.device("meta"):
        made = kind(config)
    assert sum(value.numel() for value in made.parameters()) == count
    left = default_lock()[model].bytes - 4 * count
    assert 0 < left < 100_000, "the header is all that the published file holds besides"


def test_the_attention_is_fused(tiny):
    assert build(TINY["clip-vit-b32"], read_state(tiny)).vision_model.config._attn_implementation == "sdpa"


def test_siglip_equals_the_reference(tmp_path, album, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<eos>", "<bos>", "<unk>", "a", "photo", "of", "cat", "rocket", "."]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr("stages.categorize.MODELS", TINY)
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
    with pytest.raises(ValueError, match="66 tokens where the model reads 64"):
        siglip_encoder(tmp_path / "tokenizer.json")(["cat " * 65])


# Results depend on the picture and the words alone


@settings(max_examples=10, deadline=None)
@given(order=st.lists(st.integers(0, len(PHOTOS) + 1), max_size=9))
@pytest.mark.slow
def test_batches_and_their_order_change_nothing(full, album, order):
    alone = [call(full, image) for image in album]
    together = call(full, *(album[i] for i in order))
    assert together.num_rows == len(order)
    for row, i in zip(together.to_pylist(), order, strict=True):
        (own,) = alone[i].to_pylist()
        assert row["category"] == own["category"]
        assert np.allclose(row["clip_embedding"], own["clip_embedding"], atol=1e-3)  # a step of float16 below 1
        found, expected = ({c["name"]: c["probability"] for c in r["categories"]} for r in (row, own))
        assert all(abs(found[name] - expected[name]) < 1e-5 for name in CATEGORIES)


def test_the_same_call_gives_the_same_table(tiny, album):
    stage = stage_of(tiny, keep_embedding=True)
    assert call(stage, *album).equals(call(stage, *album))
    assert call(stage_of(tiny, keep_embedding=True), *album).equals(call(stage, *album))


def test_the_order_of_categories_and_phrases_changes_nothing(tiny, album):
    turned = {name: phrases[::-1] for name, phrases in reversed(CATEGORIES.items())}
    one, other = (call(stage_of(tiny, categories=words, top_k=99), *album[:3]) for words in (CATEGORIES, turned))
    for a, b in zip(distribution(one), distribution(other), strict=True):
        assert a.keys() == b.keys() == CATEGORIES.keys()
        assert all(abs(a[name] - b[name]) < 1e-4 for name in a)


@pytest.mark.slow
def test_a_run_gives_the_tables_of_direct_calls(published, full, collection, tmp_path, monkeypatch):
    lock = dict(default_lock())
    content = published[1].read_bytes()
    lock["clip-vit-b32"] = lock["clip-vit-b32"].model_copy(
        update={"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    )
    locate = importlib.import_module("pipeline.weights.locate")  # the package has a function of that name
    monkeypatch.setattr(locate, "default_lock", lambda: lock)
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "b32.safetensors").symlink_to(published[1])
    (folder / BPE).symlink_to(weights(BPE))
    settings_ = {"top_k": len(CATEGORIES), "keep_embedding": True}
    entry = {"use": "stages.categorize:Categorize", "with": settings_}
    order = Order(
        input=str(collection),
        output=str(tmp_path / "out"),
        pipeline=PipelineFile.model_validate({"steps": {"categorize": entry}}),
        profile=ProfileFile(),
        profile_name="none",
        choices=Choices(weights_dir=folder),
    )
    with session(None):
        assert Job(order).run().frames == 14
    rows = pq.ParquetDataset(tmp_path / "out" / FRAMES).read().to_pylist()
    media_ = list_media(str(collection))
    store = Store(str(tmp_path / "units"))
    packets = [
        p for unit in cover(store, media_, media_, slots=1) for p in decode(unit, full.inputs, 0, DecodeConfig())
    ]
    direct = {}
    for packet in (p for p in packets if p.rows.num_rows):
        for key, row in zip(packet.rows.select(KEYS).to_pylist(), full(packet.rows).to_pylist(), strict=True):
            direct[tuple(key.values())] = row
    assert {(row["media_id"], row["frame_index"]) for row in rows} == direct.keys()
    for row in rows:
        expected = direct[row["media_id"], row["frame_index"]]
        assert row["category"] == expected["category"]
        assert np.allclose(row["clip_embedding"], expected["clip_embedding"], atol=1e-3)
        assert abs(row["category_probability"] - expected["category_probability"]) < 1e-5


# What comes out


def test_probabilities_add_up_and_the_likeliest_come_first(tiny, album):
    everything = call(stage_of(tiny, top_k=99), *album)
    some = call(stage_of(tiny, top_k=2), *album)
    for whole, best in zip(everything.to_pylist(), some.to_pylist(), strict=True):
        found = [item["probability"] for item in whole["categories"]]
        assert abs(sum(found) - 1) < 1e-5
        assert found == sorted(found, reverse=True) and found[0] > found[-1]
        assert best["categories"] == whole["categories"][:2]
        assert (whole["category"], whole["category_probability"]) == tuple(whole["categories"][0].values())


def test_embeddings_have_length_one(tiny, album):
    lengths = np.linalg.norm(embeddings(call(stage_of(tiny, keep_embedding=True), *album)), axis=1)
    assert np.abs(lengths - 1).max() < 1e-3  # float16


def test_columns_survive_packets_and_parquet(tiny, album, tmp_path):
    stage = stage_of(tiny, keep_embedding=True)
    table = call(stage, *album)
    assert table.schema.equals(stage.outputs, check_metadata=True)
    assert stage.outputs.field("clip_embedding").type == pa.list_(pa.float16(), 32)
    table.validate(full=True)
    ids = pa.array(["m"] * len(album))
    sealed = Packet(unit="u", start=0, stop=len(album), rows=table.append_column("media_id", ids)).seal()
    assert Packet.open(sealed).rows.select(table.column_names).to_pylist() == table.to_pylist()
    pq.write_table(table.slice(1, 3), tmp_path / "part.parquet")
    assert pq.read_table(tmp_path / "part.parquet").to_pylist() == table.slice(1, 3).to_pylist()


def test_no_rows_give_no_rows(tiny):
    stage = stage_of(tiny, keep_embedding=True)
    assert call(stage).equals(stage.outputs.empty_table())


def test_the_caption_names_the_category(tiny, album):
    stage = stage_of(tiny)
    (row,) = call(stage, album[0]).to_pylist()
    assert stage.preview(row).caption.startswith(row["category"])
    assert stage.preview({"category": None}) is None


# Weights


def test_a_pickle_of_tensors_is_as_good_as_safetensors(tiny, tmp_path, album):
    torch.save(read_state(tiny), tmp_path / "tiny.bin")
    assert call(stage_of(tmp_path / "tiny.bin"), *album).equals(call(stage_of(tiny), *album))


class Trap:
    """An object that would write a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    torch.save({"logit_scale": Trap(tmp_path / "sprung")}, tmp_path / "trap.bin")
    with pytest.raises(pickle.UnpicklingError):
        read_state(tmp_path / "trap.bin")
    assert not (tmp_path / "sprung").exists()


def test_weights_that_lack_something_are_refused(tiny, tmp_path):
    state = read_state(tiny)
    del state["visual_projection.weight"]
    save_file(state, tmp_path / "less.safetensors")
    with pytest.raises(ValueError, match=r"visual_projection\.weight"):
        stage_of(tmp_path / "less.safetensors")


def test_weights_of_another_size_are_refused(tiny, tmp_path):
    state = read_state(tiny) | {"visual_projection.weight": torch.zeros(32, 40)}
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(RuntimeError):
        stage_of(tmp_path / "other.safetensors")


def test_position_ids_of_older_files_are_passed_over(tiny, tmp_path, album):
    state = read_state(tiny) | {"text_model.embeddings.position_ids": torch.arange(77)[None]}
    save_file(state, tmp_path / "old.safetensors")
    assert call(stage_of(tmp_path / "old.safetensors"), *album).equals(call(stage_of(tiny), *album))


def test_the_half_that_reads_text_is_let_go(tiny):
    towers = TwoTowers(TINY["clip-vit-b32"], tiny, weights(BPE), "cpu")
    assert torch.allclose(towers.texts(["a cat"] * 70).norm(dim=1), torch.ones(70))
    towers.keep_vision(torch.float32)
    assert not any(name.startswith("text_model") for name in towers._model.state_dict())


# Settings


def test_each_phrase_goes_into_each_template():
    config = Categorize.Config(categories={"pet": ("a cat", "a dog"), "car": ("a car",)}, templates=("{}", "see {}!"))
    assert config.prompts() == {"pet": ["a cat", "see a cat!", "a dog", "see a dog!"], "car": ["a car", "see a car!"]}
    names = Categorize.Config(categories=("cat", "dog"), templates=("a {}",))
    assert names.prompts() == {"cat": ["a cat"], "dog": ["a dog"]}


@pytest.mark.parametrize("words", [["cat", "dog"], {"cat": ["a cat", "a kitten"], "dog": ["a dog"]}])
def test_categories_are_read_from_a_pipeline_file(words):
    entry = StepEntry.model_validate({"use": "stages.categorize:Categorize", "with": {"categories": words}})
    stage = build_stage("categorize", entry, {})
    assert list(stage.config.phrases) == ["cat", "dog"]
    again = pickle.loads(pickle.dumps(stage))
    assert (again.config, again.outputs) == (stage.config, stage.outputs)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "clip-vit-b3"}, "no model"),
        ({"categories": ["cat"]}, "at least two"),
        ({"categories": ["cat", "cat"]}, "another name"),
        ({"categories": {"cat": [], "dog": ["a dog"]}}, "at least one phrase"),
        ({"templates": []}, "{} once"),
        ({"templates": ["a photo"]}, "{} once"),
        ({"top_k": 0}, "top_k"),
        ({"size": -1}, "size"),
        ({"precision": "int8"}, "precision"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    entry = StepEntry.model_validate({"use": "stages.categorize:Categorize", "with": wrong})
    with pytest.raises(ConfigError) as error:
        build_stage("categorize", entry, {})
    assert said in str(error.value)


def test_settings_shape_what_is_read_and_needed():
    stage = Categorize(Categorize.Config(size=0, model="clip-vit-l14", keep_embedding=True))
    assert stage.inputs == ("frame",)
    assert stage.weights == ("clip-vit-l14", "clip-bpe")
    assert stage.outputs.field("clip_embedding").type.list_size == 768
    assert Categorize().inputs == ("frame_512",)
    assert all({name, model.tokenizer} <= set(default_lock()) for name, model in MODELS.items())
