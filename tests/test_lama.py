"""LaMa written out equals another program's blocks, and lama-cleaner's own class is what it was."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from pipeline.stage import Placement
from pipeline.weights import default_lock
from stages.nets.ffc import FourierUnit, Generator, Sizes, cast, symmetric
from stages.nets.lama import Eager, LamaCleaner, generator, matched
from tests.lama_factory import Reference, enliven, save
from tests.material import media

SMALL = Sizes(width=8, blocks=2)


@pytest.fixture(scope="module", autouse=True)
def _without_profiling():
    """TorchScript looks for something to fuse in its first calls, 1 to 4 s each; its answers are the same without."""
    before = torch._C._jit_set_profiling_executor(False)
    yield
    torch._C._jit_set_profiling_executor(before)


def photo():
    image = cv2.imread(str(media("inpaint/overture-creations-5sI6fQgYIuo.png")))[:, :, ::-1].copy()
    mask = cv2.imread(str(media("inpaint/overture-creations-5sI6fQgYIuo_mask.png")), cv2.IMREAD_GRAYSCALE) > 127
    return image, mask


def tensors(image, mask):
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    return pixels, torch.from_numpy(mask)[None, None].float()


def psnr(one, other):
    return 10 * np.log10(255**2 / np.mean((one - other) ** 2))


@pytest.fixture(scope="module")
def scene():
    """The edge of the dog, and what of it is to go: 160x144 px."""
    image, mask = photo()
    return np.ascontiguousarray(image[220:380, 200:344]), np.ascontiguousarray(mask[220:380, 200:344])


@pytest.fixture(scope="module")
def small(tmp_path_factory, scene):
    """A small network of the third party, as a TorchScript file."""
    return save(enliven(Reference(8, 2), tensors(*scene)[0]), tmp_path_factory.mktemp("lama") / "small.pt")


def eager(path, sizes=SMALL, **placement):
    return Eager(path, Placement(**placement), 4, sizes)


def ask(lama, image, mask):
    """lama-cleaner's own call, as its users make it: RGB levels."""
    from lama_cleaner.schema import Config

    sizes = {f"hd_strategy_{name}": 1 for name in ("crop_margin", "crop_trigger_size", "resize_limit")}
    answer = lama(image.copy(), mask.astype(np.uint8) * 255, Config(ldm_steps=1, hd_strategy="Original", **sizes))
    return answer[:, :, ::-1]


# Equality


def test_the_network_equals_the_third_party_s(small, scene):
    script = torch.jit.load(str(small))
    net = eager(small)
    assert scene[1].any() and not scene[1].all()
    for height, width in ((160, 144), (16, 16), (24, 136), (128, 64)):
        image, mask = (np.ascontiguousarray(part[:height, -width:]) for part in scene)
        mask[4:12, 4:12] = True
        with torch.no_grad():
            expected = script(*tensors(image, mask))[0].permute(1, 2, 0).numpy() * 255
        assert expected[mask].std() > 20, "a network that paints one colour would prove nothing"
        answer = net([image], [mask])[0]
        assert np.abs(answer - expected).max() < 0.01


@pytest.mark.heavy
def test_the_published_architecture_equals_both_references(tmp_path, scene):
    """At full size: the file has the published one's size, and three ways to run it agree."""
    image, mask = (np.ascontiguousarray(part[40:104, 60:124]) for part in scene)
    mask[20:50, 10:40] = True
    reference = enliven(Reference(), tensors(image, mask)[0])
    path = save(reference, tmp_path / "big.pt")
    # within .25%; a file also tells where its code was called from, which came to -10 and +175 kB
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


def test_the_number_of_weights_is_the_published_file_s():
    with torch.device("meta"):
        state = Generator().state_dict()
    numbers = sum(tensor.numel() for tensor in state.values() if tensor.is_floating_point())
    assert numbers == 51_057_027
    # each tensor is a member of a zip of its own, filled up to 64 bytes; the rest is code. 7 kB a layer in all
    assert 0 < default_lock()["big-lama"].bytes - 4 * numbers < 1_500_000


@pytest.mark.parametrize("shape", [(160, 144), (17, 33), (61, 40), (16, 16)])
def test_lama_cleaner_s_class_gives_what_its_own_call_gives(small, scene, shape):
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


def test_lama_cleaner_leaves_the_process_as_it_was(small, scene, capfd):
    before = list(warnings.filters)
    LamaCleaner(small, Placement())([scene[0]], [scene[1]])
    assert warnings.filters == before
    assert small.exists()
    assert capfd.readouterr() == ("", "")


def test_pictures_smaller_than_the_network_s_least_are_painted(small):
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
    full, half = (eager(small, precision=way)([image], [mask])[0][mask] for way in ("full", precision))
    assert 40 < psnr(full, half) < 90


def test_fourier_units_stay_in_fp32():
    net = Generator(SMALL)
    cast(net, torch.float16)
    units = {id(tensor) for part in net.modules() if isinstance(part, FourierUnit) for tensor in part.parameters()}
    assert units
    for tensor in net.parameters():
        assert tensor.dtype == (torch.float32 if id(tensor) in units else torch.float16)


