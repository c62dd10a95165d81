"""Splits: nothing that belongs together is in two of them, whatever belongs together."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.errors import ConfigError
from framekiln.export.request import ExportRequest
from framekiln.export.splits import Links, _join, count_leaks, make_splits, place_groups
from framekiln.output.object_store import Store
from tests.support.errors import fails

SHARES = np.array([0.8, 0.1, 0.1])


def write(folder, **tables):
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "part-0.parquet")
    return Store(str(folder))


def split(store, pairs, by, text="80/10/10"):
    """What is said of the splits, and the split of each row."""
    chosen = {}
    for name, index in pairs:
        chosen.setdefault(name, set()).add(index)
    request = ExportRequest(to="coco", split=text, by=by)
    splits = make_splits(store, request, {name: frozenset(indices) for name, indices in chosen.items()})
    return splits.lines, {pair: splits.of(*pair) for pair in pairs}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """40 films of 20 frames at 1 a second in two shots, and 400 photos: people, copies and shared parts among them."""
    films = [(f"film{n}.mp4", i) for n in range(40) for i in range(20)]
    photos = [(f"photo{n}.jpg", 0) for n in range(400)]
    frames = [
        {"media_id": name, "frame_index": i, "time_s": float(i) if "film" in name else None}
        for name, i in films + photos
    ]
    shots = [
        {"media_id": f"film{n}.mp4", "shot": s, "first_frame": 10 * s, "last_frame": 10 * s + 9}
        for n in range(40)
        for s in range(2)
    ]
    people = [
        {"media_id": name, "frame_index": i, "face_index": 0, "identity": n % 60 if n % 7 else None}
        for n, (name, i) in enumerate(photos[:200])
    ]
    people += [{"media_id": "film0.mp4", "frame_index": 3, "face_index": f, "identity": 100 + f} for f in range(2)]
    people += [{"media_id": "photo399.jpg", "frame_index": 0, "face_index": 0, "identity": 101}]
    copies = [
        {"media_id": f"photo{n}.jpg", "frame_index": 0, "group": n // 3, "keep": n % 3 == 0} for n in range(300, 360)
    ]
    shared = [
        {
            "media_id": "film7.mp4",
            "start_s": 12.0,
            "end_s": 18.0,
            "other_media_id": "film8.mp4",
            "other_start_s": 2.0,
            "other_end_s": 8.0,
        }
    ]
    scenes = [{"media_id": f"photo{n}.jpg", "frame_index": 0, "scene": "photo350.jpg"} for n in range(350, 380)]
    tables = {"duplicates": copies, "scenes": scenes, "film_copies": shared}
    folder = tmp_path_factory.mktemp("splits") / "out"
    store = write(folder, frames=frames, shots=shots, identities=people, **tables)
    return store, films + photos


@pytest.mark.parametrize("by", ["file", "person", "duplicate"])
def test_files_copies_and_shared_parts_stay_together(tables, by):
    lines, at = split(*tables, by)
    assert "0 groups in two splits" in lines[1] and len(lines) == 2
    assert all(len({at[f"film{n}.mp4", i] for i in range(20)}) == 1 for n in range(40))
    assert all(len({at[f"photo{n + k}.jpg", 0] for k in range(3)}) == 1 for n in range(300, 360, 3))
    assert len({at[f"photo{n}.jpg", 0] for n in range(350, 380)}) == 1  # a scene, of which some are copies too
    assert at["film7.mp4", 0] == at["film8.mp4", 0]
    sizes = np.array([list(at.values()).count(name) for name in ("train", "val", "test")])
    assert np.abs(sizes / 1200 - SHARES).max() < 0.01


def test_by_person_nobody_is_in_two_splits_also_through_a_film(tables):
    _, at = split(*tables, "person")
    for one, other in combinations((n for n in range(200) if n % 7), 2):
        if one % 60 == other % 60:
            assert at[f"photo{one}.jpg", 0] == at[f"photo{other}.jpg", 0]
    assert at["photo399.jpg", 0] == at["film0.mp4", 19]  # the person is in frame 3 of it


def test_by_shot_films_may_be_divided_but_no_shot_and_no_shared_part(tables):
    _, at = split(*tables, "shot")
    assert all(len({at[f"film{n}.mp4", 10 * s + i] for i in range(10)}) == 1 for n in range(40) for s in range(2))
    assert any(at[f"film{n}.mp4", 0] != at[f"film{n}.mp4", 19] for n in range(40))
    assert at["film7.mp4", 15] == at["film8.mp4", 5]


def test_a_table_that_is_asked_for_and_missing_is_one_sentence(tmp_path):
    photos = [(f"{n}.jpg", 0) for n in range(20)]
    store = write(tmp_path / "out", frames=[{"media_id": name, "frame_index": i} for name, i in photos])
    for by in ("person", "shot", "duplicate"):
        with fails("FK-SELECTION-TABLE", by):
            split(store, photos, by)
    assert "Copies were not looked for" in split(store, photos, "file")[0][-1]


def test_a_group_that_is_most_of_all_is_said(tmp_path):
    rows = [("long.mp4", i) for i in range(62)] + [(f"{n}.jpg", 0) for n in range(38)]
    store = write(tmp_path / "out", frames=[{"media_id": name, "frame_index": i} for name, i in rows])
    lines, at = split(store, rows, "file", "50/50")
    assert sorted(list(at.values()).count(name) for name in ("train", "val")) == [38, 62]
    assert any("62%" in line for line in lines)


def test_the_same_rows_get_the_same_splits_in_any_order(tables):
    store, pairs = tables
    shuffled = [pairs[k] for k in np.random.default_rng(3).permutation(len(pairs))]
    assert split(store, shuffled, "person") == split(store, pairs, "person")


def test_new_files_move_few_others(tables):
    """Four photos more than 396; each moves hardly more than itself."""

    store, pairs = tables
    photos = [pair for pair in pairs if pair[0].startswith("photo")]
    _, before = split(store, photos[:200] + photos[204:], "file")
    _, after = split(store, photos, "file")
    assert sum(after[key] != split for key, split in before.items()) <= 12


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60), st.randoms(use_true_random=False), st.sampled_from((2, 3))
)
@settings(max_examples=200)
def test_no_split_exceeds_its_share_by_a_group(sizes, random, number):
    shares = SHARES if number == 3 else np.array([0.7, 0.3])
    points = np.array([random.random() for _ in sizes])
    counts = np.bincount(place_groups(np.array(sizes), points, shares), weights=sizes, minlength=number)
    assert counts.sum() == sum(sizes)
    assert np.all(counts - shares * sum(sizes) < max(sizes) + 1e-6)


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_groups_of_one_row_miss_no_share_by_a_row(count, random):
    points = np.array([random.random() for _ in range(count)])
    sizes = np.bincount(place_groups(np.ones(count, np.int64), points, SHARES), minlength=3)
    assert np.all(np.abs(sizes - SHARES * count) < 1 + 1e-6)


@given(st.integers(1, 30), st.lists(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 8))), max_size=3))
def test_groups_are_what_names_join_and_nothing_else(count, lists):
    """Beside a search from row to row."""
    lists = [[(place, name) for place, name in pairs if place < count] for pairs in lists]
    links = [
        Links(
            kind="x",
            places=np.array([p for p, _ in pairs], np.int64),
            names=pa.array([n for _, n in pairs], pa.int64()),
        )
        for pairs in [[(place, place) for place in range(count)], *lists]
    ]
    groups = _join(links, count)
    joined = {(a, b) for pairs in lists for a, n in pairs for b, m in pairs if n == m}
    for start in range(count):
        seen, edge = {start}, [start]
        while edge:
            here = edge.pop()
            fresh = {b for a, b in joined if a == here} - seen
            seen |= fresh
            edge += fresh
        assert seen == set(np.flatnonzero(groups == groups[start]).tolist())
    assert sum(count_leaks(link, groups) for link in links) == 0


def test_a_leak_is_counted():
    link = Links(kind="file", places=np.array([0, 1, 2, 3]), names=pa.array(["a", "a", "b", "c"]))
    assert count_leaks(link, np.array([0, 1, 1, 1])) == 1


def test_splits_are_of_the_frames_that_are_exported(out, tmp_path):
    """Nobody looked for poses on the film's last frame."""
    summary = out.export("coco", tmp_path / "all", images="none", include="poses", split="60/40")
    told = {name: int(size) for name, size in re.findall(r"(\w+) (\d+) frames", summary.notes[0])}
    assert told == summary.images and sum(told.values()) == 5
    with pytest.raises(ConfigError) as error:
        out.export("coco", tmp_path / "none", images="none", include="poses", where="frame_index = 3")
    assert error.value.code == "FK-EXPORT-EMPTY"
