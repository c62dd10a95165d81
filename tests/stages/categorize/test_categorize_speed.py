"""Faster placements and settings stay within a stated distance of fp32 on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from framekiln.contract.placement import Placement
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.nets.clip import towers
from framekiln_stages.nets.clip.architectures import MODELS
from framekiln_stages.nets.clip.image_tower import Int8Linear, int8_layers
from framekiln_stages.nets.clip.towers import TwoTowers, dummy_tokens
from tests.support.media.clip_factory import TINY, bpe, call, distribution, embeddings, reference, stage_of

pytestmark = pytest.mark.usefixtures("one_thread")


def closeness(found, expected):
    """Return the smallest cosine of the embeddings of two tables."""
    a, b = embeddings(found), embeddings(expected)
    return ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()


def seen(path, album, precision="fp32", compile_=False, batch=16, device="cpu", **settings_):
    placement = Placement(precision=precision, compile=compile_, batch=batch, device=device)
    return call(stage_of(path, keep_embedding=True, top_k=99, placement=placement, **settings_), *album)


# Precision


@pytest.mark.parametrize(("precision", "least"), [("auto", 1 - 1e-6), ("fp16", 0.9999), ("bf16", 0.999)])
def test_precisions_stay_close(tiny, album, precision, least):
    exact, found = seen(tiny, album), seen(tiny, album, precision)
    assert closeness(found, exact) >= least
    assert found.equals(exact) is (precision == "auto"), "mixed is fp32 on the CPU, the others are not"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    ("settings_", "least"),
    [
        ({"precision": "fp32"}, 0.9999),
        ({"precision": "auto"}, 0.999),
        ({"precision": "fp16"}, 0.9995),
        ({"precision": "auto", "compile_": True, "batch": 5}, 0.999),
        ({"precision": "fp32", "quantize": "int8"}, 0.99),
    ],
)
def test_a_gpu_equals_the_cpu(tiny, album, settings_, least):
    assert closeness(seen(tiny, album, device="cuda", **settings_), seen(tiny, album)) >= least


# Compiled


@pytest.mark.heavy
def test_compiled_batches_of_any_size_are_equal(tiny, album):
    from torch._dynamo.utils import counters

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


# 8 bits


@pytest.mark.parametrize("rows", [(1,), (16,), (2, 33), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_8_bit_products_equal_plain_arithmetic(rows, dtype):
    torch.manual_seed(1)
    linear = nn.Linear(48, 24, bias=len(rows) == 1)
    values = torch.randn(*rows, 48).to(dtype) * 3
    flat, matrix = values.float().reshape(-1, 48).numpy(), linear.weight.detach().numpy()
    expected = np.zeros((len(flat), 24))
    for i, row in enumerate(flat):
        for o, column in enumerate(matrix):
            steps = [float(np.abs(v).max()) / 127 for v in (row, column)]
            whole = [np.rint(v / step).astype(int) for v, step in zip((row, column), steps, strict=True)]
            expected[i, o] = int(whole[0] @ whole[1]) * steps[0] * steps[1]
    if linear.bias is not None:
        expected += linear.bias.detach().numpy()
    found = Int8Linear(linear)(values)
    assert found.shape == (*rows, 24) and found.dtype == dtype
    near = 1e-2 if dtype == torch.bfloat16 else 1e-3  # of values of about 2; a tie may be rounded the other way
    assert np.allclose(found.float().detach().numpy().reshape(-1, 24), expected, atol=near, rtol=near)


def test_rows_of_zeros_and_huge_values_are_rounded_too():
    layer = Int8Linear(nn.Linear(8, 8, bias=False))
    found = layer(torch.stack([torch.zeros(8), torch.full((8,), 1e30)]))
    assert (found[0] == 0).all() and torch.isfinite(found).all() and (found[1] != 0).any()


def test_layers_with_shared_weights_stay_in_floating_point():
    module = nn.ModuleDict(
        {"attention": nn.MultiheadAttention(16, 2), "odd": nn.Linear(7, 16), "even": nn.Linear(8, 16)}
    )
    assert int8_layers(module).keys() == {"even"}


def test_8_bits_keep_the_cosines_of_small_towers(tiny, album):
    exact = seen(tiny, album)
    for precision in ("fp32", "bf16"):
        found = seen(tiny, album, precision, quantize="int8")
        assert 0.99 <= closeness(found, exact) < 1 - 1e-6, "too far off, or not in 8 bits"


@pytest.mark.parametrize("model", ["clip-vit-b32", "siglip2-base"])
def test_all_layers_of_the_image_tower_are_in_8_bits(model):
    towers = TwoTowers(TINY[model], None, None, "cpu")
    towers.keep_vision(Placement(), torch.bfloat16, int8=True)
    vision = towers._vision.vision_model
    kinds = [type(layer) for layer in vision.modules() if isinstance(layer, nn.Linear | Int8Linear)]
    assert kinds.count(Int8Linear) >= 12 and nn.Linear not in kinds
    layers = [layer for layer in vision.modules() if isinstance(layer, Int8Linear)]
    assert {layer.weight.dtype for layer in layers} == {torch.int8}
    assert {layer.scale.dtype for layer in layers} == {torch.float32}, "scales lost precision"


@pytest.mark.heavy
def test_8_bits_at_the_published_size(album):
    """ViT-B/32 with random weights; trained ones, with larger outliers, are missing here."""
    towers = {}
    for int8 in (False, True):
        towers[int8] = TwoTowers(MODELS["clip-vit-b32"], None, None, "cpu")
        towers[int8].keep_vision(Placement(), torch.float32, int8=int8)
    torch.manual_seed(0)
    pixels = torch.randn(4, 3, 224, 224)
    cosine = (towers[True].images(pixels) * towers[False].images(pixels)).sum(dim=1)
    assert 0.999 <= cosine.min() < 1 - 1e-7


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
