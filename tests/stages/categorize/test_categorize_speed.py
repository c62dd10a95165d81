"""Faster placements and settings stay within a stated distance of fp32 on the CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.nets.clip import towers
from framekiln_stages.nets.clip.towers import dummy_tokens
from tests.support.media.clip_factory import (
    TINY,
    bpe,
    call,
    closeness,
    distribution,
    embeddings,
    reference,
    seen,
    stage_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")


# Precision


@pytest.mark.parametrize(("precision", "least"), [("auto", 1 - 1e-6), ("fp16", 0.9999), ("bf16", 0.999)])
def test_precisions_stay_close(tiny, album, precision, least):
    exact, found = seen(tiny, album), seen(tiny, album, precision)
    assert closeness(found, exact) >= least
    assert found.equals(exact) is (precision == "auto"), "mixed is fp32 on the CPU, the others are not"


# Compiled


@pytest.mark.heavy
def test_compiled_batches_of_any_size_are_equal(tiny, album, monkeypatch):
    """Traced as on a GPU, without generating code, which belongs to torch."""
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    stage = stage_of(tiny, keep_embedding=True, top_k=99)
    torch._dynamo.reset()
    counters.clear()
    compiled = stage_of(tiny, keep_embedding=True, top_k=99, placement=Placement(compile=True, batch=3))
    for rows in (1, 3, 8, 2):
        expected, found = call(stage, *album[:rows]), call(compiled, *album[:rows])
        assert found.num_rows == rows
        assert closeness(found, expected) >= 0.9999
        for a, b in zip(distribution(found), distribution(expected), strict=True):
            assert all(abs(a[name] - b[name]) < 1e-4 for name in b)
        assert counters["stats"]["unique_graphs"] == 1, "compiled in the set-up, for batches of one size"
    assert not counters["graph_break"], "a broken graph is compiled in pieces, without the gain"


# Random weights


@pytest.mark.parametrize(
    ("model", "given"),
    [("clip-vit-b32", ()), ("clip-vit-b32", ("tokenizer",)), ("clip-vit-b32", ("model",)), ("siglip2-base", ())],
)
def test_missing_weights_are_drawn_with_one_seed(tiny, album, model, given):
    tables = []
    for _ in range(2):
        stage = Categorize(Categorize.Config(model=model, keep_embedding=True, top_k=99))
        files = {"model": (model, tiny), "tokenizer": ("clip-bpe", bpe())}
        stage.setup(dict(files[name] for name in given), Placement())
        torch.rand(3)  # the generator has moved on
        tables.append(call(stage, *album))
    assert tables[0].equals(tables[1])
    across = embeddings(tables[0]) @ embeddings(tables[0]).T
    assert across.min() < 1 - 1e-5, "all images have one embedding"
    words = [list(row.values()) for row in distribution(tables[0])]
    assert np.ptp(words, axis=1).min() > 0, "all categories have one probability"
    if given == ("model",):
        assert np.array_equal(embeddings(tables[0]), embeddings(seen(tiny, album)))


def test_random_weights_keep_the_generator_and_are_transformers_own():
    state = torch.get_rng_state()
    model = towers.build_model(TINY["clip-vit-b32"], None)
    assert torch.equal(torch.get_rng_state(), state)
    expected = reference(TINY["clip-vit-b32"]).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert model.vision_model.config._attn_implementation == "sdpa"


def test_dummy_tokens_differ_between_texts():
    ids = dummy_tokens(["a photo of a cat.", "A photo of a cat.", "a photo of a dog."], length=9)
    assert ids[0] == ids[1] != ids[2] and {len(row) for row in ids} == {9}
    assert all(0 <= number < 49408 for row in ids for number in row)
    assert ids[0][5:] == [49407] * 4
    with pytest.raises(ValueError, match="9 words, .* 9 tokens"):
        dummy_tokens(["cat " * 9], length=9)
