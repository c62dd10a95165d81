"""Categories: declared columns, checked weights, and invalid settings."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from framekiln.contract.placement import Placement
from framekiln.planning.manifest import StepEntry, read_pipeline
from framekiln.planning.stage_building import build as build_stage
from framekiln.runtime.stage_setup import set_up_stage
from framekiln.weights.lockfile import WeightsEntry
from framekiln.weights.resolver import default_lock
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.categorize.zero_shot import CATEGORIES
from framekiln_stages.nets.checkpoints import read_state
from framekiln_stages.nets.clip.architectures import MODELS
from framekiln_stages.nets.clip.towers import TwoTowers, build_model
from tests.support.media.clip_factory import TINY, bpe, call, distribution, embeddings, stage_of
from tests.support.media.photos import photo

# Results depend on the image and the phrases alone


def test_the_order_of_categories_and_phrases_changes_nothing(tiny, album):
    turned = {name: phrases[::-1] for name, phrases in reversed(CATEGORIES.items())}
    one, other = (call(stage_of(tiny, categories=words, top_k=99), *album[:3]) for words in (CATEGORIES, turned))
    for a, b in zip(distribution(one), distribution(other), strict=True):
        assert a.keys() == b.keys() == CATEGORIES.keys()
        assert all(abs(a[name] - b[name]) < 1e-4 for name in a)


# Columns


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


def test_the_shipped_pipeline_keeps_embeddings_of_images_and_not_of_masks():
    steps = {name: build_stage(name, read_pipeline(None).steps[name], {}) for name in ("categorize", "instances")}
    column = steps["categorize"].outputs.field("clip_embedding")
    assert column.type == pa.list_(pa.float16(), 768) and b"768 float16" in column.metadata[b"description"]
    assert "embedding" not in {item.name for item in steps["instances"].instance}


def test_the_caption_names_the_category(tiny, album):
    stage = stage_of(tiny)
    (row,) = call(stage, album[0]).to_pylist()
    assert stage.draw(row).caption.startswith(row["category"])
    assert stage.draw({"category": None}) is None


# Weights


def test_a_pickle_of_tensors_equals_safetensors(tiny, tmp_path, album):
    torch.save(read_state(tiny), tmp_path / "tiny.bin")
    assert call(stage_of(tmp_path / "tiny.bin"), *album).equals(call(stage_of(tiny), *album))


class Trap:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_with_code_is_refused(tmp_path):
    torch.save({"logit_scale": Trap(tmp_path / "sprung")}, tmp_path / "trap.bin")
    with pytest.raises(pickle.UnpicklingError):
        read_state(tmp_path / "trap.bin")
    assert not (tmp_path / "sprung").exists()


def test_missing_weights_are_refused(tiny, tmp_path):
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


def test_position_ids_of_older_files_are_ignored(tiny, tmp_path, album):
    state = read_state(tiny) | {"text_model.embeddings.position_ids": torch.arange(77)[None]}
    save_file(state, tmp_path / "old.safetensors")
    assert call(stage_of(tmp_path / "old.safetensors"), *album).equals(call(stage_of(tiny), *album))


def test_attention_is_fused(tiny):
    assert build_model(TINY["clip-vit-b32"], read_state(tiny)).vision_model.config._attn_implementation == "sdpa"


def test_the_text_tower_is_freed(tiny):
    towers = TwoTowers(TINY["clip-vit-b32"], tiny, bpe(), "cpu")
    assert torch.allclose(towers.texts(["a cat"] * 70).norm(dim=1), torch.ones(70))
    towers.keep_vision(Placement(), torch.float32)
    assert towers._model is None and not towers._state


def test_steps_of_a_process_share_one_image_tower(tiny):
    def vision(precision):
        towers = TwoTowers(TINY["clip-vit-b32"], tiny, None, "cpu")
        towers.keep_vision(Placement(), precision)
        return towers._vision

    one, other, half = vision(torch.float32), vision(torch.float32), vision(torch.bfloat16)
    assert one is other and half is not one and half.logit_scale.dtype == torch.bfloat16


# Settings


def test_each_phrase_goes_into_each_template():
    config = Categorize.Config(categories={"pet": ("a cat", "a dog"), "car": ("a car",)}, templates=("{}", "see {}!"))
    assert config.prompts() == {"pet": ["a cat", "see a cat!", "a dog", "see a dog!"], "car": ["a car", "see a car!"]}
    names = Categorize.Config(categories=("cat", "dog"), templates=("a {}",))
    assert names.prompts() == {"cat": ["a cat"], "dog": ["a dog"]}


@pytest.mark.parametrize("words", [["cat", "dog"], {"cat": ["a cat", "a kitten"], "dog": ["a dog"]}])
def test_categories_are_read_from_a_pipeline_file(words):
    entry = StepEntry.model_validate({"use": "framekiln_stages.categorize:Categorize", "with": {"categories": words}})
    stage = build_stage("categorize", entry, {})
    assert list(stage.config.phrases) == ["cat", "dog"]
    again = pickle.loads(pickle.dumps(stage))
    assert (again.config, again.outputs) == (stage.config, stage.outputs)


def test_settings_decide_inputs_and_weights():
    stage = Categorize(Categorize.Config(size=0, model="clip-vit-l14", keep_embedding=True))
    assert stage.inputs == ("frame",)
    assert stage.weights == ("clip-vit-l14", "clip-bpe")
    assert stage.outputs.field("clip_embedding").type.list_size == 768
    assert Categorize().inputs == ("frame_384",)
    assert all({name, model.tokenizer} <= set(default_lock()) for name, model in MODELS.items())


# Kept embeddings


def test_a_later_set_up_finds_the_embeddings_of_its_categories(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FRAMEKILN_CACHE", str(tmp_path / "cache"))
    entries = {
        name: WeightsEntry.model_construct(name=name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        for name, path in (("clip-vit-b32", tiny), ("clip-bpe", bpe()))
    }

    def set_up(**settings_):
        stage, texts = Categorize(Categorize.Config(model="clip-vit-b32", **settings_)), []
        monkeypatch.setattr(TwoTowers, "texts", lambda self, all_: texts.extend(all_) or plain(self, all_))
        set_up_stage(stage, "categorize", {"clip-vit-b32": tiny, "clip-bpe": bpe()}, Placement(), entries)
        return call(stage, photo("china.jpg")), len(texts)

    plain = TwoTowers.texts
    first, embedded = set_up(categories=("a cat", "a dog"))
    again, none = set_up(categories=("a cat", "a dog"))
    other, others = set_up(categories=("a cat", "a bird"))
    assert (embedded, none, others) == (6, 0, 6)
    assert again.equals(first) and not other.equals(first)