@pytest.mark.parametrize("width", [8, 9])
def test_a_spectrum_made_symmetric_is_that_of_the_picture_the_cpu_makes_of_it(width):
    generator = torch.Generator().manual_seed(0)
    odd = torch.randn(2, 3, 6, width // 2 + 1, generator=generator, dtype=torch.complex64)
    picture = torch.fft.irfft2(odd, s=(6, width), norm="ortho")
    found = symmetric(odd, width)
    assert torch.allclose(torch.fft.irfft2(found, s=(6, width), norm="ortho"), picture, atol=1e-6)
    assert torch.allclose(found, torch.fft.rfft2(picture, norm="ortho"), atol=1e-6), (
        "no transform can take it otherwise"
    )
    assert not torch.allclose(odd, found, atol=0.1)


def test_how_it_is_laid_out_changes_little(small, scene):
    plain, last = (eager(small, channels_last=way)([scene[0]], [scene[1]]) for way in (False, True))
    assert np.abs(plain - last).max() < 0.01


def test_neighbours_change_nothing_on_the_cpu(small, scene):
    image, mask = scene
    net = eager(small)
    pictures = [image, image[::-1].copy(), image[:, ::-1].copy()]
    together = net(pictures, [mask] * 3)
    for one, answer in zip(pictures, together, strict=True):
        assert (net([one], [mask])[0] == answer).all()


def test_random_weights_are_the_same_each_time(scene):
    one, other = (eager(None)([scene[0]], [scene[1]]) for _ in range(2))
    assert (one == other).all()
    assert (LamaCleaner(None, Placement()).lama.model.net.model[34].weight == generator(None).model[34].weight).all()


@pytest.mark.heavy
def test_compiled_it_is_the_same(scene, tmp_path):
    """With one block, since each takes the compiler seconds."""
    image, mask = (np.ascontiguousarray(part[40:104, 60:124]) for part in scene)
    path = save(enliven(Reference(8, 1), tensors(image, mask)[0]), tmp_path / "tiny.pt")
    pictures, masks = [image, image[::-1].copy()], [mask, mask]
    plain, compiled = (eager(path, Sizes(width=8, blocks=1), compile=way)(pictures, masks) for way in (False, True))
    assert np.abs(plain - compiled).max() < 0.01


def test_a_gpu_gives_the_same(small, scene):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    image, mask = scene
    expected = eager(small)([image] * 5, [mask] * 5)
    for precision in ("full", "mixed", "bf16"):
        for pin in (False, True):
            answer = eager(small, device="cuda", precision=precision, pin_memory=pin)([image] * 5, [mask] * 5)
            assert psnr(answer[:, mask], expected[:, mask]) > (60 if precision == "full" else 40)
    cleaner = LamaCleaner(small, Placement(device="cuda", precision="mixed"))
    assert np.abs(cleaner([image], [mask]) - expected[:1]).max() <= 2


# Files


@pytest.mark.parametrize("prefix", ["", "model.", "generator.", "model.generator."])
def test_any_common_prefix_is_accepted(prefix):
    wanted = Generator(SMALL).state_dict()
    found = matched({prefix + name: tensor for name, tensor in wanted.items()}, wanted, "x.pt")
    assert set(found) == {name for name in wanted if not name.endswith("num_batches_tracked")}
    Generator(SMALL).load_state_dict(found, strict=False)


def test_weights_of_another_network_are_refused_by_name():
    wanted = Generator(SMALL).state_dict()
    name = "model.5.conv1.ffc.convg2g.fu.conv_layer.weight"
    assert name in wanted
    faulty = {
        "lacks " + name: {key: value for key, value in wanted.items() if key != name},
        "does not: model.model.99.weight": {**wanted, "model.99.weight": torch.zeros(1)},
        "another shape " + name: {**wanted, name: torch.zeros(3)},
    }
    for message, state in faulty.items():
        with pytest.raises(ValueError, match=f"odd.pt is not big-lama: .*{message}"):
            matched({f"model.{key}": value for key, value in state.items()}, wanted, "odd.pt")
    with pytest.raises(ValueError, match="lacks .* in all"):
        matched({}, wanted, "odd.pt")


def test_files_that_are_not_what_they_should_be_are_named(small, tmp_path):
    junk = tmp_path / "junk.pt"
    junk.write_bytes(b"no network at all")
    for build in (lambda: eager(junk), lambda: LamaCleaner(junk, Placement())):
        with pytest.raises(ValueError, match=r"junk\.pt is no TorchScript file"):
            build()
    assert junk.exists(), "lama-cleaner would have deleted it"
    with pytest.raises(ValueError, match=r"small\.pt is not big-lama: it lacks .*; has in another shape"):
        eager(small, None)
    with pytest.raises(ValueError, match="runs in fp32 only"):
        LamaCleaner(small, Placement(precision="fp16"))


SCRIPT = """
import sys, torch
from pathlib import Path
from pipeline.stage import Placement
import stages.nets.lama as lama
lama.Eager(Path(sys.argv[1]), Placement(), 1, lama.Sizes(width=8, blocks=2))
assert not any(name.startswith("lama_cleaner") for name in sys.modules), "not where it was not asked for"
"""


def test_lama_cleaner_is_imported_only_where_it_is_asked_for(small):
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", SCRIPT, str(small)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
