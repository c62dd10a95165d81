"""Records of each process's work: calls, packets in a step, hand-ons and set-ups.

Events are sent and summed during a run: for progress, live figures, metrics and totals. Records are kept for later
analysis of the time. A record is written as a line of JSON and stored as a row of Parquet.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import field as column

DURATIONS = {
    "wait": "waiting for input, since this process handed on its previous packet",
    "fetch": "opening the packet",
    "decode": "reading and decoding files",
    "preprocess": "preparing the model's input",
    "upload": "copies to the device",
    "queue": "waiting for calls of the process's other packets",
    "infer": "the model, or the stage's whole computation",
    "download": "copies from the device",
    "postprocess": "turning the model's results into columns",
    "write": "writing parts and files",
    "seal": "handing the packet on: packing it, storing it, and waiting until it is taken",
}
"""Parts of a record's time; on a GPU by its own clock, if the stage measures them."""

OUTSIDE = ("wait", "fetch", "seal")
"""Durations that are not part of a packet's seconds."""

INSIDE = tuple(name for name in DURATIONS if name not in OUTSIDE)
"""Durations that are part of a packet's seconds."""

CALL, PACKET, SET_UP, HAND_ON, DEATH = "call", "packet", "set-up", "hand-on", "death"

SCHEMA = pa.schema(
    [
        column("run", pa.string(), "the run, as its lease names it", nullable=False),
        column("kind", pa.string(), "call, packet (in one step), set-up, hand-on, death", nullable=False),
        column("step", pa.string(), "the step; for a hand-on, the last step before it", nullable=False),
        column("worker", pa.string(), "the process, as host:pid", nullable=False),
        column("lane", pa.int64(), "which of the packets that the process works on at a time, from 0", nullable=False),
        column("node", pa.string(), "the machine's host name", nullable=False),
        column("device", pa.string(), "cpu or cuda", nullable=False),
        column(
            "unit",
            pa.string(),
            "the packet's unit; for a second-pass step, the table's file; for a set-up, the step's settings",
        ),
        column("start", pa.int64(), "first row in the unit", nullable=False),
        column("stop", pa.int64(), "row after the last one in the unit", nullable=False),
        column("rows", pa.int64(), "rows computed; 0 in a hand-on", nullable=False),
        column("cost", pa.int64(), "pixels of these rows at full size", "px", nullable=False),
        column("items", pa.map_(pa.string(), pa.int64()), "number of faces, prompts, masks, ... processed, by kind"),
        column("started", pa.float64(), "when it began, since the epoch", "s", nullable=False),
        column("seconds", pa.float64(), "its duration, without wait, fetch and seal", "s", nullable=False),
        *(column(name, pa.float64(), what, "s", nullable=False) for name, what in DURATIONS.items()),
        column("vram_allocated_gb", pa.float64(), "GPU memory allocated at its end; null on the CPU", "GB"),
        column("vram_reserved_gb", pa.float64(), "GPU memory reserved by torch at its end; null on the CPU", "GB"),
        column("vram_peak_gb", pa.float64(), "peak of allocated GPU memory during it; null on the CPU", "GB"),
        column("retries", pa.int64(), "calls repeated after memory ran out", nullable=False),
    ]
)

_MEMORY = ("vram_allocated_gb", "vram_reserved_gb", "vram_peak_gb")
_LEFT_OUT = ("unit", "lane", "start", "stop", "rows", "cost", "retries", "items")  # of a line where they are empty
_EMPTY: dict[str, Any] = {"device": "cpu", "unit": None, "items": {}} | dict.fromkeys(_MEMORY)


@dataclass(kw_only=True, slots=True)
class Work:
    """A process's work in a step: facts that a record and a live event share."""

    kind: str = PACKET
    step: str
    started: float  # seconds since the epoch
    seconds: float = 0.0
    device: str = "cpu"
    unit: str = ""
    start: int = 0  # the packet's first row in its unit
    rows: int = 0
    retries: int = 0  # calls repeated after memory ran out
    memory: tuple[float, float, float] | None = None  # GB on the GPU: allocated, reserved, peak


@dataclass(kw_only=True, slots=True)
class Record(Work):
    """One record, without the run and the process."""

    lane: int = 0
    stop: int = 0
    cost: int = 0
    items: Mapping[str, int] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)  # seconds, by names of `DURATIONS`

    def line(self, run: str, worker: str) -> bytes:
        """Return a line of JSON without empty values; phases of other names are left out."""
        facts: dict[str, Any] = {"run": run, "worker": worker, "kind": self.kind, "step": self.step}
        facts |= {"started": round(self.started, 6), "seconds": round(self.seconds, 6)}
        facts |= {name: value for name in _LEFT_OUT if (value := getattr(self, name))}
        facts |= {name: round(value, 6) for name, value in self.durations.items() if name in DURATIONS}
        if self.device != "cpu":
            facts["device"] = self.device
        facts |= dict(zip(_MEMORY, self.memory or (), strict=False))
        return json.dumps(facts, separators=(",", ":")).encode() + b"\n"


def to_table(lines: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return parsed lines as a table with `SCHEMA`, sorted by start."""
    rows, columns = list(lines), []
    for item in SCHEMA:  # column by column takes half the time of a list of dicts
        if item.name == "node":
            values: list[Any] = [row["worker"].rpartition(":")[0] for row in rows]
        elif item.name == "items":
            values = [list(row.get("items", {}).items()) for row in rows]
        else:
            values = [row.get(item.name, _EMPTY.get(item.name, None if item.nullable else 0)) for row in rows]
        columns.append(pa.array(values, item.type))
    return pa.table(columns, schema=SCHEMA).sort_by("started")


@dataclass(kw_only=True, slots=True)
class StepEvent(Work):
    """A packet's passage through a step, or a set-up. Decoding also reports the empty packet that ends a unit."""

    worker: str  # host:pid
    failures: int = 0
    share: float = 0.0  # decoding: share of the unit's bytes decoded for this packet
    reasons: Mapping[str, int] = field(default_factory=dict)  # failures by kind and message
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, inside calls
    around: Mapping[str, float] = field(default_factory=dict)  # seconds outside calls: wait, fetch, decode and write
    calls: tuple[float, ...] = ()  # seconds of each call; in decoding, the packet's
    note: str = ""  # why the step's model runs uncompiled in this process

    @property
    def node(self) -> str:
        return self.worker.rpartition(":")[0]

    @property
    def ended(self) -> float:
        return self.started + self.seconds

    @property
    def inside(self) -> dict[str, float]:
        """Return the seconds of each phase inside the packet's time."""
        return {name: value for name, value in {**self.phases, **self.around}.items() if name not in OUTSIDE}


@dataclass(frozen=True, kw_only=True)
class Death:
    """The death of a process during work that another one has begun again: its last records are missing."""

    worker: str  # host:pid
    time: float  # when it was noticed, seconds since the epoch


GpuSample = Mapping[str, float | None]
"""A GPU's metrics by the names of `framekiln.profiling.node_metrics.GPU`."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The use of a node's GPUs and cores since the previous reading, a quarter of a second ago."""

    node: str
    time: float  # seconds since the epoch
    gpus: tuple[GpuSample, ...]
    cpu_percent: float | None = None  # use of all cores together


Event = StepEvent | Reading | Death
"""Events that a process sends to the driver during a run."""

Report = Callable[[StepEvent], None]


_EPOCH = time.time() - time.perf_counter()


def now() -> float:
    """Return seconds since the epoch by a monotonic clock: the machine's own may be set back."""
    return _EPOCH + time.perf_counter()


def worker_name() -> str:
    """Return this process's name in a run: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
