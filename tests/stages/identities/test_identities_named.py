"""Names that a person gave: one is one person, two are two, and the rest goes on as without names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from framekiln_stages.identities.stage import Identities
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


def test_a_corrected_name_keeps_its_number_and_one_that_was_taken_back_draws_nobody(tmp_path):
    a, b = np.split(people([6, 6]), [6])
    faces = np.concatenate([a, b])
    wrong = named(tmp_path, {0: "Ada", 6: "Bob"})(rows(faces))
    right = named(tmp_path, dict.fromkeys(range(6), "Ada"))(
        rows(faces), {"identity_summary": wrong["identity_summary"]}
    )
    assert names_of(right) == ["Ada"] * 6 + [None] * 6 and set(numbers(right)[:6]) == {numbers(wrong)[0]}
    assert len(set(numbers(right)[6:])) == 1
    absent = [row["name"] for row in right["identity_summary"].to_pylist() if row["size"] == 0]
    assert absent.count("Ada") == 0


def test_names_are_text_as_they_stand_in_a_csv(tmp_path):
    (tmp_path / "names.csv").write_text("media_id,frame_index,face_index,name\n00000.jpg,0,0,007\n00001.jpg,0,0,true\n")
    tables = identities(named=str(tmp_path / "names.csv"))(rows(people([6])))
    assert names_of(tables)[:2] == ["007", "true"]


@pytest.mark.parametrize(
    "content",
    [
        "media_id,name\na.jpg,Ada\n",
        "media_id,frame_index,face_index,name\na.jpg,0,0,Ada\na.jpg,0,0,Bob\n",
        "media_id,frame_index,face_index,name\na.jpg,x,0,Ada\n",
        "media_id,frame_index,face_index,name\na.jpg,,0,Ada\n",
        "media_id,frame_index,face_index,name\na.jpg,0,-1,Ada\n",
    ],
)
def test_a_wrong_file_of_names_is_refused_before_a_run(tmp_path, content):
    (tmp_path / "names.csv").write_text(content)
    with pytest.raises(ValueError):
        Identities.Config(named=str(tmp_path / "names.csv"))
