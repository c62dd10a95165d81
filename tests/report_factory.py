"""Outputs as a run would leave them, made without one: rows of real files, and columns with known figures."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from pipeline.columns import field
from pipeline.failure import to_table
from pipeline.ledger import cover
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.stage import Drawing, Stage
from pipeline.storage import Store


class Marked(Stage):
    """A first-pass stage that draws: what the report must show of any stage."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        word: str = "seen"
        pair: tuple[int, ...] = ()

    @property
    def inputs(self):
        return ("frame_index",)

    @property
    def outputs(self):
        return pa.schema(
            [
                field("level", pa.float32(), "how <much> of it", "dB"),
                field("kind", pa.string(), "what it is"),
                field("sharp", pa.bool_(), "whether it is"),
                field("things", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32()))])), "a list"),
            ]
        )

    def __call__(self, batch):
        raise NotImplementedError

    def preview(self, row):
        if row["kind"] == "broken":
            raise ValueError("cannot be drawn")
        return Drawing(
            lines=[(0.0, 0.5, 1.0, float("nan")), (0.25, 0.5, 0.75, 0.5)],
            points=[(0.5, 0.5)],
            caption=f"<i>{self.config.word}</i>",
        )


def step(use="tests.report_factory:Marked", **settings):
    placement = {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "workers": 2, "batch_rows": 16, "vram_gb": 0.0}
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


def record(folder, out, **changes):
    found = {
        "started": "2026-03-04T05:06:07+00:00",
        "seconds": 133.2,
        "input": str(folder),
        "output": str(out),
        "arguments": ["--input", str(folder), "--output", str(out), "--set", "marked.word=a b"],
        "profile_name": "cpu-only",
        "profile": {},
        "decode": {"every_nth": 1, "max_pixels": 10**8},
        "steps": {"marked": step(word="here", pair=[1, 2])},
        "files": 3,
        "frames": 0,
        "errors": {},
        "figures": {"decode": figures(12, 1.0), "marked": figures(12, 6.0, 4, infer=4.5)},
        "machines": [{"name": "this machine", "cpus": 2.0, "gpus": 0.0}],
        "python": "3.11.7",
        "system": "Linux",
        "processor": "A <Processor>",
        "versions": {"framemill": "0.1.0", "pillow": None},
    }
    return found | changes


def values(start, stop):
    """Columns of `Marked` with known figures: level 0, 1, 2, ...; every third kind null; lists of 0, 1, 2 things."""
    thing = {"a": 1, "b": [0.5] * 9}
    return pa.Table.from_pylist(
        [
            {"level": i, "kind": None if i % 3 == 2 else "odd<b>", "sharp": i % 4 == 0, "things": [thing] * (i % 3)}
            for i in range(start, stop)
        ],
        schema=Marked().outputs,
    )


def output(folder, out, failures=(), **changes):
    """An output as a run over the folder would leave it, but for the stage's values."""
    store = Store(str(out))
    listing, start = list_media(str(folder)), 0
    for unit in cover(store, listing, listing, slots=1):
        packets = list(decode(unit, [], 0, DecodeConfig()))
        rows = pa.concat_tables([packet.rows for packet in packets]).drop_columns("halo")
        lost = [failure for packet in packets for failure in packet.failures]
        if lost:
            store.write_table(f"errors/{unit.name}-x.parquet", to_table(lost))
        made = values(start, start := start + rows.num_rows)
        columns = [*rows.columns, *made.columns]
        store.write_table(
            f"frames/{unit.name}-x.parquet", pa.table(columns, schema=pa.schema([*rows.schema, *made.schema]))
        )
    if failures:
        store.write_table("errors/marked-x.parquet", to_table(failures))
    store.write("run.json", json.dumps(record(folder, out, files=len(listing), **changes)).encode())
    return store
