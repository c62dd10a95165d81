"""Outputs without a run: rows of real files, and columns with known values."""

from __future__ import annotations

import json
from dataclasses import dataclass

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.drawing import Area, Drawing, Label, Legend
from framekiln.contract.row_errors import to_table, traced
from framekiln.contract.stage import Scope, Stage, Table
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.output.object_store import Store
from framekiln.planning.limits import run_targets
from framekiln.profiling import node_metrics, records
from framekiln.profiling.run_profile import profile_of
from framekiln.runtime.run.record import sealed
from tests.support.runs.units import ensure_units


class Marked(Stage):
    """A first-pass stage that draws."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        word: str = "seen"
        pair: tuple[int, ...] = ()

    inputs = ("frame_index",)
    outputs = pa.schema(
        [
            field("level", pa.float32(), "how <much> of it", "dB"),
            field("kind", pa.string(), "what it is"),
            field("sharp", pa.bool_(), "whether it is"),
            field("things", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32()))])), "a list"),
        ]
    )

    def __call__(self, batch):
        raise NotImplementedError

    def draw(self, row):
        if row["kind"] == "broken":
            raise ValueError("cannot be drawn")
        return Drawing(
            lines=[(0.0, 0.5, 1.0, float("nan")), (0.25, 0.5, 0.75, 0.5)],
            points=[(0.5, 0.5)],
            caption=f"<i>{self.config.word}</i>",
        )


def png(colour, side=4, alpha=None):
    """Return an image of one colour (RGB), with an alpha channel where given."""
    image = np.full((side, side, 3), colour[::-1], np.uint8)
    if alpha is not None:
        image = np.dstack([image, np.full((side, side), alpha, np.uint8)])
    return cv2.imencode(".png", image)[1].tobytes()


class Drawn(Stage):
    """A first-pass stage that uses all fields of a drawing, and writes an image."""

    inputs = ("frame_index",)
    outputs = pa.schema(
        [field("made", pa.large_binary(), "a file"), field("spots", pa.list_(pa.float32()), "where it draws")]
    )

    def __call__(self, batch):
        raise NotImplementedError

    def draw(self, row):
        if not row["spots"]:
            return None
        square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
        hole = [(0.25, 0.25), (0.75, 0.25), (0.75, 0.75)]
        return Drawing(
            areas=[Area(rings=[square, hole], colour=8), Area(rings=[[(0.5, float("inf"))]])],
            labels=[Label(x=0.5, y=0.5, text="<b>label</b>"), Label(x=float("nan"), y=0, text="nowhere")],
            overlay=png((255, 0, 0), alpha=99),
            result_image=row["made"],
            legend=Legend(image=png((0, 255, 0)), text="what <colours> mean"),
            caption=f"spots {row['spots']}",
        )


class Later(Stage):
    """A second-pass stage with tables about frames, stretches of frames, and whole files."""

    scope = Scope.MEDIA

    inputs = ("frame_index", "level")

    @property
    def tables(self):
        keys = {
            "of_frames": ["frame_index"],
            "of_stretches": ["first_frame", "last_frame"],
            "of_files": [],
            "of_nothing": None,
        }
        return {
            name: Table(
                schema=pa.schema(
                    [
                        *([] if own is None else [field("media_id", pa.string(), "")]),
                        *(field(one, pa.int32(), "") for one in own or ()),
                        field("word", pa.string(), ""),
                        field("blob", pa.binary(), ""),
                    ]
                ),
                keys=("word",),
                description="words",
            )
            for name, own in keys.items()
        }

    def __call__(self, batch):
        raise NotImplementedError

    def draw(self, row):
        words = {name: [item["word"] for item in row[name]] for name in self.tables if name in row}
        return Drawing(caption=f"level {row['level']:g}: {words}")


def step(use="tests.support.runs.report_factory:Marked", **settings):
    placement = {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "workers": 2, "batch": 16, "vram_gb": 0.0}
    return {"use": use, "version": 1, "settings": settings, "placement": placement, "fingerprint": "f", "weights": []}


def figures(rows, busy, workers=1, **phases):
    return {
        "rows": rows,
        "errors": 0,
        "workers": workers,
        "rows_per_s": 20.0,
        "busy_s": busy,
        "set_up_s": 0.0,
        "ms_per_row": 1000 * busy / rows if rows else None,
        "phases_s": phases,
    }


STATE = {"state": "finished", "run": "", "files_done": 3, "reason": "", "written": "2026-03-04T05:08:20+00:00"}


def record(folder, out, **changes):
    fields = {
        **STATE,
        "run": changes.get("throughput", {}).get("run", ""),
        "started": "2026-03-04T05:06:07+00:00",
        "seconds": 133.2,
        "input": str(folder),
        "output": str(out),
        "arguments": ["--input", str(folder), "--output", str(out), "--set", "marked.word=a b"],
        "profile_name": "cpu-only",
        "profile": {},
        "decode": {"every_nth": 1, "max_pixels": 10**8, "fingerprint": "d"},
        "steps": {"marked": step(word="here", pair=[1, 2])},
        "waves": [["marked"]],
        "files": 3,
        "frames": 0,
        "errors": {},
        "figures": {"decode": figures(12, 1.0), "marked": figures(12, 6.0, 4, infer=4.5)},
        "machines": [{"name": "this machine", "cpus": 2.0, "gpus": 0.0}],
        "python": "3.11.7",
        "system": "Linux",
        "processor": "A <Processor>",
        "versions": {"framekiln": "0.1.0", "pillow": None},
    }
    return fields | changes


def values(start, stop):
    """Return columns of `Marked` with known values: level 0, 1, 2, ...; every third kind null; lists of 0 to 2."""
    thing = {"a": 1, "b": [0.5] * 9}
    return pa.Table.from_pylist(
        [
            {"level": i, "kind": None if i % 3 == 2 else "odd<b>", "sharp": i % 4 == 0, "things": [thing] * (i % 3)}
            for i in range(start, stop)
        ],
        schema=Marked().outputs,
    )


def output(folder, out, failures=(), **changes):
    """Write an output for the files of a folder, with known values of the stage."""
    store = Store(str(out))
    listing, start = list_media(str(folder)), 0
    for unit in ensure_units(store, listing, listing, slots=1):
        packets = list(decode(unit, [], 0, DecodeConfig()))
        rows = pa.concat_tables([packet.rows for packet in packets]).drop_columns("halo")
        failed = [failure for packet in packets for failure in packet.failures]
        if failed:
            store.write_table(f"errors/{unit.name}-x.parquet", traced(to_table(failed), {}, {}))
        results = values(start, start := start + rows.num_rows)
        columns = [*rows.columns, *results.columns]
        store.write_table(
            f"frames/{unit.name}-x.parquet", pa.table(columns, schema=pa.schema([*rows.schema, *results.schema]))
        )
    if failures:
        store.write_table("errors/marked-x.parquet", traced(to_table(failures), {}, {}))
    store.write("run.json", json.dumps(sealed(record(folder, out, files=len(listing), **changes))).encode())
    return store


RUN = "ab12"


def call_records(workers, packets=6, seconds=2.0, began=1_000_000.0, run=RUN):
    """Return records of processes that wait, work and hand on in turns.

    Args:
        workers: by "host:pid" the steps of each process; those with "decode" decode.
        packets: of each process.
        seconds: of a packet in a step; a wait takes half of it, handing on a quarter.
        began: start of all set-ups, in seconds since the epoch; they take one packet's time.
        run: name of the run.
    """
    lines = []
    for name, steps in workers.items():
        at = began + seconds
        about = {"run": run, "worker": name}
        if "decode" not in steps:
            lines.append(about | {"kind": "set-up", "step": steps[0], "started": began, "seconds": seconds})
        for number in range(packets):
            at += seconds / 2
            place = {"unit": "u", "start": 10 * number, "stop": 10 * number + 10, "rows": 10, "cost": 1000}
            for i, one in enumerate(steps):
                wait = {} if i else {"wait": seconds / 2}
                phases = {"decode": 0.9 * seconds} if one == "decode" else {"infer": 0.6 * seconds, "write": 0.1}
                record = about | {"step": one, "started": at, "seconds": seconds} | place
                lines.append(record | {"kind": "packet"} | wait | phases)
                if one != "decode":
                    lines.append(
                        record | {"kind": "call", "started": at + 0.1, "seconds": 0.7 * seconds, "infer": 0.6 * seconds}
                    )
                at += seconds
            handed = {"kind": "hand-on", "step": steps[-1], "started": at, "seconds": 0.0, "seal": seconds / 4}
            lines.append(about | place | handed | {"rows": 0})
            at += seconds / 4
    return lines


def node_samples(workers, seconds, *, gpus=0, began=1_000_000.0):
    """Return four samples a second of one machine."""
    pids = [int(name.rpartition(":")[2]) for name in workers]
    node = next(iter(workers)).rpartition(":")[0]
    return [
        {
            "run": RUN,
            "node": node,
            "time": began + i / 4,
            "cpu_percent": 50 + 30 * (i % 40 < 20),
            "memory_gb": 8 + i / 200,
            "workers_gb": {pid: 1.0 + 0.1 * place for place, pid in enumerate(pids)},
            "store_gb": 0.5,
            "gpus": [
                {"use_percent": 90.0 * (i % 8 > 1), "memory_gb": 6.0, "total_gb": 8.0, "power_w": 200.0}
                | {"temperature_c": 60.0}
                for _ in range(gpus)
            ],
            "gpu_processes_gb": dict.fromkeys(pids, 2.0) if gpus else {},
        }
        for i in range(int(4 * seconds))
    ]


def recorded(store, workers, *, gpus=0, targets=(), **times):
    """Write records into an output, and their profile into its run.json."""
    lines = call_records(workers, **times)
    length = max(line["started"] + line["seconds"] for line in lines) - min(line["started"] for line in lines)
    store.write_table(f"profile/calls-{RUN}.parquet", records.to_table(lines))
    samples = node_samples(workers, length, gpus=gpus)
    store.write_table(f"profile/nodes-{RUN}.parquet", node_metrics.to_table(samples))
    run = json.loads(store.read("run.json"))
    run |= {"run": RUN, "throughput": profile_of(store, RUN, run_targets(targets)).to_dict()}
    store.write("run.json", json.dumps(sealed(run)).encode())
