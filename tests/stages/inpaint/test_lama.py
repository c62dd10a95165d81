"""LaMa in torch equals another program's blocks, and lama-cleaner's own class is unchanged."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.weights.resolver import default_lock
from framekiln_stages.nets.lama.network import FourierUnit, Generator, Sizes, cast, load_generator, symmetrize
from framekiln_stages.nets.lama.runners import EagerLama, LamaCleaner
from tests.support.machine.command_line import script
from tests.support.stages.lama_factory import Reference, save
from tests.support.stages.lama_weights import psnr, randomize, tensors
from tests.support.stages.lama_weights import scene as blossom_scene

SMALL = Sizes(width=8, blocks=2)


@pytest.fixture(scope="module", autouse=True)
def _without_profiling():
    """Without fusion, which takes TorchScript 1 to 4 s in each of its first calls; results are the same."""
    before = torch._C._jit_set_profiling_executor(False)
    yield
    torch._C._jit_set_profiling_executor(before)


@pytest.fixture(scope="module")
def scene():
    """The edge of the blossom, and its mask: 160x144 px."""
    return blossom_scene()


@pytest.fixture(scope="module")
def small(tmp_path_factory, scene):
    """Save a small network of the third party as a TorchScript file."""
    return save(randomize(Reference(8, 2), tensors(*scene)[0]), tmp_path_factory.mktemp("lama") / "small.pt")


def eager(path, sizes=SMALL, **placement):
    return EagerLama(path, Placement(**placement), 4, sizes)


def ask(lama, image, mask):
    """Call lama-cleaner as its users do, with RGB levels."""
    from lama_cleaner.schema import Config

    sizes = {f"hd_strategy_{name}": 1 for name in ("crop_margin", "crop_trigger_size", "resize_limit")}
    answer = lama(image.copy(), mask.astype(np.uint8) * 255, Config(ldm_steps=1, hd_strategy="Original", **sizes))
    return answer[:, :, ::-1]


# Equality


def test_the_network_equals_the_third_partys(small, scene):
    script = torch.jit.load(str(small))
    net = eager(small)
    assert scene[1].any() and not scene[1].all()
    for height, width in ((160, 144), (16, 16), (24, 136), (128, 64)):
        image, mask = (np.ascontiguousarray(part[:height, -width:]) for part in scene)
        mask[4:12, 4:12] = True
        with torch.no_grad():
            expected = script(*tensors(image, mask))[0].permute(1, 2, 0).numpy() * 255
        assert expected[mask].std() > 20, "the network must not paint one colour"
        answer = net([image], [mask])[0]
        assert np.abs(answer - expected).max() < 0.01


@pytest.mark.heavy
def test_the_published_architecture_equals_both_references(tmp_path, scene):
    """At full size: the file has the published size, and three ways to run it agree."""
    image, mask = (np.ascontiguousarray(part[40:104, 60:124]) for part in scene)
    mask[20:50, 10:40] = True
    reference = randomize(Reference(), tensors(image, mask)[0])
    path = save(reference, tmp_path / "big.pt")
    # within 0.25%; a file also has the paths of its callers' code: -10 and +175 kB
    assert abs(path.stat().st_size - default_lock()["big-lama"].bytes) < 500_000
    cleaner, net = LamaCleaner(path, Placement()), eager(path, None)
    with torch.no_grad():
        expected = reference(*tensors(image, mask))[0].permute(1, 2, 0).numpy() * 255
    assert expected[mask].std() > 20
    full = net([image], [mask])[0]
    assert np.abs(full - expected).max() < 0.0255, "1e-4 of the range"
    (answer,) = cleaner([image], [mask])
    assert (answer == ask(cleaner.lama, image, mask)).all()
    assert np.abs(answer - full)[mask].max() <= 1.01
    assert psnr(eager(path, None, precision="bf16")([image], [mask])[0][mask], full[mask]) > 40
    assert path.exists()


def test_the_number_of_weights_is_the_published_one():
    with torch.device("meta"):
        state = Generator().state_dict()
    numbers = sum(tensor.numel() for tensor in state.values() if tensor.is_floating_point())
    assert numbers == 51_057_027
    # each tensor is a member of a zip, padded to 64 bytes; the rest is code. 7 kB a layer in all
    assert 0 < default_lock()["big-lama"].bytes - 4 * numbers < 1_500_000


@pytest.mark.heavy
@pytest.mark.parametrize("shape", [(160, 144), (17, 33), (61, 40), (16, 16)])
def test_lama_cleaners_class_equals_its_own_call(small, scene, shape):
    cleaner = LamaCleaner(small, Placement())
    image, mask = (np.ascontiguousarray(part[: shape[0], : shape[1]]) for part in scene)
    mask[3:9, 2:14] = True
    other = np.ascontiguousarray(image[::-1])
    expected = [ask(cleaner.lama, one, mask) for one in (image, other)]
    assert expected[0][mask].std() > 10
    assert (cleaner([image, other], [mask, mask]) == expected).all()
    cleaner._at_once = None  # as on a GPU
    assert np.abs(cleaner([image, other], [mask, mask]) - expected).max() <= 1
    assert np.abs(eager(small)([image, other], [mask, mask]) - expected).max() <= 1.01


def test_lama_cleaner_leaves_the_process_unchanged(small, scene, capfd):
    before = list(warnings.filters)
    LamaCleaner(small, Placement())([scene[0]], [scene[1]])
    assert warnings.filters == before
    assert small.exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.heavy
def test_images_smaller_than_the_networks_minimum_are_painted(small):
    for shape in ((1, 1), (3, 9), (8, 8), (15, 200)):
        image = np.full((*shape, 3), 200, np.uint8)
        mask = np.ones(shape, bool)
        for painter in (eager(small), LamaCleaner(small, Placement())):
            answer = painter([image], [mask])[0]
            assert answer.shape == image.shape and np.isfinite(answer).all()


# Arithmetic


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_sixteen_bits_are_close(small, scene, precision):
    image, mask = scene
    full, half = (eager(small, precision=way)([image], [mask])[0][mask] for way in ("fp32", precision))
    assert 40 < psnr(full, half) < 90


def test_fourier_units_stay_in_fp32():
    net = Generator(SMALL)
    cast(net, torch.float16)
    units = {id(tensor) for part in net.modules() if isinstance(part, FourierUnit) for tensor in part.parameters()}
    assert units
    for tensor in net.parameters():
        assert tensor.dtype == (torch.float32 if id(tensor) in units else torch.float16)


@pytest.mark.parametrize("width", [8, 9])
def test_a_symmetrized_spectrum_is_that_of_the_cpus_image(width):
    generator = torch.Generator().manual_seed(0)
    odd = torch.randn(2, 3, 6, width // 2 + 1, generator=generator, dtype=torch.complex64)
    picture = torch.fft.irfft2(odd, s=(6, width), norm="ortho")
    found = symmetrize(odd, width)
    assert torch.allclose(torch.fft.irfft2(found, s=(6, width), norm="ortho"), picture, atol=1e-6)
    assert torch.allclose(found, torch.fft.rfft2(picture, norm="ortho"), atol=1e-6), (
        "no transform can take it otherwise"
    )
    assert not torch.allclose(odd, found, atol=0.1)


def test_memory_layout_changes_little(small, scene):
    plain, last = (eager(small, channels_last=way)([scene[0]], [scene[1]]) for way in (False, True))
    assert np.abs(plain - last).max() < 0.01


def test_neighbours_change_nothing_on_the_cpu(small, scene):
    image, mask = scene
    net = eager(small)
    pictures = [image, image[::-1].copy(), image[:, ::-1].copy()]
    together = net(pictures, [mask] * 3)
    for one, answer in zip(pictures, together, strict=True):
        assert (net([one], [mask])[0] == answer).all()


def test_random_weights_are_seeded(scene):
    one, other = (eager(None)([scene[0]], [scene[1]]) for _ in range(2))
    assert (one == other).all()
    assert (
        LamaCleaner(None, Placement()).lama.model.net.model[34].weight == load_generator(None).model[34].weight
    ).all()


@pytest.mark.heavy
def test_a_compiled_network_is_equal(scene, tmp_path, monkeypatch):
    """Traced as on a GPU, without generating code, which belongs to torch."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    image, mask = (np.ascontiguousarray(part[40:104, 60:124]) for part in scene)
    path = save(randomize(Reference(8, 1), tensors(image, mask)[0]), tmp_path / "tiny.pt")
    pictures, masks = [image, image[::-1].copy()], [mask, mask]
    plain, compiled = (eager(path, Sizes(width=8, blocks=1), compile=way)(pictures, masks) for way in (False, True))
    assert np.abs(plain - compiled).max() < 0.01


# Files


def test_invalid_files_are_refused_by_name(small, tmp_path):
    junk = tmp_path / "junk.pt"
    junk.write_bytes(b"no network at all")
    for build in (lambda: eager(junk), lambda: LamaCleaner(junk, Placement())):
        with pytest.raises(ValueError, match=r"junk\.pt .*TorchScript"):
            build()
    assert junk.exists(), "lama-cleaner would have deleted it"
    with pytest.raises(ValueError, match=r"small\.pt .*Missing key"):
        eager(small, None)
    with pytest.raises(ValueError, match="fp16"):
        LamaCleaner(small, Placement(precision="fp16"))


SCRIPT = """
import sys, torch
from pathlib import Path
from framekiln.contract.placement import Placement
import framekiln_stages.nets.lama.runners as lama
lama.EagerLama(Path(sys.argv[1]), Placement(), 1, lama.Sizes(width=8, blocks=2))
assert not any(name.startswith("lama_cleaner") for name in sys.modules), "imported without being configured"
"""


@pytest.mark.heavy
def test_lama_cleaner_is_imported_only_if_configured(small):
    done = script(SCRIPT, small)
    assert (done.returncode, done.stderr) == (0, "")
