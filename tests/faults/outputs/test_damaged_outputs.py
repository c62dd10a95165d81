"""Files of an output that are damaged, foreign, forbidden or no files: commands end well, and a run mends them.

Each test damages many files at once. `make fuzz` does so at random.
"""

from __future__ import annotations

import json
import os
import shutil
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.fuzz.fuzz_outputs import READERS, check_run, ended, quick, words_of
from tests.faults.outputs.output_damage import Damage
from tests.faults.outputs.sample_output import KEPT, make_sample, tables
from tests.support.machine.command_line import command
from tests.support.machine.permissions import permissions_count


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished output, and the folder with a copy of it."""
    folder = tmp_path_factory.mktemp("outputs")
    sample = make_sample(folder / "sample")
    for name in KEPT:
        shutil.copytree(sample.folder / name, folder / "whole" / name)
    return sample, folder / "whole"


@pytest.fixture
def sample(made):
    whole, copy = made
    whole.put_back(copy)
    return whole


def first(out: Path, pattern: str) -> Path:
    return min(out.glob(pattern))


def table_with(path: Path, change) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def untyped(table: pa.Table) -> pa.Table:
    """Every column of a type that no table has."""
    return pa.table({name: pa.array([True] * table.num_rows, pa.bool_()) for name in table.column_names})


def make_link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def damaged_bytes(out: Path) -> None:
    first(out, "columns/crc-*/*").write_bytes(b"")
    first(out, "columns/near-*/*").write_bytes(first(out, "columns/twice-*/*").read_bytes())
    first(out, "columns/portraits-*/*.errors.parquet").write_bytes(b"PAR1")
    first(out, "counts/*").write_bytes(b"{}")
    first(out, "errors/*").write_bytes(b"")
    first(out, "units/*").write_bytes(b"\0" * 64)
    first(out, "facts/*").write_bytes(b"[" * 100_000)  # nested deeper than any parser goes
    first(out, "profile/*").write_bytes(b"x")
    first(out, "row_sets/*").write_bytes(b"")
    first(out, "selections/*").write_bytes(b"PAR1")
    (out / "run.lease-0123456789ab.json").write_bytes(b"null")
    (out / "run.damaged.json").write_bytes(b'["../../x", "", 7]')
    (out / "run.json").write_bytes(b"\xff")


def other_types(out: Path) -> None:
    for place in ("crc", "decode", "portraits"):
        table_with(first(out, f"columns/{place}-*/*0001.parquet"), untyped)
    for place in ("frames", "errors", "units", "counts", "identities", "identity_summary", "visits"):
        table_with(first(out, f"{place}/*"), untyped)
    table_with(first(out, "profile/*"), lambda table: table.drop_columns("started"))
    mark = first(out, "columns/twice-*/*")
    pq.write_table(pa.table({"x": [1]}), mark.with_name(mark.name.replace(".parquet", ".again.parquet")))


def foreign_tables(out: Path) -> None:
    for place in ("identity_summary", "identities"):
        shutil.copy(first(out, "counts/*"), first(out, f"{place}/*"))
    table_with(first(out, "visits/*"), lambda table: table.drop_columns("media_id"))
    record = json.loads((out / "run.json").read_text())
    figures = next(iter(record["figures"].values()))
    figures |= {name: "" for name, value in figures.items() if isinstance(value, float)}
    (out / "run.json").write_text(json.dumps(record))


def other_kinds(out: Path) -> None:
    for place in ("columns/crc-*/*", "profile/*", "run.json"):
        path = first(out, place)
        path.unlink()
        os.mkfifo(path)
    make_link(first(out, "columns/twice-*/*"), "/dev/zero")
    make_link(first(out, "counts/*"), first(out, "counts/*").name)
    make_link(first(out, "visits/*"), "nowhere")
    for place in ("frames/*", "columns/near-*/*", "facts/*", "units/*", "identity_summary/*"):
        first(out, place).chmod(0)
    path = first(out, "columns/seeded-*/*")
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [damaged_bytes, other_types, other_kinds, foreign_tables], ids=lambda each: each.__name__
)
def test_commands_end_well_and_a_run_mends_it(made, sample, damage):
    damage(sample.out)
    with quick(), permissions_count():
        codes = {name: ended(name, words_of(name, sample, made[1])) for name in READERS if name != "retry"}
        assert codes["check"] == ""
        check_run(sample, made[1], Damage(), "out")


@pytest.mark.heavy
def test_commands_end_well_with_any_table_in_place_of_another(made, sample):
    """The report stops at the first one; `check` and `compare` go on, so that they meet many in one call."""
    names = [path.name for path in sample.out.iterdir() if any(path.glob("*.parquet"))]
    places = {name: first(sample.out, f"{name}/*") for name in names}
    kept = {name: place.read_bytes() for name, place in places.items()}

    def end_well(others: dict[str, str], *readers: str) -> None:
        for name in names:
            places[name].write_bytes(kept[others.get(name, name)])
        for reader in readers:
            ended(reader, words_of(reader, sample, made[1]))

    for name, other in permutations(names, 2):
        stops_at = {"units": ("report", "compare"), "profile": ("report", "profile")}
        end_well({name: other}, *stops_at.get(name, ("report",)))
    for shift in range(1, len(names)):
        others = dict(zip(names, names[shift:] + names[:shift], strict=True))
        end_well(others, "check")
        end_well(others | {"units": "units"}, "compare")


def no_text(path: Path) -> Path:
    """The same path with a byte in its name that is not UTF-8."""
    return path.with_name(os.fsdecode(b"\xff" + path.name.encode()))


@pytest.mark.parametrize("way", [shutil.move, shutil.copyfile], ids=["renamed", "copied"])
def test_a_name_that_is_no_text(made, sample, way):
    parts = ("columns/crc-*/*", "columns/portraits-*/*.errors.parquet")
    for place in (*parts, "units/*", "facts/*", "profile/*", "images/*/*/*"):
        path = first(sample.out, place)
        way(path, no_text(path))
        no_text(path.parent / "folder").mkdir()
    tables = [no_text(first(sample.out, place)) for place in ("frames/*", "counts/*")]
    for path in tables:
        way(path.with_name(path.name[1:]), path)
    with quick():
        for name in READERS:
            ended(name, words_of(name, sample, made[1]))
        check_run(sample, made[1], Damage(obstacles=tables), "out")


@pytest.mark.parametrize("name", ["frames", "counts", "profile", "facts", "columns/near-*"])
def test_a_file_in_place_of_a_folder_is_named(made, sample, name):
    folder = first(sample.out, name)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with quick():
        check_run(sample, made[1], Damage(obstacles=[folder]), "out")


def test_a_lost_line_of_errors_is_found_and_made_again(made, sample):
    first(sample.out, "errors/*").unlink()
    assert command("check", sample.out).returncode == 1
    with quick():
        check_run(sample, made[1], Damage(), "out")


def test_damaged_weights_are_named_and_nothing_is_computed(made, sample):
    (sample.weights / "toy.bin").write_bytes(b"x")
    shutil.rmtree(sample.out / "frames")
    with quick():
        assert ended("run", sample.run()) == "FK-WEIGHTS-MISSING"
    assert not (sample.out / "frames").exists()


def test_the_sample_has_every_table(sample):
    assert all(tables(sample.out).values())
