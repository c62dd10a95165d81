"""Identities of an earlier run: people keep their numbers, and a missing output is refused."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.contract.errors import ConfigError
from pipeline.planning.manifest import PipelineFile, ProfileFile
from pipeline.planning.plan import make_plan
from pipeline.planning.plan_options import PlanOptions
from pipeline.planning.processes.resources import Node
from tests.support.identities_factory import identities, numbers, people, rows


def test_numbers_stay_when_media_are_added(tmp_path):
    vectors = people([9, 6, 3, 4])
    first, later = vectors[:15], np.concatenate([vectors[18:], vectors[:15], vectors[15:18]])
    before = identities()(rows(first))
    (tmp_path / "identity_summary").mkdir()
    pq.write_table(before["identity_summary"], tmp_path / "identity_summary" / "all.parquet")
    assert numbers(before) == [0] * 9 + [1] * 6
    stage = identities(known=str(tmp_path))
    assert stage.files == (str(tmp_path / "identity_summary"),)
    tables = stage(rows(later))
    assert numbers(tables) == [2] * 4 + [0] * 9 + [1] * 6 + [3] * 3
    known = {row["identity"]: row["recognised"] for row in tables["identity_summary"].to_pylist()}
    assert known == {0: True, 1: True, 2: False, 3: False}
    # an absent person keeps the number, and no other gets it
    away = stage(rows(np.concatenate([vectors[:9], vectors[18:]])))
    assert numbers(away) == [0] * 9 + [2] * 4
    assert [(r["identity"], r["size"]) for r in away["identity_summary"].to_pylist()] == [(0, 9), (2, 4), (1, 0)]


def test_known_identities_may_have_a_url(tmp_path):
    vectors = people([9, 6])
    (out := tmp_path / "a b").mkdir()
    (out / "identity_summary").mkdir()
    before = identities()(rows(vectors))
    pq.write_table(before["identity_summary"], out / "identity_summary" / "all.parquet")
    url = out.as_uri()
    assert url.startswith("file:///") and "%20" in url
    tables = [identities(known=known)(rows(vectors[9:])) for known in (str(out), url, f"{url}/")]
    assert numbers(tables[0]) == [1] * 6
    for other in tables[1:]:
        assert all(other[name].equals(tables[0][name]) for name in other)


def planned(known):
    uses = {"faces": "stages.faces:Faces", "identities": "stages.identities:Identities"}
    steps = {name: {"use": use} for name, use in uses.items()}
    steps["identities"]["with"] = {"known": known}
    (identity,) = make_plan(
        PipelineFile.model_validate({"steps": steps}),
        ProfileFile(),
        PlanOptions(),
        [Node(name="box", cpus=8)],
        check_weights=False,
    ).second
    return identity.fingerprint


def test_a_url_is_checked_before_the_run(tmp_path):
    path = tmp_path / "identity_summary" / "all.parquet"
    path.parent.mkdir()
    path.write_bytes(b"one")
    first = planned(tmp_path.as_uri())
    assert planned(tmp_path.as_uri()) == first
    path.write_bytes(b"other")
    assert planned(tmp_path.as_uri()) != first


@pytest.mark.parametrize(
    ("known", "path"),
    [
        ("{}/gone", r"'.*/gone/identity_summary'"),
        ("file://{}/gone", r"'file://.*/gone/identity_summary'"),
        ("ftp://host/out", r"'ftp://host/out/identity_summary'"),
    ],
)
def test_missing_known_identities_are_refused_with_their_path(known, path, tmp_path):
    with pytest.raises(ConfigError, match=path) as error:
        planned(known.format(tmp_path))
    assert "\n" not in str(error.value)


def test_identities_of_another_network_are_refused(tmp_path):
    (tmp_path / "identity_summary").mkdir()
    tables = identities()(rows(people([5, 5])))
    pq.write_table(tables["identity_summary"], tmp_path / "identity_summary" / "all.parquet")
    with pytest.raises(ValueError, match="64 numbers, .* 32"):
        identities(known=str(tmp_path))(rows(people([5, 5], length=32)))
