"""Shared by the tests of categories: images, models with random weights, and a stage with one of them."""

from __future__ import annotations

import gzip
import string
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import torch

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.nets.clip.architectures import MODELS
from framekiln_stages.nets.clip.towers import MERGES, model_and_config
from tests.support.media.photos import mosaic, photo

BPE = "bpe_simple_vocab_16e6.txt.gz"
TINY = {
    "clip-vit-b32": replace(MODELS["clip-vit-b32"], dims=32, text=(32, 64, 2, 2), vision=(48, 96, 2, 2)),
    "siglip2-base": replace(MODELS["siglip2-base"], dims=48, text=(48, 96, 2, 2), vision=(48, 96, 2, 2)),
}


@cache
def bpe() -> Path:
    """A file in the format of CLIP's merges: all pairs and triples of letters, inside and at the end of words."""
    letters = string.ascii_lowercase
    pairs = [a + b for a in letters for b in letters]
    steps = [(text[:-1], text[-1]) for text in (*pairs, *(pair + c for pair in pairs for c in letters))]
    steps += [(pair + c, d) for pair in pairs for c in letters for d in letters][: MERGES - 2 * len(steps)]
    merges = [f"{first} {last}{end}" for first, last in steps for end in ("", "</w>")][:MERGES]
    path = Path(mkdtemp()) / BPE
    path.write_bytes(gzip.compress("\n".join(["#version: 0.2", *merges]).encode(), mtime=0))
    return path


def use_tiny(monkeypatch):
    """Let stages build the small networks until the end of a test."""
    for module in ("framekiln_stages.nets.clip.architectures", "framekiln_stages.categorize.stage"):
        monkeypatch.setattr(f"{module}.MODELS", TINY)


def reference(architecture):
    """Return transformers' model with the same random weights in each run."""
    torch.manual_seed(0)
    kind, config = model_and_config(architecture)
    return kind(config).eval()


def stage_of(path, tokenizer=None, placement=None, **settings_):
    """Return a stage with a model from a file; B/32 by default."""
    stage = Categorize(Categorize.Config(**({"model": "clip-vit-b32"} | settings_)))
    model, words = stage.weights
    stage.setup({model: path, words: tokenizer or bpe()}, placement or Placement())
    return stage


def call(stage, *images):
    return stage(pa.table({stage.pixels: pack(list(images))}))


def embeddings(table):
    return np.stack([np.asarray(row, np.float64) for row in table["clip_embedding"].to_pylist()])


def distribution(table):
    """Return each row's probabilities by name."""
    return [{item["name"]: item["probability"] for item in row} for row in table["categories"].to_pylist()]


def album():
    """Return photos of several sizes, one pixel, and a grey strip."""
    china, flower = photo("china.jpg"), photo("flower.jpg")
    crops = [flower[100:400, 100:400], china[:, :300], flower[50:350, 150:450]]
    photos = [china, photo("grace_hopper.jpg"), *map(np.ascontiguousarray, crops), mosaic(16)]
    return [*photos, np.zeros((1, 1, 3), np.uint8), np.full((8, 300, 3), 90, np.uint8)]


def closeness(found, expected):
    """Return the smallest cosine of the embeddings of two tables."""
    a, b = embeddings(found), embeddings(expected)
    return ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()


def seen(path, album, precision="fp32", compile_=False, batch=16, device="cpu", **settings_):
    placement = Placement(precision=precision, compile=compile_, batch=batch, device=device)
    return call(stage_of(path, keep_embedding=True, top_k=99, placement=placement, **settings_), *album)
