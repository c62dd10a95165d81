"""Identities of an earlier run: people keep their numbers, and a missing output is refused."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.planning.step import contents
from tests.support.machine.object_server import Objects, served
from tests.support.stages.faces.identities_factory import identities, numbers, people, rows


def store(tables, folder, name="all"):
    """Write the identities of a run as its output holds them."""
    (folder / "identity_summary").mkdir(exist_ok=True)
    pq.write_table(tables["identity_summary"], folder / "identity_summary" / f"{name}.parquet")


def test_numbers_stay_when_media_are_added(tmp_path):
    vectors = people([9, 6, 3, 4])
    first, later = vectors[:15], np.concatenate([vectors[18:], vectors[:15], vectors[15:18]])
    before = identities()(rows(first))
    store(before, tmp_path)
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


def by_file(tables):
    return dict(zip(tables["identities"]["media_id"].to_pylist(), numbers(tables), strict=True))


def continued(stage, batch, before):
    """Call a stage as a run does into the output that `before` came from."""
    return stage(batch, {name: before[name] for name in stage.keeps})


def test_an_output_keeps_the_numbers_of_its_people():
    a, b, c, d = np.split(people([6, 4, 5, 3]), [6, 10, 15])
    stage = identities()
    first = stage(rows(np.concatenate([a, b])))
    assert numbers(first) == [0] * 6 + [1] * 4
    second = continued(stage, rows(np.concatenate([c, a, b])), first)
    assert numbers(second) == [2] * 5 + [0] * 6 + [1] * 4, "the newcomers sort first"
    third = continued(stage, rows(np.concatenate([d, a])), second)
    assert numbers(third) == [3] * 3 + [0] * 6, "numbers of people whose photos are gone are not given again"
    assert numbers(continued(stage, rows(np.concatenate([c, b])), third)) == [2] * 5 + [1] * 4, "they are back"
    again = continued(stage, rows(np.concatenate([c, b])), third)
    assert continued(stage, rows(np.concatenate([c, b])), again)["identities"].equals(again["identities"])
    anew = identities(keep_numbers=False)
    assert anew.keeps == () and numbers(anew(rows(np.concatenate([c, b])))) == [0] * 5 + [1] * 4


@pytest.mark.parametrize("length", [64, 32])
def test_numbers_stay_with_another_network(length):
    names = [f"{i}.jpg" for i in range(10)]
    before = identities()(rows(people([6, 4])[::-1].copy(), names, network="one"))
    assert numbers(before) == [1] * 4 + [0] * 6
    others = people([6, 4, 5], length=length, seed=1)
    after = continued(identities(), rows(others[9::-1].copy(), names, network="two"), before)
    assert numbers(after) == numbers(before)
    more = [*(f"{i}.0.jpg" for i in range(5)), *names]
    later = continued(identities(), rows(others[::-1].copy(), more, network="two"), after)
    assert by_file(later) == by_file(before) | {f"{i}.0.jpg": 2 for i in range(5)}
    # the centroid of an absent person of the old network is kept, and compared with nobody
    alone = continued(identities(), rows(others[10:], network="two"), before)
    assert numbers(alone) == [2] * 5 and [r["network"] for r in alone["identity_summary"].to_pylist()] == [
        "two",
        "one",
        "one",
    ]


def test_of_a_forgotten_person_the_number_alone_stays():
    a, b, c = np.split(people([6, 4, 5]), [6, 10])
    first = identities()(rows(np.concatenate([a, b])))
    second = continued(identities(forget_absent=True), rows(a), first)
    assert [len(row["centroid"]) for row in second["identity_summary"].to_pylist()] == [a.shape[1], 0]
    third = continued(identities(), rows(np.concatenate([a, b, c])), second)
    assert numbers(third) == [0] * 6 + [3] * 4 + [2] * 5, "one who comes back is new, and 1 stays taken"


def test_photos_that_were_replaced_keep_no_number():
    a, b = np.split(people([5, 5]), [5])
    before = identities()(rows(a))
    assert numbers(continued(identities(), rows(b), before)) == [1] * 5


def test_a_merged_person_takes_the_number_of_most_faces():
    a, b = np.split(people([6, 4]), [6])
    before = identities()(rows(np.concatenate([b, a])))
    assert numbers(before) == [1] * 4 + [0] * 6
    between = np.linspace(a[0], b[0], 12)  # a chain of faces from one to the other
    merged = continued(identities(min_quality=0), rows(np.concatenate([b, a, between])), before)
    assert set(numbers(merged)) == {0}
    absent = {row["identity"]: row["size"] for row in merged["identity_summary"].to_pylist()}
    assert absent == {0: 22, 1: 0}, "the other number stays taken"


@pytest.mark.parametrize("count", [1, 2])
def test_single_photos_of_a_known_person_are_enough(tmp_path, count):
    a, b, stranger = np.split(people([6, 6, 1]), [6, 12])
    before = identities()(rows(np.concatenate([a[:4], b[:4]])))
    batch = rows(np.concatenate([a[4 : 4 + count], stranger]), names=[*(f"{i}.png" for i in range(count)), "z.png"])
    store(before, tmp_path)
    for tables in (identities(known=str(tmp_path))(batch), continued(identities(), batch, before)):
        shown = tables["identities"].to_pylist()
        assert [row["identity"] for row in shown] == [0] * count + [None] and shown[-1]["reason"] == "alone"
        assert all(row["assigned"] and row["similarity"] > 0.8 and row["margin"] > 0.3 for row in shown[:count])
        person, absent = tables["identity_summary"].to_pylist()
        assert (person["identity"], person["size"], person["assigned"], person["recognised"]) == (0, count, count, True)
        assert (
            person["cohesion"] is None
            and person["media_id"] in {"0.png", "1.png"}
            and len(person["exemplars"]) == count
        )
        assert person["centroid"] == before["identity_summary"]["centroid"][0].as_py(), "as it was"
        assert (absent["identity"], absent["size"], absent["measured"]) == (1, 0, person["measured"])
    # with a third photo the person is a cluster, and has the number still
    third = continued(identities(), rows(np.concatenate([a[3:6], stranger])), tables)
    assert numbers(third) == [0] * 3 + [-1]


def test_numbers_of_the_output_win_over_those_of_another(tmp_path):
    a, b, c = np.split(people([6, 4, 5]), [6, 10])
    other = identities()(rows(np.concatenate([c, b])))  # c is 0, b is 1
    store(other, tmp_path)
    before = identities()(rows(a))
    tables = continued(identities(known=str(tmp_path)), rows(np.concatenate([a, b, c])), before)
    assert numbers(tables) == [0] * 6 + [1] * 4 + [2] * 5


def test_known_identities_may_have_a_url(tmp_path):
    vectors = people([9, 6])
    (out := tmp_path / "a b").mkdir()
    store(identities()(rows(vectors)), out)
    url = out.as_uri()
    assert url.startswith("file:///") and "%20" in url
    tables = [identities(known=known)(rows(vectors[9:])) for known in (str(out), url, f"{url}/")]
    assert numbers(tables[0]) == [1] * 6
    for other in tables[1:]:
        assert all(other[name].equals(tables[0][name]) for name in other)


def test_known_identities_may_lie_in_a_bucket_that_options_name(tmp_path):
    vectors = people([9, 6])
    store(identities()(rows(vectors)), tmp_path)
    content = (tmp_path / "identity_summary" / "all.parquet").read_bytes()
    with served(Objects(files={f"{key}/identity_summary/all.parquet": content for key in ("out", "o ut%20#?x")})) as b:
        for key in ("out", "out/", "o ut%20#?x"):
            stage = identities(known=b.url.format(key))
            assert numbers(stage(rows(vectors[9:]))) == [1] * 6
            (file,) = stage.files
            assert contents(file, urls=True)


def test_two_files_of_a_killed_run_are_one_table(tmp_path):
    vectors = people([9, 6])
    before = identities()(rows(vectors))
    for name in "ab":
        store(before, tmp_path, name)
    tables = identities(known=str(tmp_path))(rows(vectors[9:]))
    assert [(r["identity"], r["size"]) for r in tables["identity_summary"].to_pylist()] == [(1, 6), (0, 0)]


def planned(known):
    uses = {"faces": "framekiln_stages.faces:Faces", "identities": "framekiln_stages.identities:Identities"}
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
    tables = identities()(rows(people([5, 5])))
    store(tables, tmp_path)
    with pytest.raises(ValueError, match="64 numbers .* 32"):
        identities(known=str(tmp_path))(rows(people([5, 5], length=32)))
