"""How long a report takes, and how large it is: an output of so many rows, made without a run.

    python benchmarks/report.py [--rows 100000] [--steps lighting,flow,...] [--keep FOLDER]

Each row is a photo, a hard link to one of three, so that thumbnails are really decoded. What steps found is made up,
50 different rows of each, masks and faces among them; records are those of an hour on six processes and one GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.columns import SOURCE
from pipeline.ledger import cover
from pipeline.manifest import read_pipeline
from pipeline.media.listing import list_media
from pipeline.stage import Stage
from pipeline.step import is_file_column
from pipeline.storage import Store
from pipeline.telemetry.report import NAME, write_report
from pipeline.telemetry.report.rebuilt import rebuild
from samples.make import photos
from stages.nets.masks import encode

FACTORY: Any = importlib.import_module("tests.report_factory")  # which has no types
DIFFERENT, IN_FILE = 50, 500  # rows made up for each step; rows of a file of the table
PACKETS = 1000  # of each of the processes that have records
WORKERS = {f"box:{i}": ["decode", "lighting", "flow"] if i < 2 else [f"step{i}"] for i in range(6)}


def made_up(rng: np.random.Generator, item: pa.Field) -> Any:
    """A value of a column: numbers 0 to 1, lists of up to three, masks that are discs."""
    kind = item.type
    if item.name == "segmentation":
        y, x = np.ogrid[:300, :400]
        disc = (x - rng.integers(400)) ** 2 + (y - rng.integers(300)) ** 2 < rng.integers(20, 150) ** 2
        return encode([disc])[0]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: made_up(rng, kind.field(i)) for i in range(kind.num_fields)}
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else rng.integers(4)
        return [made_up(rng, kind.value_field) for _ in range(size)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b"\xff\xd8\xff" + bytes(2000)
    number = rng.random() * (100 if pa.types.is_integer(kind) else 1)
    return f"word{number:.1f}" if pa.types.is_string(kind) else pa.scalar(number).cast(kind, safe=False).as_py()


def collection(folder: Path, rows: int) -> None:
    """So many photos."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [folder / f"source-{name}" for name in photos()]
    for source, real in zip(sources, photos().values(), strict=True):
        shutil.copyfile(real, source)
    for i in range(rows):
        place = folder / "in" / f"{i // 1000:03}" / f"{i:06}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(sources[i % 3], place)


def tables(store: Store, folder: Path, stages: dict[str, Stage], rows: int) -> None:
    """Units, the frames table in files of `IN_FILE` rows, and tables of as many rows."""
    listing = list_media(str(folder / "in"))
    cover(store, listing, listing, slots=4)
    rng = np.random.default_rng(0)
    found = [item for stage in stages.values() for item in stage.outputs]
    values = different(rng, found)
    for start in range(0, rows, IN_FILE):
        media = [item.media_id for item in listing[start : start + IN_FILE]]
        own = {"media_id": media, "frame_index": [0] * len(media), "media_type": ["photo"] * len(media)}
        own |= {"clip_index": [0] * len(media), "height": [427] * len(media), "width": [640] * len(media)}
        nothing = {name: pa.nulls(len(media), SOURCE.field(name).type) for name in ("time_s", "fps")}
        source = pa.table(own | nothing).select(SOURCE.names).cast(SOURCE)
        drawn = values.take(pa.array(rng.integers(DIFFERENT, size=len(media))))
        both = pa.table([*source.columns, *drawn.columns], schema=pa.schema([*SOURCE, *values.schema]))
        store.write_table(f"frames/{start:07}.parquet", both)
    for name, table in ((name, table) for stage in stages.values() for name, table in stage.tables.items()):
        made = different(rng, table.schema).take(pa.array(rng.integers(DIFFERENT, size=rows)))
        for key, column in (("media_id", [item.media_id for item in listing]), ("frame_index", [0] * rows)):
            if (place := made.schema.get_field_index(key)) >= 0:
                made = made.set_column(place, made.schema.field(key), pa.array(column, made.schema.field(key).type))
        store.write_table(f"{name}/all.parquet", made)


def different(rng: np.random.Generator, found: Iterable[pa.Field]) -> pa.Table:
    """Rows made up for some columns, those of whole files as paths."""
    items = [pa.field(i.name, pa.string() if is_file_column(i) else i.type, metadata=i.metadata) for i in found]
    rows = [{item.name: made_up(rng, item) for item in items} for _ in range(DIFFERENT)]
    return pa.Table.from_pylist(rows, schema=pa.schema(items))


def main(rows: int, names: list[str], folder: Path) -> None:
    """Make the output, write the report, and print."""
    known = read_pipeline(None).steps
    steps = {name: FACTORY.step(known[name].use) | {"version": _version(known[name].use)} for name in names}
    collection(folder, rows)
    store = Store(str(folder / "out"))
    tables(store, folder, rebuild(steps), rows)
    own = {"decode": FACTORY.figures(rows, 900.0)} | {name: FACTORY.figures(rows, 900.0, infer=600.0) for name in names}
    about = FACTORY.record(folder / "in", folder / "out", files=rows, frames=rows, steps=steps, figures=own)
    store.write("run.json", json.dumps(about).encode())
    FACTORY.recorded(store, WORKERS, packets=PACKETS, seconds=1.5, cards=1)
    process, began, used = psutil.Process(), time.perf_counter(), time.process_time()
    write_report(store)
    took, used = time.perf_counter() - began, time.process_time() - used
    size = (folder / "out" / NAME).stat().st_size / 1e6
    print(f"{rows:,} rows, {len(names)} steps: {took:.1f} s ({used:.1f} s of processor time), {size:.2f} MB")
    print(f"resident memory at the end: {process.memory_info().rss / 1e9:.2f} GB")


def _version(use: str) -> int:
    module, _, name = use.partition(":")
    return int(getattr(importlib.import_module(module), name).version)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", default="lighting,flow,pose,faces,segment,tracks,identities")
    parser.add_argument("--keep", type=Path, help="folder to leave the output in")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as there:
        main(asked.rows, asked.steps.split(","), asked.keep or Path(there))
