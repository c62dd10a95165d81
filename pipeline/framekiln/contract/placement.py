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
"""Precisions of a model but auto."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """Memory of a stage's model on a GPU by arithmetic, uncompiled; stages count in 16 bits, as `auto` computes."""

    weights_gb: float  # GB are 1e9 bytes
    call_gb: float  # beside them, of its largest call, with the call's inputs


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The way a stage runs. A stage declares its own; a profile and `--set` may replace each field by its name.

    A profile is checked against these types and limits.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    cpus: Positive = 1.0  # of each worker; also its number of threads
    gpus: NonNegative = 0.0  # share of one GPU that the cluster books, not a limit on memory
    # Packets that a process with a model works on at a time, each in a thread. On a GPU, while one is in the model,
    # others are prepared or written. On the CPU each computes on a core of its own, beyond the `cpus` that are booked.
    in_flight: Count = 1
    # Longest wait of a row for rows of other packets to fill its batch; a tenth of a second is lost at the end only.
    linger_ms: NonNegative = 100.0
    workers: int = 1  # processes with a model; for a stage without one, at most so many calls at a time
    batch: Count = 16  # rows of one call; a CLIP stage always gets one clip
    vram_gb: NonNegative = 0.0  # limit on what one worker allocates on the GPU; 0: none
    precision: Precision = "fp32"
    compile: bool = False  # by torch.compile, for batches of one size: takes 7 to 47 s at the start
    channels_last: bool = False  # memory layout of a convolutional model
    pin_memory: bool = False  # page-locked staging buffers for copies to a GPU
    # A row that does not fit into the GPU's memory alone: a line in errors, or a call on the CPU, which takes longer.
    too_large: Literal["set_aside", "cpu"] = "set_aside"
    # Timeout of one first-pass call, 0 for none. SAM 2.1 tiny with 64 prompts takes one core 20 s a photo.
    timeout_s: NonNegative = 1800.0
    group: Annotated[str, Limits(pattern=r"^[\w-]*$")] = ""  # first-pass steps of one group share a process
    # Rows' items a time inside a call, by kind: prompts, faces, ...
    chunks: Mapping[str, Count] = field(default_factory=dict)

    @property
    def is_16_bit(self) -> bool:
        """True if weights on a GPU have 16 bits."""
        return self.precision != "fp32"

    def counted(self) -> "Placement":
        """Return the same arithmetic on the CPU, where a call's work is counted."""
        on_gpu: Precision = "bf16" if self.precision == "auto" else self.precision
        precision: Precision = "fp32" if self.device == "cpu" else on_gpu
        return replace(self, device="cpu", precision=precision, compile=False, in_flight=1)

    def on_cpu(self) -> "Placement":
        """Return the same placement on the CPU, in fp32."""
        return replace(self, device="cpu", precision="fp32", compile=False, pin_memory=False)
