"""`framekiln check`: each kind of finding, and what the next run reads of it."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from framekiln.contract.row_errors import Failure, to_table, traced
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.ledger import Part
from framekiln.output.object_store import Store
from framekiln.output.unit_table import UNITS_TABLE, write_units
from framekiln.runtime.check.check import check_output, listed_damage
from framekiln.runtime.second_pass.second_pass import UnitRows, name_rows

STEP = "cut-0123456789ab"
UNIT = "0123456789abcdef"
NAMED = ("a.png", "b.png", "c.png")  # in the table of units
NAMES = {"decode": "ab", "cut": "0123456789ab"}


def rows(*keys):
    return pa.table({"media_id": [name for name, _ in keys], "frame_index": [index for _, index in keys]})


@pytest.fixture
def store(tmp_path):
    """One unit of two frames, and a step that wrote an image of each."""
    made = Store(str(tmp_path))
    both = rows(("a.png", 0), ("b.png", 0))
    images = [f"images/crop-0123456789ab/{name}/0.png" for name in ("a", "b")]
    for path in images:
        made.write(path, b"image")
    for part in (Part(UNIT, 0, 2), Part(UNIT, 2, 2)):
        made.write_table(f"columns/decode-ab/{part.name}", both)
    made.write_table(f"columns/{STEP}/{Part(UNIT, 0, 2).name}", pa.table({"crop": images}))
    made.write_table(f"frames/{UNIT}-{'1' * 12}.parquet", both)
    return made


def found(store):
    return {finding.path for finding in check_output(store, NAMES, {})}


def test_a_whole_output_has_no_findings(store):
    assert found(store) == set() and listed_damage(store) == []


@pytest.mark.parametrize("data", [None, b""], ids=["missing", "empty"])
def test_a_lost_image_names_its_part(store, data):
    path = "images/crop-0123456789ab/b/0.png"
    store.remove(path) if data is None else store.write(path, data)
    part = f"columns/{STEP}/{Part(UNIT, 0, 2).name}"
    assert found(store) == {part} and listed_damage(store) == [part]


@pytest.mark.parametrize("folder", ["images", "images/crop-0123456789ab", "images/crop-0123456789ab/a"])
def test_images_are_lost_with_their_folder(store, tmp_path, folder):
    shutil.rmtree(tmp_path / folder)
    assert found(store) == {f"columns/{STEP}/{Part(UNIT, 0, 2).name}"}


def test_a_text_is_no_lost_image(store):
    path = f"columns/{STEP}/{Part(UNIT, 0, 2).name}"
    store.write_table(path, pa.table({"crop": [None, None], "what": ["a/b.png", "image"]}))
    assert found(store) == set()


@pytest.mark.parametrize(
    ("path", "whole", "damaged"),
    [
        ("facts/cut-0123456789ab.json", b'{"use": "a:B"}', b'{"use": "a'),
        ("facts/cut-0123456789ab.json", b"{}", b"[" * 100_000),
        ("facts/cut-0123456789ab.json", b"{}", b""),
        ("report.html", b"<html></html>\n", b"<html></ht"),
        ("report.html", b"<html></html>", b""),
        ("profile/calls-0123456789ab.parquet", None, b"PAR1 and no table"),
    ],
)
def test_what_explains_a_run_is_read(store, path, whole, damaged):
    store.write_table(path, rows(("a.png", 0))) if whole is None else store.write(path, whole)
    assert found(store) == set()
    store.write(path, damaged)
    assert found(store) == {path} == set(listed_damage(store))


def test_rows_in_two_files_are_double(store):
    late = f"frames/{UNIT}-{'2' * 12}.parquet"
    store.write_table(late, rows(("b.png", 0), ("c.png", 0)))
    assert found(store) == {late, f"frames/{UNIT}-{'1' * 12}.parquet"} == set(listed_damage(store))


def test_lost_parts_of_an_assembled_unit(store):
    store.remove(f"columns/{STEP}/{Part(UNIT, 0, 2).name}")
    assert found(store) == {f"columns/{STEP}"} and listed_damage(store) == []


def test_a_flipped_bit_is_found_and_no_longer_listed_once_it_is_mended(store):
    path = f"frames/{UNIT}-{'1' * 12}.parquet"
    data = bytearray(before := store.read(path))
    data[30] ^= 1  # in the first page
    store.write(path, bytes(data))
    assert found(store) == {path} and listed_damage(store) == [path]
    store.write(path, before)
    assert found(store) == set() and listed_damage(store) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[1", b'[1, "x"]'])
def test_a_damaged_list_is_no_list(store, data):
    store.write("run.damaged.json", data)
    assert [path for path in listed_damage(store) if path != "x"] == []


@pytest.mark.parametrize("mentioned", [False, True], ids=["lost", "with an error"])
def test_a_file_without_rows_and_errors_names_the_decoders_parts(store, mentioned):
    files = [{"unit": UNIT, "media_id": name, "path": name.encode(), "size": 1, "mtime_ns": 1} for name in NAMED]
    store.write_table("units/u.parquet", pa.Table.from_pylist(files, UNITS_TABLE))
    if mentioned:
        failure = Failure(media_id="c.png", kind="truncated", message="JPEG: Truncated File Read")
        store.write_table(f"errors/{UNIT}-{'1' * 12}.parquet", traced(to_table([failure]), {}, {}))
    parts = [f"columns/decode-ab/{part.name}" for part in (Part(UNIT, 0, 2), Part(UNIT, 2, 2))]
    assert found(store) == (set() if mentioned else {*parts, f"frames/{UNIT}-{'1' * 12}.parquet"})


@pytest.mark.parametrize("rest", [(), (("b.png", 0),)], ids=["lost", "as its name says"])
def test_a_limit_wants_the_files_that_a_tables_name_tells(store, rest):
    files = tuple(MediaFile(media_id=name, path=f"/{name}", size=1, mtime_ns=1) for name in NAMED)
    write_units(store, [Unit(name=UNIT, media=files)])
    rows_of = UnitRows(unit=UNIT, parts={}, media=frozenset({"a.png", "b.png"}), files=files)
    path = f"frames/{name_rows(rows_of, ['decode-ab', STEP])}"
    store.write_table(path, rows(("a.png", 0), *rest))
    store.remove(f"frames/{UNIT}-{'1' * 12}.parquet")
    failures = to_table([Failure(media_id="c.png", kind="empty", message="it has no bytes")])
    store.write_table(f"columns/decode-ab/{Part(UNIT, 0, 2).name.removesuffix('.parquet')}.errors.parquet", failures)
    assert (path in found(store)) == (not rest)


@pytest.mark.parametrize("again", [False, True])
def test_failures_of_a_file_that_a_later_unit_read_again_are_not_lost(store, again):
    later = "fedcba9876543210"
    files = [
        {"unit": unit, "attempt": attempt, "media_id": name, "path": name.encode(), "size": 1, "mtime_ns": 1}
        for unit, attempt, names in ((UNIT, 0, NAMED), (later, 1, ("c.png",)))[: 1 + again]
        for name in names
    ]
    store.write_table("units/u.parquet", pa.Table.from_pylist(files, UNITS_TABLE))
    failures = to_table([Failure(media_id="c.png", kind="empty", message="it has no bytes")])
    store.write_table(f"columns/decode-ab/{Part(UNIT, 0, 2).name.removesuffix('.parquet')}.errors.parquet", failures)
    if again:
        store.write_table(f"frames/{later}-{'1' * 12}.parquet", rows(("a.png", 0)).slice(0, 0))
        store.write_table(f"errors/{later}-{'1' * 12}.parquet", traced(failures, {}, {}))
    assert (f"frames/{UNIT}-{'1' * 12}.parquet" in found(store)) != again
