"""Time and size of a report on an output of many rows, made without a run.

    python -m benchmarks.report [--rows 100000] [--steps lighting,flow,...] [--keep FOLDER]

Each row is a photo, a hard link to one of three, so that thumbnails are really decoded. Results of steps are random:
50 different rows of each, masks and faces among them. Records are those of an hour on six processes and one GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from framekiln.contract.columns import SOURCE
from framekiln.contract.stage import Stage
from framekiln.media.discovery.listing import list_media
from framekiln.media.samples import photos
from framekiln.output.object_store import Store
from framekiln.planning.manifest import read_pipeline
from framekiln.planning.step import is_file_column
from framekiln.reporting.html import NAME, write_report
from framekiln.reporting.plan_facts import rebuild
from framekiln.runtime.run.record import sealed
from framekiln_stages.shared.masks import encode
from tests.support.runs.units import ensure_units

FACTORY: Any = importlib.import_module("tests.support.runs.report_factory")  # untyped
DIFFERENT, IN_FILE = 50, 500  # random rows of each step; rows in a file of the table
PACKETS = 1000  # of each process
WORKERS = {f"box:{i}": ["decode", "lighting", "flow"] if i < 2 else [f"step{i}"] for i in range(6)}


def random_value(rng: np.random.Generator, item: pa.Field) -> Any:
    """Return a value of a column: numbers 0 to 1, lists of up to three, discs as masks."""
    kind = item.type
    if item.name == "segmentation":
        y, x = np.ogrid[:300, :400]
        disc = (x - rng.integers(400)) ** 2 + (y - rng.integers(300)) ** 2 < rng.integers(20, 150) ** 2
        return encode([disc])[0]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: random_value(rng, kind.field(i)) for i in range(kind.num_fields)}
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else rng.integers(4)
        return [random_value(rng, kind.value_field) for _ in range(size)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b"\xff\xd8\xff" + bytes(2000)
    number = rng.random() * (100 if pa.types.is_integer(kind) else 1)
    return f"word{number:.1f}" if pa.types.is_string(kind) else pa.scalar(number).cast(kind, safe=False).as_py()


def collection(folder: Path, rows: int) -> None:
    """Write a collection of photos."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [folder / f"source-{name}" for name in photos()]
    for source, real in zip(sources, photos().values(), strict=True):
        shutil.copyfile(real, source)
    for i in range(rows):
        place = folder / "in" / f"{i // 1000:03}" / f"{i:06}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(sources[i % 3], place)


def tables(store: Store, folder: Path, stages: dict[str, Stage], rows: int) -> None:
    """Write the units, the frames table in files of `IN_FILE` rows, and the other tables with as many rows."""
    listing = list_media(str(folder / "in"))
    ensure_units(store, listing, listing, slots=4)
    rng = np.random.default_rng(0)
    values = random_rows(rng, [item for stage in stages.values() for item in stage.outputs])
    for start in range(0, rows, IN_FILE):
        media = [item.media_id for item in listing[start : start + IN_FILE]]
        own = {"media_id": media, "frame_index": [0] * len(media), "media_type": ["photo"] * len(media)}
        own |= {"clip_index": [0] * len(media), "height": [427] * len(media), "width": [640] * len(media)}
        nulls = {
            item.name: pa.nulls(len(media), item.type) for item in SOURCE if item.nullable and item.name not in own
        }
        source = pa.table(own | nulls).select(SOURCE.names).cast(SOURCE)
        results = values.take(pa.array(rng.integers(DIFFERENT, size=len(media))))
        frames = pa.table([*source.columns, *results.columns], schema=pa.schema([*SOURCE, *values.schema]))
        store.write_table(f"frames/{start:07}.parquet", frames)
    for name, table in ((name, table) for stage in stages.values() for name, table in stage.tables.items()):
        filled = random_rows(rng, table.schema).take(pa.array(rng.integers(DIFFERENT, size=rows)))
        for key, column in (("media_id", [item.media_id for item in listing]), ("frame_index", [0] * rows)):
            if (place := filled.schema.get_field_index(key)) >= 0:
                filled = filled.set_column(
                    place, filled.schema.field(key), pa.array(column, filled.schema.field(key).type)
                )
        store.write_table(f"{name}/all.parquet", filled)


def random_rows(rng: np.random.Generator, columns: Iterable[pa.Field]) -> pa.Table:
    """Return random rows; columns of whole files hold paths."""
    items = [pa.field(i.name, pa.string() if is_file_column(i) else i.type, metadata=i.metadata) for i in columns]
    rows = [{item.name: random_value(rng, item) for item in items} for _ in range(DIFFERENT)]
    return pa.Table.from_pylist(rows, schema=pa.schema(items))


def main(rows: int, names: list[str], folder: Path) -> None:
    """Make the output, write the report, and print its time and size."""
    known = read_pipeline(None).steps
    steps = {name: FACTORY.step(known[name].use) | {"version": _version(known[name].use)} for name in names}
    collection(folder, rows)
    store = Store(str(folder / "out"))
    tables(store, folder, rebuild(steps), rows)
    own = {"decode": FACTORY.figures(rows, 900.0)} | {name: FACTORY.figures(rows, 900.0, infer=600.0) for name in names}
    record = FACTORY.record(folder / "in", folder / "out", files=rows, frames=rows, steps=steps, figures=own)
    store.write("run.json", json.dumps(sealed(record)).encode())
    FACTORY.recorded(store, WORKERS, packets=PACKETS, seconds=1.5, gpus=1)
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(options.rows, options.steps.split(","), options.keep or Path(temporary))
