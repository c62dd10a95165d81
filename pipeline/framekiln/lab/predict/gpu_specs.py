"""Data sheets of GPUs: `manifests/gpus.yaml`, or a file of that form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.limits import Positive
from framekiln.contract.shipped_files import shipped
from framekiln.planning.gpu.calibration_file import slug
from framekiln.planning.settings import NOT_YAML, Strict, load_yaml, model_of

_FIGURES = ("memory_gb", "bandwidth_gb_s", "fp32_tflops", "fp16_tflops", "bf16_tflops", "watts")
_ALL = "all"  # the source of every figure that has none of its own
_MAKERS_GB = 2**30 / 1e9  # makers count memory in 2^30 bytes, drivers tell bytes


class GpuSpecs(Strict):
    """One GPU model."""

    names: tuple[str, ...] = Field(min_length=1)  # as drivers report them
    memory_gb: Positive  # as the maker states it
    bandwidth_gb_s: Positive
    fp32_tflops: Positive  # without tensor cores
    fp16_tflops: Positive  # dense, sums in fp32
    bf16_tflops: Positive
    watts: Positive  # most power of the board
    maker: str = Field(min_length=1)  # address of the maker's document
    sources: dict[str, str]  # by figure, and of all others

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> Self:
        for name in _FIGURES:
            if not self.sources.get(name, self.sources.get(_ALL, "")).strip():
                raise ValueError(f"{name} has no source; say under `sources:` where it comes from")
        return self

    @property
    def driver_gb(self) -> float:
        """Memory as the GPU's driver tells it."""
        return self.memory_gb * _MAKERS_GB

    def tflops(self, precision: str) -> float:
        """Return the arithmetic rate of a precision in a profile; `auto` is a 16-bit type on a GPU."""
        return {"fp32": self.fp32_tflops, "fp16": self.fp16_tflops}.get(precision, self.bf16_tflops)


GpuList = Mapping[str, GpuSpecs]


def read_gpus(path: Path | None = None) -> GpuList:
    """Read GPUs by their short names from a file, or from the shipped one.

    Raises ConfigError: there is no such file, or it does not list GPUs.
    """
    where = str(path) if path else "manifests/gpus.yaml"
    try:
        data = load_yaml(path.read_bytes() if path else shipped("gpus.yaml").read_bytes())
    except OSError as error:
        raise ConfigError(
            f"There is no file of GPUs at '{path}'; check the path given to --gpus.", code="FK-GPU-FILE-MISSING"
        ) from error
    except NOT_YAML as error:
        raise ConfigError(
            f"{where} is not valid YAML: {' '.join(str(error).split())}; correct it there.", code="FK-NOT-YAML"
        ) from error
    if not isinstance(data, dict) or not data or not all(isinstance(entry, dict) for entry in data.values()):
        raise ConfigError(
            f"{where} must be a YAML mapping of GPUs, as manifests/gpus.yaml is.", code="FK-GPU-FILE-INVALID"
        )
    return {str(name): model_of(GpuSpecs, entry, f"{where}: {name}") for name, entry in data.items()}


def gpu_by_name(name: str, gpus: GpuList) -> GpuSpecs:
    """Return the GPU of a short name, or of the name that its driver or its maker uses.

    Raises ConfigError: no GPU has that name.
    """
    by_name = {slug(alias): gpu for short, gpu in gpus.items() for alias in (short, *gpu.names)}
    if (gpu := gpus.get(name) or by_name.get(slug(name))) is None:
        near = did_you_mean(slug(name), gpus)
        raise ConfigError(f"--for: there is no GPU {name!r} in the file of GPUs.{near}", code="FK-UNKNOWN-GPU")
    return gpu


def gpu_by_driver_name(device: str, gpus: GpuList) -> GpuSpecs:
    """Return the GPU that a driver reports by this name. Raises ConfigError if the file has none."""
    for gpu in gpus.values():
        if slug(device) in map(slug, gpu.names):
            return gpu
    raise ConfigError(
        f"The run was measured on {device!r}, which the file of GPUs does not have; add its data sheet's figures to a "
        "copy of manifests/gpus.yaml and name that with --gpus.",
        code="FK-GPU-WITHOUT-SPECS",
    )
