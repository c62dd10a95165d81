"""Memory on a GPU: what stages say of their models is what torch counts of storages on the meta device."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from framekiln.contract.placement import Placement
from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.faces.recognizers import FACE_MB, NETWORKS
from framekiln_stages.inpaint.stage import Inpaint
from framekiln_stages.nets.clip.architectures import MODELS
from framekiln_stages.nets.clip.image_tower import ImageTower
from framekiln_stages.nets.faces.iresnet import IResNet, MobileFaceNet
from framekiln_stages.nets.lama.network import Generator, Sizes, cast, paint
from framekiln_stages.nets.sam2 import image as sam2
from framekiln_stages.nets.sam2.decoder import SharedDecoder

pytestmark = pytest.mark.heavy


class Storages(TorchDispatchMode):
    """Count of the bytes of all storages that are alive at a time, in this block."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, result)):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.alive:
                self.alive[key] = tensor.untyped_storage().nbytes()
                weakref.finalize(tensor.untyped_storage(), self.alive.pop, key, None)
        self.peak = max(self.peak, sum(self.alive.values()))
        return result


def made(build, dtype=None):
    """Return a network without memory."""
    with torch.device("meta"):
        return build().eval().requires_grad_(False).to(dtype)


def mb(net):
    return sum(tensor.nbytes for tensor in net.parameters()) / 1e6


def call_mb(function, net, *inputs):
    """Return the most megabytes at a time in a call, with its inputs and without the weights."""
    with torch.inference_mode(), Storages() as storages:
        for parameter in net.parameters():
            parameter.view(-1)
        function(*inputs)
    return storages.peak / 1e6 - mb(net)


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("model", ["clip-vit-b32", "clip-vit-l14", "siglip2-base"])
def test_clip(model):
    net = made(lambda: ImageTower(MODELS[model]), torch.bfloat16)
    known = Categorize(Categorize.Config(model=model)).gpu_memory(Placement(batch=8))
    found = call_mb(net, net, empty(8, 3, 224, 224, dtype=torch.bfloat16))
    assert (known.weights_gb * 1e3, known.call_gb * 1e3) == pytest.approx((mb(net), found), rel=0.05)


@pytest.mark.parametrize("model", sam2.MEMORY_MB)
def test_sam(model):
    from transformers import Sam2Model

    net = made(lambda: Sam2Model(sam2.image_config(sam2.MODELS[model])), torch.bfloat16)
    sam2.trim_attention(net)
    pixels = empty(1, 3, sam2.SIDE, sam2.SIDE, dtype=torch.bfloat16)
    found = call_mb(net.get_image_embeddings, net, pixels)
    assert sam2.MEMORY_MB[model] == pytest.approx((mb(net), found), rel=0.05)


def test_prompts_of_sam():
    from transformers import Sam2Model

    architecture, prompts = sam2.MODELS["sam2.1-hiera-tiny"], 64
    net = made(lambda: Sam2Model(sam2.image_config(architecture)), torch.bfloat16)
    positions = net.get_image_wide_positional_embeddings()
    decoder = SharedDecoder(net.prompt_encoder.float(), net.mask_decoder, positions.bfloat16(), sam2.SIDE)
    sizes = zip(sam2.CHANNELS, architecture.sides, strict=True)
    levels = [empty(1, channels, side, side, dtype=torch.bfloat16) for channels, side in sizes]

    def decode(*inputs):
        logits, iou = decoder(*inputs, several=True)
        return torch.cat([logits.flatten(3), iou[..., None]], dim=3)

    labels = torch.ones(1, prompts, 1, dtype=torch.int64, device="meta")
    found = call_mb(decode, decoder, *levels, empty(1, prompts, 1, 2), labels)
    assert sam2.PROMPT_MB * prompts == pytest.approx(found, rel=0.05)


def test_lama():
    net = made(lambda: Generator(Sizes()))
    cast(net, torch.float16)
    known = Inpaint(Inpaint.Config()).gpu_memory(Placement(chunks={"crops": 2}))
    images, masks = empty(2, 3, 512, 512), empty(2, 1, 512, 512)
    found = call_mb(lambda *inputs: paint(net, *inputs, torch.float16), net, images, masks)
    assert (known.weights_gb * 1e3, known.call_gb * 1e3) == pytest.approx((mb(net), found), rel=0.05)


@pytest.mark.parametrize("name", ["arcface-r50", "auraface", "mobilefacenet"])
def test_recognizers(name):
    network = NETWORKS[name]
    net = made(lambda: IResNet(network.blocks) if network.blocks else MobileFaceNet(), torch.float16)
    found = call_mb(net, net, empty(64, 3, 112, 112, dtype=torch.float16)) / 64
    assert network.weights_mb == pytest.approx(mb(net), rel=0.05)
    assert found == pytest.approx(FACE_MB, rel=0.05) or (name == "mobilefacenet" and found < FACE_MB)
