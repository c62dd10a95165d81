"""The shipped list of GPUs: each figure has a source, and agrees with the arithmetic of the chip and its memory."""

from __future__ import annotations

import pytest

from framekiln.lab.predict.gpu_specs import find_gpu
from tests.lab.gpu_law import GPUS

KINDS = ("copied", "quoted", "seen", "derived", "named")  # of sources; gpus.yaml explains them


def test_every_shipped_gpu_has_a_source_for_every_figure():
    assert len(GPUS) == 49
    for gpu in GPUS.values():
        assert gpu.maker.startswith("https://") and "nvidia.com" in gpu.maker
        assert all(word.split(":")[0] in KINDS for word in gpu.sources.values())
        assert gpu.fp16_tflops >= gpu.bf16_tflops >= gpu.fp32_tflops  # dense rates of 16 bits, sums in fp32
    assert GPUS["h200"].tflops("fp32") < GPUS["h200"].tflops("auto")
    assert GPUS["t4"].tflops("bf16") == GPUS["t4"].fp16_tflops  # as device.model.dtype_of chooses there


# Multiprocessors, GHz of boost, FLOP a clock of one in fp32 and in 16 bits, bits of the memory's bus, Gbit/s of a pin.
CHIPS = {
    "rtx-5090": (170, 2.407, 256, 512, 512, 28),
    "rtx-5080": (84, 2.617, 256, 512, 256, 30),
    "rtx-5070-ti": (70, 2.452, 256, 512, 256, 28),
    "rtx-5070": (48, 2.512, 256, 512, 192, 28),
    "rtx-5060-ti-16gb": (36, 2.572, 256, 512, 128, 28),
    "rtx-5060-ti-8gb": (36, 2.572, 256, 512, 128, 28),
    "rtx-5060": (30, 2.497, 256, 512, 128, 28),
    "rtx-4090": (128, 2.52, 256, 512, 384, 21),
    "rtx-4080-super": (80, 2.55, 256, 512, 256, 23),
    "rtx-4080": (76, 2.505, 256, 512, 256, 22.4),
    "rtx-4070-ti-super": (66, 2.61, 256, 512, 256, 21),
    "rtx-4070-ti": (60, 2.61, 256, 512, 192, 21),
    "rtx-4070-super": (56, 2.475, 256, 512, 192, 21),
    "rtx-4070": (46, 2.475, 256, 512, 192, 21),
    "rtx-4060-ti-16gb": (34, 2.535, 256, 512, 128, 18),
    "rtx-4060-ti-8gb": (34, 2.535, 256, 512, 128, 18),
    "rtx-4060": (24, 2.46, 256, 512, 128, 17),
    "rtx-3090": (82, 1.695, 256, 512, 384, 19.5),
    "rtx-3080-12gb": (70, 1.71, 256, 512, 384, 19),
    "rtx-3080-10gb": (68, 1.71, 256, 512, 320, 19),
    "rtx-3070": (46, 1.725, 256, 512, 256, 14),
    "rtx-3060-ti": (38, 1.665, 256, 512, 256, 14),
    "rtx-3060-12gb": (28, 1.777, 256, 512, 192, 15),
    "rtx-3060-8gb": (28, 1.777, 256, 512, 128, 15),
    "rtx-6000-ada": (142, 2.505, 256, 1024, 384, 20),
    "rtx-a6000": (84, 1.8, 256, 1024, 384, 16),
    "a100-40gb": (108, 1.41, 128, 2048, 5120, 2.43),
    "a100-pcie-40gb": (108, 1.41, 128, 2048, 5120, 2.43),
    "a100-80gb": (108, 1.41, 128, 2048, 5120, 3.186),
    "a100-pcie-80gb": (108, 1.41, 128, 2048, 5120, 3.024),
    "h100-pcie": (114, 1.62, 256 * 1.755 / 1.62, 4096, 5120, 3.186),  # its tensor cores have another clock
    "h100-nvl": (132, 1.545, 256 * 1.785 / 1.545, 4096, 6016, 5.237),
}


@pytest.mark.parametrize("name", CHIPS)
def test_rates_are_those_of_the_chip_and_its_memory(name):
    gpu, (processors, clock, fp32, tensor, bits, pin) = GPUS[name], CHIPS[name]
    assert gpu.fp32_tflops == pytest.approx(processors * clock * fp32 / 1e3, rel=0.006)
    assert gpu.bf16_tflops == pytest.approx(processors * clock * tensor / 1e3, rel=0.006)
    assert gpu.bandwidth_gb_s == pytest.approx(bits / 8 * pin, rel=0.002)


@pytest.mark.parametrize(
    ("name", "gigabytes", "short"),
    [
        ("NVIDIA GeForce RTX 3060", 8.6, "rtx-3060-8gb"),
        ("NVIDIA GeForce RTX 3060", 12.6, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060", None, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3080", 12.7, "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 17.2, "rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 5060 Ti", 8.5, "rtx-5060-ti-8gb"),
        ("NVIDIA A100 80GB PCIe", 85.1, "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB", None, "a100-80gb"),
        ("NVIDIA H100 PCIe", None, "h100-pcie"),
    ],
)
def test_boards_of_one_name_are_told_apart_by_their_memory(name, gigabytes, short):
    assert find_gpu(name, GPUS, gigabytes) == GPUS[short]
