"""The ledger lists exactly the parts that exist, and known units stay as they are."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.output_names import COLUMNS, FRAMES
from framekiln.media.files import MediaFile
from framekiln.output.ledger import Ledger, Part, tiling
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, read_units, tabulated_files
from framekiln.runtime.run.carried_results import carry_over
from framekiln.runtime.second_pass.second_pass import UnitRows, sweep
from tests.support.runs.units import ensure_units


def media(name: str, size: int = 10, mtime: int = 1) -> MediaFile:
    return MediaFile(media_id=name, path=f"/in/{name}", size=size, mtime_ns=mtime)


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_a_tiling_is_found_among_any_other_spans(lengths, others):
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    true = list(pairwise(edges))
    found = tiling([*[(min(o), max(o)) for o in others], *true], edges[-1])
    assert found is not None
    assert [start for start, _ in found] == [0, *[stop for _, stop in found][:-1]] if found else edges[-1] == 0
    assert (found[-1][1] if found else 0) == edges[-1]


@given(st.integers(1, 30), st.integers(0, 28))
def test_a_gap_is_never_tiled(total, hole):
    hole = min(hole, total - 1)
    spans = [(i, i + 1) for i in range(total) if i != hole]
    assert tiling(spans, total) is None


def test_a_step_is_done_when_its_parts_cover_all_rows(tmp_path):
    store = Store(str(tmp_path))
    for folder, spans in {"decode-1": [(0, 3), (3, 5), (5, 5)], "a-1": [(0, 5)], "b-1": [(0, 3)]}.items():
        for span in spans:
            store.write_table(f"{COLUMNS}/{folder}/{Part('abc0', *span).name}", pa.table({}))
    ledger = Ledger(store)
    assert ledger.total("decode-1", "abc0") == 5
    assert ledger.parts("a-1", "decode-1", "abc0") == [Part("abc0", 0, 5)]
    assert ledger.parts("b-1", "decode-1", "abc0") is None
    assert ledger.parts("a-1", "decode-1", "other") is None


def test_a_film_with_a_segment_out_of_reach_has_no_rows_unless_all_are_there(tmp_path):
    store = Store(str(tmp_path))
    for span in ((0, 0), (3, 5), (5, 5)):
        store.write_table(f"{COLUMNS}/decode-1/{Part('abc0', *span).name}", pa.table({}))
    assert Ledger(store).parts("a-1", "decode-1", "abc0") == []
    store.write_table(f"{COLUMNS}/decode-1/{Part('abc0', 0, 3).name}", pa.table({}))
    assert Ledger(store).total("decode-1", "abc0") == 5
    assert Ledger(store).parts("a-1", "decode-1", "abc0") is None


def test_a_unit_without_its_end_is_not_done(tmp_path):
    store = Store(str(tmp_path))
    store.write_table(f"{COLUMNS}/decode-1/{Part('abc0', 0, 3).name}", pa.table({}))
    assert Ledger(store).parts("decode-1", "decode-1", "abc0") is None


def test_an_added_file_keeps_all_units(tmp_path):
    store = Store(str(tmp_path))
    files = [media(f"{i:03}.jpg") for i in range(40)]
    before = ensure_units(store, files, files, slots=2)
    after = ensure_units(store, [media("000a.jpg"), *files], [media("000a.jpg"), *files], slots=2)
    added = [unit for unit in after if unit not in before]
    assert [unit for unit in after if unit in before] == before
    assert [m.media_id for unit in added for m in unit.media] == ["000a.jpg"]
    firsts = [unit.media[0].media_id for unit in after]
    assert firsts == sorted(firsts)


def test_a_changed_or_removed_file_leaves_the_others_of_its_unit(tmp_path):
    store = Store(str(tmp_path))
    files = [media(f"{i:03}.jpg") for i in range(40)]
    before = ensure_units(store, files, files, slots=1)
    changed = [media("000.jpg", size=11), *files[1:-1]]
    after = ensure_units(store, changed, changed, slots=1)
    assert [unit.stale for unit in after if unit.stale] == [{"000.jpg"}, {"039.jpg"}]
    assert {unit.name for unit in before} < {unit.name for unit in after}
    covered = sorted(m.media_id for unit in after for m in unit.media if m.media_id not in unit.stale)
    assert covered == [m.media_id for m in changed]
    carry_over(store, after, lambda _: None)
    later = ensure_units(store, changed, changed, slots=1)
    assert not any(unit.stale for unit in later)
    for units, current in ((before, files), (later, changed)):  # exports and reports read what the rows are of
        for name in store.names(FRAMES):
            store.remove(f"{FRAMES}/{name}")
        for unit in units:
            store.write(f"{FRAMES}/{unit.name}-0123456789ab.parquet", b"")
        assert tabulated_files(store) == {item.media_id: item for item in current}
    moved = [replace(item, path=f"/elsewhere/{item.media_id}") for item in changed]
    assert [unit.name for unit in ensure_units(store, moved, moved, slots=1)] == [unit.name for unit in later]
    assert tabulated_files(store) == {item.media_id: item for item in moved}


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 10))
def test_a_known_unit_is_in_one_shard_and_every_file_in_some(count, shards, added):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        files = [media(f"{i:03}.jpg") for i in range(count)]
        ensure_units(store, files, files, slots=1)
        listing = [*files, *(media(f"x{i:03}.jpg") for i in range(added))]
        found = []
        for index in range(shards):
            known, fresh = divide_into_units(store, listing, listing, 1, (index, shards))
            found += [*known, *fresh]
    covered = sorted(m.media_id for unit in found for m in unit.media)
    assert covered == [m.media_id for m in listing]


def test_a_shard_sweeps_its_own_files_only(tmp_path):
    class Owner:
        def live(self, units):
            return {"frames": {unit.unit + "-0123456789ab.parquet" for unit in units}, "errors": set(), "all": set()}

    store, mine, other = Store(str(tmp_path)), "a" * 16, "b" * 16
    for unit in (mine, other):
        for version in ("0123456789ab", "ffffffffffff"):
            store.write(f"frames/{unit}-{version}.parquet", b"")
        store.write(f"errors/some-step-{unit}-ffffffffffff.parquet", b"")
    store.write("all/all-ffffffffffff.parquet", b"")
    assert sweep(store, [Owner()], [UnitRows(unit=mine, parts={})], {mine}) == 2
    assert store.names("frames") == [
        f"{mine}-0123456789ab.parquet",
        f"{other}-0123456789ab.parquet",
        f"{other}-ffffffffffff.parquet",
    ]
    assert store.names("errors") == [f"some-step-{other}-ffffffffffff.parquet"] and store.names("all")
    assert sweep(store, [Owner()], [UnitRows(unit=mine, parts={})]) == 4
    assert store.names("frames") == [f"{mine}-0123456789ab.parquet"]


def test_units_keep_names_that_are_not_unicode(tmp_path):
    store = Store(str(tmp_path))
    odd = MediaFile(media_id="caf%E9.jpg", path="/in/caf\udce9.jpg", size=1, mtime_ns=1)
    units = ensure_units(store, [odd], [odd], slots=1)
    assert read_units(store) == units


def test_a_selection_uses_existing_units(tmp_path):
    store = Store(str(tmp_path))
    files = [media(f"{i:03}.jpg") for i in range(40)]
    first = ensure_units(store, files, files[:5], slots=1)
    everything = ensure_units(store, files, files, slots=1)
    assert set(first) <= set(everything)
    assert sorted(m.media_id for unit in everything for m in unit.media) == [m.media_id for m in files]
