"""One cell of a sweep: a way to call a model, and its measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from framekiln.planning.sample import SampleOutcome, Statistics


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to call a model."""

    batch: int = 1
    size: int | None = None  # px of a side; None: the model's own
    frames: int | None = None  # frames of a clip; None: the model's own
    precision: str = "fp32"
    compile: str = "off"  # a mode of torch.compile
    channels_last: bool = False
    backend: str = "torch"

    @property
    def title(self) -> str:
        """The cell in a few words, without values left at their defaults."""
        axes = {"size": self.size, "frames": self.frames}
        parts = [f"batch {self.batch}", *(f"{name} {value}" for name, value in axes.items() if value)]
        parts += [self.precision, f"compile {self.compile}" if self.compile != "off" else ""]
        parts += ["channels last" if self.channels_last else "", self.backend if self.backend != "torch" else ""]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """Memory of tensors at one moment of a call."""

    ms: float  # since the call began
    allocated: int  # bytes
    reserved: int | None = None  # bytes; None on the CPU


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one model in one cell."""

    weights: int  # parameters and buffers
    inputs: int
    outputs: int
    activations_peak: int | None = None  # most bytes that a call holds at one moment, outputs included
    peak: int | None = None  # most bytes allocated in the call, with weights and inputs
    reserved: int | None = None  # most bytes held by torch's allocator; None on the CPU
    device: int | None = None  # bytes of the GPU, or the limit of --memory-cap; None on a CPU without a limit
    timeline: tuple[MemoryPoint, ...] = ()

    @property
    def device_share(self) -> float | None:
        return self.peak / self.device if self.peak is not None and self.device else None


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Growth of memory over repeated calls."""

    calls: int
    slope: float  # bytes a call, over the second half of the calls
    leaks: bool
    allocated: tuple[int, ...]  # bytes after each call


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The difference of a cell's outputs from fp32's."""

    rel_l2: float | None  # error of all outputs together; None if one is not finite
    cosine: float | None
    max: float | None
    nonfinite: int  # number of values


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """Speed relative to fp32, measured in turns in one process."""

    factor: float  # median of the turns
    low: float  # lowest of the turns
    high: float
    turns: int


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Time and arithmetic of one module over all its uses in a call."""

    path: str  # path of attributes; empty for the whole model
    kind: str  # class
    depth: int
    uses: int  # uses in a call
    mean_ms: float  # mean with the modules inside it
    std_ms: float | None
    own_ms: float  # mean, without listed modules inside it
    share: float  # share of the whole model's mean
    flops: float | None = None


@dataclass(kw_only=True)
class CellResult:
    """The figures of one cell, filled one after the other; times are of a call unless a name says otherwise."""

    cell: Cell
    model: str
    outcome: SampleOutcome
    why: str = ""  # reason for any outcome other than ok
    notes: tuple[str, ...] = ()
    items: int = 0  # items of a call: the batch
    warmup: int = 0  # calls
    set_up_s: float = 0.0  # time to build and move the model
    compile_s: float | None = None  # first call of a compiled model, less a later one
    latency_ms: Statistics | None = None  # time from a call's start until its results are on the device
    enqueue_ms: Statistics | None = None  # until the call has returned
    gpu_ms: Statistics | None = None  # time by the GPU's events; None on the CPU
    h2d_ms: float | None = None  # median copy of the inputs to the GPU; None on the CPU
    d2h_ms: float | None = None  # median copy of the outputs back
    item_ms: float | None = None  # latency by item: amortised, so no item's own wait
    items_per_s: float | None = None  # over the whole loop, without waits between calls
    frames_per_s: float | None = None  # an item of several frames counts as that many
    item_j: float | None = None  # GPU energy by item, without the host's
    no_energy: str = ""  # why there is no energy
    params: int = 0
    weights_bytes: int | None = None
    flops: float | None = None  # of a call
    traffic: int | None = None  # bytes that a call's operators read and write
    tflops: float | None = None  # arithmetic rate
    peak_share: float | None = None  # share of a large matrix product's rate on this device
    gb_s: float | None = None  # traffic by time
    bandwidth_share: float | None = None  # share of a large copy's rate
    memory: Memory | None = None
    leak: Leak | None = None
    drift: Drift | None = None
    speedup: SpeedUp | None = None
    layers: tuple[Layer, ...] = ()
    clocks: tuple[Mapping[str, Any], ...] = ()  # clocks of the GPU, before and after the loop
    extra: Mapping[str, Any] = field(default_factory=dict)  # figures of other measurements, by name

    @property
    def p50(self) -> float | None:
        """Median latency of a call in ms."""
        return None if self.latency_ms is None else self.latency_ms.median
