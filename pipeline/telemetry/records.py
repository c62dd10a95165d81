"""What every process writes down of its work: one record of each call, each packet and step, each set-up.

Samples (`pipeline.sample`) are summed up while people watch; records are kept, so that one can ask afterwards where the
time went. A record is a line of JSON on its way and a row of Parquet in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipeline.columns import field as column

DURATIONS = {
    "wait": "waiting for input, since this process had handed on its previous packet",
    "fetch": "opening the packet",
    "decode": "reading and decoding files",
    "preprocess": "making the model's input",
    "upload": "copies to the device",
    "infer": "the model, or what stands for one",
    "download": "copies from the device",
    "postprocess": "making columns of the model's answers",
    "write": "writing parts and files",
    "seal": "handing the packet on: packing it, storing it, and waiting until it was taken",
}
"""What a record's time went to. On a GPU by its own clock, where the stage tells."""

CALL, PACKET, SET_UP, HAND_ON = "call", "packet", "set-up", "hand-on"

SCHEMA = pa.schema(
    [
        column("run", pa.string(), "the run, as its lease names it", nullable=False),
        column("kind", pa.string(), "call, packet (one step's way through one), set-up, or hand-on", nullable=False),
        column("step", pa.string(), "the step; of a hand-on the last one before it", nullable=False),
        column("worker", pa.string(), "the process, as host:pid", nullable=False),
        column("node", pa.string(), "the machine's host name", nullable=False),
        column("device", pa.string(), "cpu or cuda", nullable=False),
        column("unit", pa.string(), "the packet's unit of files; of a second-pass step the table's file"),
        column("start", pa.int64(), "first row in the unit", nullable=False),
        column("stop", pa.int64(), "row after the last one in the unit", nullable=False),
        column("rows", pa.int64(), "rows that came out; 0 in a hand-on", nullable=False),
        column("cost", pa.int64(), "pixels of these rows at full size", "px", nullable=False),
        column("items", pa.map_(pa.string(), pa.int64()), "faces, prompts, masks, ... that were gone through, by kind"),
        column("started", pa.float64(), "when it began, since the epoch", "s", nullable=False),
        column("seconds", pa.float64(), "how long it took; wait, fetch and seal are not in it", "s", nullable=False),
        *(column(name, pa.float64(), what, "s", nullable=False) for name, what in DURATIONS.items()),
        column("vram_allocated_gb", pa.float64(), "allocated on the GPU at its end; null on the CPU", "GB"),
        column("vram_reserved_gb", pa.float64(), "held by torch on the GPU at its end; null on the CPU", "GB"),
        column("vram_peak_gb", pa.float64(), "allocated at most meanwhile; null on the CPU", "GB"),
        column("retries", pa.int64(), "calls made again because memory had run out", nullable=False),
    ]
)

_MEMORY = ("vram_allocated_gb", "vram_reserved_gb", "vram_peak_gb")
_EMPTY: dict[str, Any] = {"device": "cpu", "unit": None, "items": {}} | dict.fromkeys(_MEMORY)


@dataclass(kw_only=True, slots=True)
class Record:
    """One of them, but for the run and the process."""

    kind: str
    step: str
    started: float  # seconds since the epoch
    seconds: float = 0.0
    device: str = "cpu"
    unit: str = ""
    start: int = 0
    stop: int = 0
    rows: int = 0
    cost: int = 0
    retries: int = 0
    items: Mapping[str, int] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)  # seconds, by names of `DURATIONS`
    memory: tuple[float, float, float] | None = None  # GB: allocated, reserved, peak

    def line(self, run: str, worker: str) -> bytes:
        """As a line of JSON, without what is empty; phases of other names are left out."""
        facts: dict[str, Any] = {"run": run, "worker": worker, "kind": self.kind, "step": self.step}
        facts |= {"started": round(self.started, 6), "seconds": round(self.seconds, 6)}
        others = (("unit", self.unit), ("start", self.start), ("stop", self.stop), ("rows", self.rows))
        facts |= {name: value for name, value in others if value}
        more = (("cost", self.cost), ("retries", self.retries), ("items", self.items))
        facts |= {name: value for name, value in more if value}
        facts |= {name: round(value, 6) for name, value in self.durations.items() if name in DURATIONS}
        if self.device != "cpu":
            facts["device"] = self.device
        if self.memory is not None:
            facts |= dict(zip(_MEMORY, self.memory, strict=True))
        return json.dumps(facts, separators=(",", ":")).encode() + b"\n"


def to_table(lines: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Parsed lines as a table of `SCHEMA`, in the order in which they began."""
    rows = list(lines)
    return pa.table([_column(item, rows) for item in SCHEMA], schema=SCHEMA).sort_by("started")


def _column(item: pa.Field, rows: list[Mapping[str, Any]]) -> pa.Array:
    """One column of all lines; this takes half the time of a list of dicts."""
    if item.name == "node":
        values: list[Any] = [row["worker"].rpartition(":")[0] for row in rows]
    elif item.name == "items":
        values = [list(row.get("items", {}).items()) for row in rows]
    else:
        values = [row.get(item.name, _EMPTY.get(item.name, None if item.nullable else 0)) for row in rows]
    return pa.array(values, item.type)
