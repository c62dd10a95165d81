"""The image tower equals transformers' own bit by bit, and needs nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from framekiln_stages.nets.checkpoints import read_state
from framekiln_stages.nets.clip.image_tower import load_image_tower
from framekiln_stages.nets.clip.towers import build_model
from tests.support.media.clip_factory import TINY, reference

pytestmark = pytest.mark.usefixtures("one_thread")

LOADED = """
import sys
from pathlib import Path
from framekiln_stages.nets.clip.towers import TwoTowers
from framekiln.contract.placement import Placement
from tests.support.media.clip_factory import TINY
import torch
net = TwoTowers(TINY["clip-vit-b32"], Path(sys.argv[1]), None, "cpu")
net.keep_vision(Placement(), torch.float32)
net.images(torch.zeros(1, 3, 224, 224))
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"transformers"}))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("model", list(TINY))
def test_it_equals_transformers(model, dtype):
    state = {name: value * 3 for name, value in reference(TINY[model]).state_dict().items()}
    pixels = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.inference_mode():
        found = load_image_tower(TINY[model], state, "file").to(dtype)(pixels)
        expected = build_model(TINY[model], state).to(dtype).get_image_features(pixel_values=pixels).pooler_output
    assert torch.equal(found, expected) and found[0].std() > 0 and not torch.equal(found[0], found[1])


@pytest.mark.parametrize("name", ["visual_projection.weight", "logit_scale"])
def test_missing_weights_are_named(name):
    state = reference(TINY["clip-vit-b32"]).state_dict()
    del state[name]
    with pytest.raises(ValueError, match=name):
        load_image_tower(TINY["clip-vit-b32"], state, "file")


@pytest.mark.heavy
def test_images_need_no_transformers(tiny):
    done = subprocess.run([sys.executable, "-c", LOADED, str(tiny)], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_weights_in_16_bits_are_computed_in_32(tmp_path):
    state = {name: value.half() for name, value in reference(TINY["clip-vit-b32"]).state_dict().items()}
    save_file(state, tmp_path / "half")
    tower = load_image_tower(TINY["clip-vit-b32"], read_state(tmp_path / "half"), "half")
    assert {value.dtype for value in tower.state_dict().values()} == {torch.float32}
