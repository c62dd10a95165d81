"""What tests of categories share: pictures, models with random weights, and a stage on top of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from pipeline.columns import pack
from pipeline.stage import Placement
from stages.categorize import Categorize
from stages.nets.clip import MODELS, configured
from tests.material import media, weights

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


def stage_of(path, tokenizer=None, placement=None, **settings_):
    """A stage with a model from a file; B/32 where the settings name none."""
    stage = Categorize(Categorize.Config(**({"model": "clip-vit-b32"} | settings_)))
    model, words = stage.weights
    stage.setup({model: path, words: tokenizer or weights(BPE)}, placement or Placement())
    return stage


def call(stage, *images):
    return stage(pa.table({stage.pixels: pack(list(images))}))


def embeddings(table):
    return np.stack([np.asarray(row, np.float64) for row in table["clip_embedding"].to_pylist()])


def distribution(table):
    """Probabilities by name of each row."""
    return [{item["name"]: item["probability"] for item in row} for row in table["categories"].to_pylist()]


def album():
    """Photos of several sizes, one pixel, and a grey strip."""
    photos = [read(f"categories/{name}") for name in PHOTOS]
    return [*photos, np.zeros((1, 1, 3), np.uint8), np.full((8, 300, 3), 90, np.uint8)]
