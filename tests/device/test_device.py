"""Preprocessing on a device agrees with Pillow, and an image does not depend on the others of its batch."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from framekiln.contract.columns import pack, reduction, views
from framekiln.contract.placement import Placement
from framekiln.device import LONGEST, Batches, Preparation, configure_gpu, dtype_of, middle, prepare
from framekiln.device import preprocessing as device
from framekiln.media.frames import reduce_by
from framekiln_stages.nets.clip.architectures import OPENAI, SIGLIP
from tests.support.media.material import media
from tests.support.media.photos import PHOTOS, photo

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
sizes = st.integers(1, 500)


def noise(height, width, seed=0):
    """Return an image of blocks and single pixels: edges of every kind."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 9 + 1, width // 9 + 1, 3), dtype=np.uint8)
    image = coarse.repeat(9, 0).repeat(9, 1)[:height, :width].copy()
    spots = rng.random((height, width)) < 0.2
    image[spots] = rng.integers(0, 256, (int(spots.sum()), 3), dtype=np.uint8)
    return image


def read(name):
    return np.asarray(Image.open(media(name)).convert("RGB"))


def levels(prepared, how):
    """Return a model's input as levels from 0 to 255: n s s 3."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (how.mean, how.std))
    return ((prepared.float() * std + mean) * 255).permute(0, 2, 3, 1).numpy()


def of_pillow(image, how):
    """Return the same by Pillow, first horizontally, then vertically: s s 3."""
    height, width = image.shape[:2]
    short = min(height, width)
    across, down = (int(how.side * side / short) if how.crop else how.side for side in (width, height))
    method = FILTERS[how.method]
    small = Image.fromarray(image).resize((across, height), method).resize((across, down), method)
    top, left = round((down - how.side) / 2), round((across - how.side) / 2)
    return np.asarray(small).astype(float)[top : top + how.side, left : left + how.side]


def prepared(images, how=OPENAI, dtype=torch.float32):
    return prepare(images, how, Placement(), dtype)


def test_the_published_tensor_of_a_photo_is_met():
    expected = torch.from_numpy(np.load(media("clip/expected_preprocessed_image.npy")))
    difference = np.abs(levels(prepared([read("clip/franz-kafka.jpg")]), OPENAI) - levels(expected, OPENAI))
    assert difference.mean() <= 0.01  # 0.0001 measured; 0.5 is required
    assert difference.max() <= 1.01  # 4 is required


@settings(max_examples=12, deadline=None)
@given(height=sizes, width=sizes, seed=st.integers(0, 9), how=st.sampled_from([OPENAI, SIGLIP]))
def test_any_picture_is_as_pillow_makes_it(height, width, seed, how):
    image = middle(noise(height, width, seed))
    difference = np.abs(levels(prepared([image], how), how)[0] - of_pillow(image, how))
    assert difference.max() <= 2.01  # the vertical pass may amplify a level lost in the horizontal one
    assert difference.mean() <= 0.1  # enlarged, many pixels end on a half: 0.07; else below 0.02


@pytest.mark.parametrize("name", PHOTOS)
def test_frame_512_keeps_what_frame_224_loses(name):
    image = np.kron(photo(name), np.ones((2, 2, 1), np.uint8))
    off = {}
    for size in (224, 512):
        smaller = reduce_by(image, reduction(*image.shape[:2], size))
        off[size] = np.abs(levels(prepared([smaller]), OPENAI)[0] - of_pillow(image, OPENAI)).mean()
    assert off[512] <= 0.5
    assert off[224] > off[512] + 0.05


# An image's values are its own


@settings(max_examples=8, deadline=None)
@given(
    shapes=st.lists(st.sampled_from([(40, 60), (60, 40), (300, 224), (224, 224), (1, 3)]), min_size=2, max_size=5),
    data=st.data(),
)
def test_neighbours_and_order_change_nothing(shapes, data):
    images = [noise(*shape, seed) for seed, shape in enumerate(shapes)]
    together = prepared(images)
    assert together.shape == (len(images), 3, 224, 224)
    order = data.draw(st.permutations(range(len(images))))
    again = prepared([images[i] for i in order])
    for place, i in enumerate(order):
        assert torch.equal(together[i], prepared([images[i]])[0])
        assert torch.equal(together[i], again[place])


def test_many_pictures_of_one_size_go_in_parts(monkeypatch):
    images = [noise(50, 70, seed) for seed in range(5)]
    whole = prepared(images)
    monkeypatch.setattr(device, "PART_BYTES", 2 * images[0].nbytes)
    assert torch.equal(prepared(images), whole)
    monkeypatch.setattr(device, "PART_BYTES", 1)
    assert torch.equal(prepared(images), whole)


def test_views_of_a_column_are_read_without_a_warning():
    column = pack([noise(30, 40), noise(50, 40)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(prepared(views(column)), prepared([noise(30, 40), noise(50, 40)]))


# Extremes


@pytest.mark.parametrize("shape", [(1, 20_000), (20_000, 1), (3, 900)])
def test_a_strip_is_cut_to_its_middle(shape):
    strip = np.zeros((*shape, 3), np.uint8)
    short = min(shape)
    strip[
        tuple(
            slice((side - 2 * short) // 2, (side + 2 * short) // 2) if side > short else slice(None) for side in shape
        )
    ] = 200
    assert max(middle(strip).shape) == LONGEST * short
    assert (levels(prepared([strip]), OPENAI)[0] > 150).mean() > 0.9
    assert middle(strip[:8, :8]).shape == strip[:8, :8].shape


@pytest.mark.parametrize("how", [OPENAI, SIGLIP])
@pytest.mark.parametrize("level", [0, 7, 255])
def test_one_colour_stays_that_colour_and_is_normalised(how, level):
    result = prepared([np.full((33, 57, 3), level, np.uint8)], how)
    expected = (level / 255 - torch.tensor(how.mean)) / torch.tensor(how.std)
    assert torch.allclose(result, expected.view(1, 3, 1, 1).expand_as(result), atol=1e-5)


def test_no_pictures_are_an_empty_input():
    assert prepared([]).shape == (0, 3, 224, 224)


def test_the_side_and_the_dtype_are_those_asked_for():
    how = Preparation(side=64, mean=(0, 0, 0), std=(1, 1, 1))
    image = noise(80, 100)
    half = prepared([image], how, torch.bfloat16)
    assert (half.shape, half.dtype) == ((1, 3, 64, 64), torch.bfloat16)
    assert torch.allclose(half.float(), prepared([image], how), atol=2**-8)


def test_precision_is_settled_by_the_device_unless_it_is_said():
    asked = [(p, d) for p in ("fp32", "auto", "fp16", "fp16-sums", "bf16") for d in ("cpu", "cuda")]
    found = [str(dtype_of(Placement(precision=p, device=d))).removeprefix("torch.") for p, d in asked]
    full, half, brain = "float32", "float16", "bfloat16"
    assert found == [full, full, full, brain, half, half, half, half, brain, brain]
    assert str(dtype_of(Placement(precision="auto", device="cuda"), best="fp16")) == "torch.float16"


@pytest.mark.parametrize(("precision", "expected"), [("fp16-sums", True), ("fp16", False)])
def test_sums_in_fp16_are_those_of_models_that_ask_for_them(precision, expected):
    matmul = torch.backends.cuda.matmul

    def model(pixels):
        return pixels + matmul.allow_fp16_accumulation

    batches = Batches(model, Placement(precision=precision))
    assert batches(torch.zeros(1)).item() == expected and not matmul.allow_fp16_accumulation


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), "float16"), ((8, 0), "bfloat16"), ((12, 0), "bfloat16")])
def test_a_gpu_without_bf16_gets_fp16(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert str(dtype_of(Placement(precision="auto", device="cuda"))) == f"torch.{expected}"
    assert str(dtype_of(Placement(precision="bf16", device="cuda"))) == "torch.bfloat16"


@pytest.mark.parametrize("works", [True, False])
def test_segments_of_gpu_memory_grow_where_the_driver_lets_them(monkeypatch, works):
    told = []

    def allocate(*_, **__):
        if not works:
            raise RuntimeError("CUDA driver error: invalid argument")

    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "of the shell")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "of the shell")
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("framekiln.device.model.torch.empty", allocate)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append)
    for _ in range(2):
        configure_gpu()
        assert os.environ["PYTORCH_ALLOC_CONF"] == f"expandable_segments:{works}"
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert told == ([] if works else ["expandable_segments:False"])


def test_fp32_is_no_tf32_though_an_image_asks_for_it(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, cublas.allow_tf32
    cudnn.allow_tf32 = cublas.allow_tf32 = True  # as TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 does
    try:
        configure_gpu()
        assert (cudnn.allow_tf32, cublas.allow_tf32) == (False, False)
    finally:
        cudnn.allow_tf32, cublas.allow_tf32 = before


def test_importing_it_loads_no_torch():
    heavy = "{'torch', 'transformers', 'tokenizers'}"
    code = f"import sys, framekiln.device, framekiln_stages.categorize.stage; print({heavy} & set(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
