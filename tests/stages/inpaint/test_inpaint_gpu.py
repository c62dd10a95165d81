"""LaMa on a GPU, whose Fourier transforms are another library's, paints what the CPU paints."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln_stages.nets.lama.network import Generator, Sizes, paint
from framekiln_stages.nets.lama.runners import EagerLama
from tests.support.stages.lama_weights import psnr, randomize, scene, tensors
from tests.support.stages.on_gpu import DEVICE, needs_gpu

pytestmark = needs_gpu


class Painter(torch.nn.Module):
    """The network as a function of an image and a mask, so that its weights can be drawn for real pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Generator(Sizes(width=8, blocks=2))

    def forward(self, image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return paint(self.net, image, mask)


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize(("precision", "least"), [("fp32", 60), ("auto", 40), ("bf16", 35)])
def test_a_gpu_equals_the_cpu(monkeypatch, precision, least, pin):
    image, mask = scene()
    net = randomize(Painter(), tensors(image, mask)[0]).net
    monkeypatch.setattr("framekiln_stages.nets.lama.runners.load_generator", lambda *_: deepcopy(net))
    expected, found = (
        EagerLama(None, place, 4)([image] * 5, [mask] * 5)
        for place in (Placement(), Placement(device=DEVICE, precision=precision, pin_memory=pin))
    )
    assert expected[:, mask].std() > 10, "there is something to paint"
    whole = [painted[:, mask].round() for painted in (found, expected)]  # a GPU returns whole levels, at 59 dB
    assert psnr(*whole) > least
