"""Identities: one number per person, none for strangers, in any order and with poor faces among them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.support.stages.faces.identities_factory import MEASURED, identities, numbers, people, rows, unit

FACES = ["media_id", "frame_index", "face_index"]


def test_the_largest_identity_is_the_first_and_strangers_have_none():
    tables = identities()(rows(people([4, 9, 1, 3, 4, 1])))
    assert numbers(tables) == [1] * 4 + [0] * 9 + [-1] + [3] * 3 + [2] * 4 + [-1]
    summary = tables["identity_summary"].to_pylist()
    assert [(row["identity"], row["size"], row["files"]) for row in summary] == [
        (0, 9, 9),
        (1, 4, 4),
        (2, 4, 4),
        (3, 3, 3),
    ]
    assert tables["identities"]["membership"].to_pylist()[13] == 0.0


def test_a_stranger_is_not_attached_to_a_person():
    """By density alone the last face would belong to the person before."""
    batch = rows(people([4, 9, 1, 3, 4, 1]))
    assert numbers(identities(strangers=None, assign=None)(batch))[-2:] == [1, 1]
    assert numbers(identities()(batch))[-2:] == [2, -1]


def test_the_order_and_the_chunks_of_rows_change_nothing():
    batch = rows(people([5, 4, 6, 1, 1]), per_frame=2)
    expected = identities()(batch)
    random = np.random.default_rng(0)
    shuffled = batch.take(pa.array(random.permutation(batch.num_rows)))
    cut = pa.concat_tables([shuffled.slice(i, 2) for i in range(0, shuffled.num_rows, 2)])
    for other in (shuffled, cut):
        tables = identities()(other)
        assert all(tables[name].equals(expected[name]) for name in tables)
    assert expected["identities"].select(FACES).to_pylist()[:3] == [
        {"media_id": "00000.jpg", "frame_index": 0, "face_index": 0},
        {"media_id": "00000.jpg", "frame_index": 0, "face_index": 1},
        {"media_id": "00001.jpg", "frame_index": 0, "face_index": 0},
    ]


def test_noise_is_assigned_by_its_cosine_to_the_centroid():
    random = np.random.default_rng(1)
    vectors = unit(people([12, 12]))
    middle = unit(vectors[:12].sum(axis=0, keepdims=True))
    off = random.normal(size=(1, 64))
    off = unit(off - (off @ middle.T) * middle)
    odd = 0.42 * middle + np.sqrt(1 - 0.42**2) * off  # similar to its own person only, far from the cluster
    batch = rows(np.concatenate([vectors, odd]))
    without = identities(strangers=0.5, assign=None)(batch)
    assert numbers(without)[-1] == -1
    assert without["identities"]["reason"].to_pylist() == [None] * 24 + ["alone"]
    centroids = {row["identity"]: np.array(row["centroid"]) for row in without["identity_summary"].to_pylist()}
    cosine, other = (float(centroids[numbers(without)[i]] @ odd[0]) for i in (0, 12))
    for threshold, given in ((cosine - 0.01, True), (cosine + 0.01, False)):
        tables = identities(strangers=0.5, assign=threshold)(batch)
        row = tables["identities"].to_pylist()[-1]
        assert (row["identity"] == numbers(tables)[0], row["assigned"]) == (given, given)
        expected = [None, cosine, cosine - other] if given else ["alone", None, None]
        assert [row[name] for name in ("reason", "similarity", "margin")] == pytest.approx(expected, abs=1e-5)
        sizes = [(r["size"], r["assigned"]) for r in tables["identity_summary"].to_pylist()]
        assert sorted(sizes) == [(12, 0), (12 + given, int(given))]


def test_a_face_between_two_people_has_no_identity():
    vectors = unit(people([12, 12]))
    middles = [unit(part.sum(axis=0, keepdims=True)) for part in np.split(vectors, 2)]
    for share, named in ((0.5, False), (0.52, False), (0.7, True)):
        between = unit(share * middles[0] + (1 - share) * middles[1])
        odd = rows(between, names=["z.jpg"], quality=0.01, **MEASURED)
        tables = identities()(pa.concat_tables([rows(vectors, **MEASURED), odd]))
        row = tables["identities"].to_pylist()[-1]
        number, reason = (numbers(tables)[0], None) if named else (None, "between")
        assert (row["identity"], row["reason"]) == (number, reason), share


def test_one_person_alone_is_an_identity_and_strangers_are_not():
    assert numbers(identities()(rows(people([12])))) == [0] * 12
    assert numbers(identities()(rows(people([1] * 12)))) == [-1] * 12
    assert numbers(identities()(rows(people([12, 1, 1])))) == [0] * 12 + [-1, -1]


# Filtered faces


@pytest.mark.parametrize(
    ("column", "setting"), [("quality", "min_quality"), ("score", "min_score"), ("side", "min_side")]
)
def test_filtered_faces_form_no_cluster_but_get_a_second_chance(column, setting):
    vectors = people([5, 5])
    values = np.full(10, 0.8, np.float32)
    values[[0, 7]] = 0.4
    least = 60 if column == "side" else 0.5  # 0.8 of 100 px is 80, 0.4 is 40
    batch = rows(vectors, **{column: 0.8}, **MEASURED)
    low = rows(vectors, **{column: 0.4}, **MEASURED)
    mixed = pa.concat_tables([(low if v < 0.5 else batch).slice(i, 1) for i, v in enumerate(values)])
    tables = identities(**{setting: least})(mixed)
    assert [i for i, shown in enumerate(tables["identities"]["clustered"].to_pylist()) if not shown] == [0, 7]
    assert numbers(tables) == [0] * 5 + [1] * 5
    assert [i for i, late in enumerate(tables["identities"]["assigned"].to_pylist()) if late] == [0, 7]
    assert [tables["identities"][name][0].as_py() for name in ("membership", "outlier_score")] == [None] * 2
    without = identities(**{setting: least}, assign=None)(mixed)["identities"].to_pylist()
    assert [row["identity"] for row in without] == [None, 0, 0, 0, 0, 1, 1, None, 1, 1]
    assert [without[0][name] for name in ("reason", "similarity", "margin")] == ["poor", None, None]


def test_a_filtered_face_like_nobody_stays_without_identity():
    mixed = pa.concat_tables([rows(people([5])), rows(people([1], seed=1), names=["z.jpg"], quality=0.01)])
    tables = identities()(mixed)
    assert numbers(tables) == [0] * 5 + [-1] and tables["identities"]["reason"].to_pylist() == [None] * 5 + ["poor"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_faces_have_no_identity(count):
    tables = identities()(rows(people([5])[:count]))
    assert (numbers(tables), tables["identity_summary"].num_rows) == ([-1] * count, 0)


def test_rows_without_faces_count_as_none():
    batch = rows(people([4]))
    missing = pa.array([None], batch["faces"].type)
    hole = batch.slice(0, 1).set_column(4, "faces", missing).set_column(0, "media_id", pa.array(["a"]))
    assert numbers(identities()(pa.concat_tables([hole, batch]))) == [0] * 4


def test_zero_and_infinite_embeddings_are_filtered():
    vectors = unit(people([5, 5]))
    batch = rows(vectors)
    values = vectors.astype(np.float32)
    values[2], values[6, 3] = 0, np.nan
    faces = batch["faces"].combine_chunks()
    flat = faces.flatten()
    parts = [flat.field(item.name) for item in flat.type]
    parts[-1] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 64)
    spoiled = pa.StructArray.from_arrays(parts, fields=list(flat.type))
    batch = batch.set_column(4, "faces", pa.ListArray.from_arrays(faces.offsets, spoiled))
    tables = identities()(batch)
    assert numbers(tables) == [0, 0, -1, 0, 0, 1, -1, 1, 1, 1]
    assert [tables["identities"]["reason"][i].as_py() for i in (0, 2, 6)] == [None, "void", "void"]


@pytest.mark.parametrize(("network", "measured"), [("mobilefacenet", True), ("auraface", False), ("", False)])
def test_a_network_that_thresholds_were_not_measured_with_is_marked(network, measured):
    tables = identities()(rows(people([4, 3]), network=network))
    assert tables["identity_summary"]["measured"].to_pylist() == [measured, measured]
