"""A CLIP that a test can afford."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def album():
    """Photos of several sizes, one pixel, and a grey strip."""
    from tests.support.media import clip_factory

    return clip_factory.album()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The weights of a CLIP of two small layers, scaled up so that images differ."""
    import torch
    from safetensors.torch import save_file

    from tests.support.media.clip_factory import TINY, reference, use_tiny

    use_tiny(monkeypatch)
    state = {name: value * 3 for name, value in reference(TINY["clip-vit-b32"]).state_dict().items()}
    state["logit_scale"] = torch.tensor(4.6)  # the trained model's: log 100
    save_file(state, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"
