"""Names that a person gave: one is one person, two are two, and the rest goes on as without names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.support.stages.faces.identities_factory import identities, numbers, people, rows


def named(tmp_path, names, **settings):
    """The stage with a file that names faces by their photo: `{12: "Ada"}` is the face of 00012.jpg."""
    keys = {"media_id": [f"{i:05}.jpg" for i in names], "frame_index": [0] * len(names), "face_index": [0] * len(names)}
    pq.write_table(pa.table(keys | {"name": pa.array(list(names.values()), pa.string())}), tmp_path / "names.parquet")
    return identities(named=str(tmp_path / "names.parquet"), **settings)


def names_of(tables):
    return tables["identities"]["name"].to_pylist()


def test_a_name_joins_two_groups_and_takes_what_is_most_like_it_later(tmp_path):
    a, b, c = np.split(people([6, 4, 5]), [6, 10])
    faces = np.concatenate([a, b, c])
    assert numbers(identities()(rows(faces))) == [0] * 6 + [2] * 4 + [1] * 5
    stage = named(tmp_path, dict.fromkeys([0, 1, 2, 3, 6, 7, 8], "Ada"))  # more than half of each group
    tables = stage(rows(faces))
    assert numbers(tables) == [0] * 10 + [1] * 5 and names_of(tables) == ["Ada"] * 10 + [None] * 5
    assert [row["name"] for row in tables["identity_summary"].to_pylist()] == ["Ada", None]
    again = stage(rows(faces), {"identity_summary": tables["identity_summary"]})
    assert again["identities"].equals(tables["identities"])


def test_two_names_divide_a_group_and_its_other_faces_go_to_the_nearer_one(tmp_path):
    (centre,) = people([1], spread=0)
    random = np.random.default_rng(1)
    sides = [centre + offset * random.normal(size=64) / 4 for offset in (1, 1)]
    faces = np.concatenate([side + 0.2 * random.normal(size=(5, 64)) for side in sides])
    assert numbers(identities()(rows(faces))) == [0] * 10
    tables = named(tmp_path, {i: "Ada" if i < 5 else "Bob" for i in (0, 1, 2, 5, 6, 7)})(rows(faces))
    assert names_of(tables) == ["Ada"] * 5 + ["Bob"] * 5 and sorted(set(numbers(tables))) == [0, 1]


def test_one_named_face_of_a_group_leaves_it_and_one_without_a_name_is_nobody(tmp_path):
    faces = people([8])
    tables = named(tmp_path, {0: "Ada", 7: None})(rows(faces))
    assert names_of(tables) == ["Ada"] + [None] * 7
    (ada, *others, nobody) = numbers(tables)
    assert sorted({ada, *others}) == [0, 1] and len(set(others)) == 1 and nobody == -1


def test_both_faces_of_a_frame_are_one_person_if_a_person_says_so(tmp_path):
    faces = people([8])
    table = rows(faces, per_frame=2)
    assert len([n for n in numbers(identities()(table)) if n >= 0]) == 4
    keys = {"media_id": ["00000.jpg"] * 2, "frame_index": [0, 0], "face_index": [0, 1], "name": ["Ada", "Ada"]}
    pa.csv.write_csv(pa.table(keys), tmp_path / "names.csv")
    tables = identities(named=str(tmp_path / "names.csv"))(table)
    assert names_of(tables)[:2] == ["Ada", "Ada"]


@pytest.mark.parametrize("wrong", [{"media_id": ["a"]}, {"media_id": ["a", "a"], "name": ["Ada", "Bob"]}])
def test_a_file_that_names_no_face_or_one_twice_is_refused(tmp_path, wrong):
    whole = {"frame_index": [0] * len(wrong["media_id"]), "face_index": [0] * len(wrong["media_id"])}
    pq.write_table(pa.table(wrong | whole), tmp_path / "names.parquet")
    with pytest.raises(ValueError, match="names"):
        identities(named=str(tmp_path / "names.parquet"))
