"""The device, the resources and the arithmetic that a stage runs with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from framekiln.contract.limits import Count, Limits, NonNegative, Positive

Precision = Literal["fp32", "bf16", "fp16", "fp16-sums", "auto"]
"""Arithmetic of a model; its weights are cast to that type. fp16-sums: fp16, with sums of matrix products in fp16 too,
which GeForce GPUs do at twice the rate. auto: the 16-bit type that suits the model on a GPU, and fp32 on the
CPU."""
WEIGHT_TYPES = ("fp32", "bf16", "fp16", "fp16-sums")
"""All precisions except auto."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """A model's memory on a GPU by precision, uncompiled. A stage states the 16-bit values, which `auto` uses."""

    weights_gb: float  # GB are 1e9 bytes
    call_gb: float  # activations and inputs of the largest call, in addition to the weights


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The resources and settings that a step runs with. A profile and `--set` may replace each field by its name.

    A profile is checked against these types and limits.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    cpus: Positive = 1.0  # cores booked for each worker; also its number of threads
    gpus: NonNegative = 0.0  # share of one GPU that the cluster books, not a limit on memory
    # Packets that a process with a model works on at a time, each in a thread. On a GPU, one packet is in the model
    # while others are prepared or written. On the CPU each thread computes on a further core, in addition to the booked
    # `cpus`.
    in_flight: Count = 1
    # Longest wait of a row until rows of other packets fill its batch. The wait costs a tenth of a second, at the end
    # only.
    linger_ms: NonNegative = 100.0
    workers: int = 1  # processes with a model; without a model: calls at a time
    batch: Count = 16  # rows of one call; a CLIP stage always gets one clip
    vram_gb: NonNegative = 0.0  # GB that one worker may allocate on the GPU; 0: no limit
    precision: Precision = "fp32"
    compile: bool = False  # use torch.compile, for batches of one size: takes 7 to 47 s at the start
    channels_last: bool = False  # memory layout of a convolutional model
    pin_memory: bool = False  # page-locked staging buffers for copies to a GPU
    # What happens to a row that alone exceeds the GPU's memory: an error, or a slower call on the CPU.
    too_large: Literal["set_aside", "cpu"] = "set_aside"
    # Timeout of one first-pass call; 0: none. SAM 2.1 tiny with 64 prompts takes 20 s a photo on one core.
    timeout_s: NonNegative = 1800.0
    group: Annotated[str, Limits(pattern=r"^[\w-]*$")] = ""  # first-pass steps of one group share a process
    # Items (prompts, faces, ...) that a call computes at a time, by kind.
    chunks: Mapping[str, Count] = field(default_factory=dict)

    @property
    def is_16_bit(self) -> bool:
        """True if weights on a GPU have 16 bits."""
        return self.precision != "fp32"

    def counted(self) -> "Placement":
        """Return the placement in the same precision on the CPU, where the work of a call is counted."""
        on_gpu: Precision = "bf16" if self.precision == "auto" else self.precision
        precision: Precision = "fp32" if self.device == "cpu" else on_gpu
        return replace(self, device="cpu", precision=precision, compile=False, in_flight=1)

    def on_cpu(self) -> "Placement":
        """Return the same placement on the CPU, in fp32."""
        return replace(self, device="cpu", precision="fp32", compile=False, pin_memory=False)
