"""Data sheets of GPUs: `manifests/gpus.yaml`, or a file of that form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, RootModel, model_validator

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.limits import Positive
from framekiln.contract.shipped_files import shipped
from framekiln.lab.measure.precision import is_full
from framekiln.planning.gpu.calibration_file import slug
from framekiln.planning.manifest import read_named
from framekiln.planning.settings import Strict, parse

_FIGURES = ("memory_gb", "bandwidth_gb_s", "fp32_tflops", "fp16_tflops", "bf16_tflops", "watts")
_ALL = "all"  # the source of every figure without one of its own
_MAKERS_GB = 2**30 / 1e9  # makers count memory in 2^30 bytes, drivers report bytes


class GpuSpecs(Strict):
    """One GPU model."""

    names: tuple[str, ...] = Field(min_length=1)  # names as drivers report them
    memory_gb: Positive  # GB as the maker states them
    bandwidth_gb_s: Positive
    fp32_tflops: Positive  # without tensor cores
    fp16_tflops: Positive  # dense, sums in fp32
    bf16_tflops: Positive
    watts: Positive  # maximum power of the board
    maker: str = Field(min_length=1)  # address of the maker's document
    sources: dict[str, str]  # by figure, and `all` for the others

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> Self:
        for name in _FIGURES:
            if not self.sources.get(name, self.sources.get(_ALL, "")).strip():
                raise ValueError(f"{name} has no source; name it under `sources:`")
        return self

    @property
    def driver_gb(self) -> float:
        """Memory as the GPU's driver reports it."""
        return self.memory_gb * _MAKERS_GB

    def tflops(self, precision: str) -> float:
        """Return the arithmetic rate of a precision; in 16 bits `auto` takes the type that the GPU does not emulate."""
        return self.fp32_tflops if is_full(precision) else max(self.fp16_tflops, self.bf16_tflops)


GpuList = Mapping[str, GpuSpecs]


class _GpuFile(RootModel[dict[str, GpuSpecs]]):
    root: dict[str, GpuSpecs] = Field(min_length=1)


def read_gpus(path: Path | None = None) -> GpuList:
    """Read GPUs by their short names from a file, or from the shipped one.

    Raises ConfigError: the file is missing, or does not list GPUs.
    """
    where = str(path) if path else "manifests/gpus.yaml"
    text = read_named(where, "file of GPUs", "--gpus") if path else shipped("gpus.yaml").read_bytes()
    return parse(_GpuFile, text, where).root


def find_gpu(name: str, gpus: GpuList, gigabytes: float | None = None) -> GpuSpecs | None:
    """Return the GPU of a short name, or of the name that its driver or its maker uses; None without one.

    Of boards with the same name it is the one nearest to the driver's `gigabytes`, or the first.
    """
    alike = (gpu for short, gpu in gpus.items() if _simplify(name) in map(_simplify, (short, *gpu.names)))
    return min(alike, key=lambda gpu: abs(gpu.driver_gb - gigabytes) if gigabytes else 0.0, default=None)


def _simplify(name: str) -> str:
    """Return a name without what people leave out: 'RTX 4060 Laptop' is 'NVIDIA GeForce RTX 4060 Laptop GPU'."""
    return slug(name).removeprefix("nvidia-").removeprefix("geforce-").removesuffix("-gpu")


def short_name(name: str, gpus: GpuList, option: str) -> str:
    """Return the short name of a GPU. Raises ConfigError: no GPU has the name that was given to an option."""
    if (gpu := find_gpu(name, gpus)) is None:
        near = did_you_mean(_simplify(name), gpus)
        raise ConfigError(f"{option}: there is no GPU {name!r} in the file of GPUs.{near}", code="FK-UNKNOWN-GPU")
    return next(short for short, each in gpus.items() if each is gpu)


def gpu_by_driver_name(device: str, gpus: GpuList, gigabytes: float | None = None) -> GpuSpecs:
    """Return the GPU with this name and memory in its driver. Raises ConfigError: the file has none."""
    if (gpu := find_gpu(device, gpus, gigabytes)) is None:
        raise ConfigError(
            f"The run was measured on {device!r}, which the file of GPUs does not have; add its data sheet's figures "
            "to a copy of manifests/gpus.yaml and name that with --gpus.",
            code="FK-GPU-WITHOUT-SPECS",
        )
    return gpu
