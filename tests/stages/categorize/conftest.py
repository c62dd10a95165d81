"""A CLIP that a test can afford."""

from __future__ import annotations

import pytest


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The weights of a CLIP of two small layers, scaled up so that images differ."""
    import torch
    from safetensors.torch import save_file

    from tests.support.media.clip_factory import TINY, reference

    monkeypatch.setattr("stages.nets.clip.towers.MODELS", TINY)
    monkeypatch.setattr("stages.categorize.stage.MODELS", TINY)
    state = {name: value * 3 for name, value in reference(TINY["clip-vit-b32"]).state_dict().items()}
    state["logit_scale"] = torch.tensor(4.6)  # the trained model's: log 100
    save_file(state, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"
