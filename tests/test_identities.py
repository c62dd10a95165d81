"""Identities: hdbscan's own labels from a tree of our own, people told apart in real media, numbers that stay."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hdbscan import HDBSCAN
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import adjusted_rand_score

from pipeline.columns import pack
from pipeline.errors import ConfigError
from pipeline.machines import Node
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices, make_plan
from pipeline.stage import Placement
from stages.identities import Identities
from stages.nets.clusters import clusters
from stages.nets.members import portrait
from stages.nets.spanning import spanning_tree
from tests.material import media, weights
from tests.test_faces import PORTRAITS, SPEAKERS, make, read

FACES = ["media_id", "frame_index", "face_index"]
ROOT = Path(__file__).resolve().parents[1]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def blobs(random, count, length, share=0.8):
    """Unit vectors around random middles, in random order; the rest anywhere."""
    middles = random.normal(size=(max(2, count // 40), length))
    points = middles[random.integers(len(middles), size=count)] + random.uniform(0.2, 0.8) * random.normal(
        size=(count, length)
    )
    lone = random.random(count) > share
    points[lone] = random.normal(size=(lone.sum(), length))
    return unit(points)


def distances(vectors):
    """All of them, 1 - cosine, by one product."""
    exact = (1 - unit(vectors) @ unit(vectors).T).clip(0)
    np.fill_diagonal(exact, 0)
    return exact


def reachability(vectors, min_samples):
    """All mutual reachability distances, by the definition."""
    exact = distances(vectors)
    core = np.sort(exact, axis=1)[:, min(min_samples, len(exact) - 1)]
    return np.maximum(np.maximum(exact, core), core[:, None])


def total(vectors, min_samples):
    """Weight of scipy's minimum spanning tree, which takes zero for no edge."""
    return minimum_spanning_tree(reachability(vectors, min_samples) + 1).sum() - (len(vectors) - 1)


def spans(tree, count):
    """Whether the edges join all points."""
    group = list(range(count))

    def root(point):
        while group[point] != point:
            point = group[point]
        return point

    for a, b in tree.edges.tolist():
        group[root(a)] = root(b)
    return len(tree.edges) == count - 1 and len({root(point) for point in range(count)}) == 1


CASES = [
    (seed, count, length, samples, size)
    for seed, (count, length, samples, size) in enumerate(
        [
            *[(300, 8, 1, 3), (300, 64, 2, 3), (300, 512, 3, 5), (500, 16, 2, 10), (500, 128, 5, 5)],
            *[(700, 8, 2, 3), (700, 32, 1, 5), (1000, 16, 3, 3), (1000, 128, 2, 3), (1000, 512, 2, 3)],
            *[(1500, 8, 5, 10), (1500, 32, 2, 3), (1500, 64, 10, 10), (2000, 16, 2, 5), (2000, 128, 3, 3)],
            *[(2500, 8, 2, 3), (2500, 64, 5, 3), (3000, 32, 20, 20), (4000, 64, 2, 3), (5000, 32, 2, 3)],
        ]
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count", "length", "samples", "size"), CASES)
def test_labels_are_those_of_hdbscan(seed, count, length, samples, size):
    vectors = blobs(np.random.default_rng(seed), count, length)
    plain = HDBSCAN(metric="precomputed", algorithm="generic", min_cluster_size=size, min_samples=samples)
    expected = plain.fit(distances(vectors))
    found = clusters(spanning_tree(vectors, samples), size)
    assert adjusted_rand_score(expected.labels_, found.labels) == 1.0
    assert expected.labels_.max() >= 1, "the data have no clusters"
    np.testing.assert_allclose(found.probabilities, expected.probabilities_, atol=1e-9)
    np.testing.assert_allclose(found.outliers, expected.outlier_scores_, atol=1e-9)


def test_clusters_are_not_split_within_a_distance_as_in_hdbscan():
    random = np.random.default_rng(5)
    middles = np.repeat(blobs(random, 15, 64), 4, axis=0) + 0.05 * random.normal(size=(60, 64))
    vectors = unit(np.repeat(middles, 10, axis=0) + 0.02 * random.normal(size=(600, 64)))
    arguments = {"min_cluster_size": 3, "min_samples": 2, "cluster_selection_epsilon": 0.3}
    expected = HDBSCAN(metric="precomputed", algorithm="generic", **arguments).fit(distances(vectors))
    tree = spanning_tree(vectors, 2)
    assert adjusted_rand_score(expected.labels_, clusters(tree, 3, one_within=0.3).labels) == 1.0
    assert clusters(tree, 3).labels.max() > expected.labels_.max() > 1, "the setting changes nothing"


def special(name):
    random = np.random.default_rng(3)
    return {
        "signs": np.sign(random.normal(size=(400, 6))),
        "copies": random.normal(size=(40, 32))[random.integers(40, size=500)],
        "two faces": np.repeat(random.normal(size=(2, 16)), 200, axis=0),
        "one face": np.repeat(random.normal(size=(1, 128)), 100, axis=0),
        "nearly one face": np.ones((200, 64)) + 1e-5 * random.normal(size=(200, 64)),
        "axes": np.eye(60),
        "a line": np.stack([np.cos(a := np.linspace(0, 1.5, 300)), np.sin(a)], axis=1),
    }[name]


@pytest.mark.parametrize("samples", [1, 2, 30])
@pytest.mark.parametrize("name", ["signs", "copies", "two faces", "one face", "nearly one face", "axes", "a line"])
def test_with_ties_the_tree_is_as_light_in_any_order(name, samples):
    vectors = special(name)
    shuffled = vectors[np.random.default_rng(1).permutation(len(vectors))]
    for given in (vectors, shuffled):
        tree = spanning_tree(given, samples)
        assert spans(tree, len(given))
        assert tree.weights.sum() == pytest.approx(total(vectors, samples), abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 16, 17, 18, 40])
def test_trees_of_few_points(count):
    vectors = np.random.default_rng(count).normal(size=(count, 5))
    tree = spanning_tree(vectors, 4)
    assert spans(tree, count)
    assert tree.weights.sum() == pytest.approx(total(vectors, 4), abs=1e-12)


def test_weights_of_a_tree_are_those_of_its_edges():
    vectors = blobs(np.random.default_rng(8), 700, 48)
    tree = spanning_tree(vectors, 3)
    np.testing.assert_allclose(tree.weights, reachability(vectors, 3)[tuple(tree.edges.T)], atol=1e-12)
    assert tree.weights.sum() == pytest.approx(total(vectors, 3), abs=1e-10)


@pytest.mark.parametrize("bad", [np.zeros((3, 4)), np.full((3, 4), np.nan), np.ones((1, 4))])
def test_what_has_no_tree_is_refused(bad):
    with pytest.raises(ValueError, match=r"direction|two points"):
        spanning_tree(bad, 2)


def test_a_gpu_makes_the_same_tree():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    vectors = blobs(np.random.default_rng(2), 3000, 128)
    here, there = spanning_tree(vectors, 2), spanning_tree(vectors, 2, "cuda")
    assert np.array_equal(here.edges, there.edges)
    np.testing.assert_allclose(here.weights, there.weights, atol=1e-12)


def test_a_medoid_is_the_member_most_like_the_others():
    vectors = blobs(np.random.default_rng(4), 60, 8)
    own = np.arange(5, 50, 3)
    found = portrait(vectors, own, 4)
    cosines = vectors[own] @ vectors[own].T
    mean = (cosines.sum(axis=1) - 1) / (len(own) - 1)
    assert found.medoid == own[mean.argmax()]
    assert found.cohesion == pytest.approx(mean.max())
    first, second = found.exemplars[:2]
    assert first == found.medoid
    assert second == own[cosines[mean.argmax()].argmin()], "the second is least like the first"


# --- the stage ---


def identities(**settings):
    stage = Identities(Identities.Config(**settings))
    stage.setup({}, Placement(cpus=2.0))
    return stage


def rows(vectors, names=None, quality=0.9, score=0.95, side=0.5, per_frame=1, kind=np.float32):
    """A table as `faces` would leave it: so many faces a frame, each frame 100 x 200 px."""
    count = len(vectors)
    corner = pa.array(np.zeros(count, np.float32))
    edge = pa.array(np.full(count, side, np.float32))
    box = pa.StructArray.from_arrays([corner, corner, edge, edge], ["x0", "y0", "x1", "y1"])
    lay = pa.FixedSizeListArray.from_arrays(pa.array(unit(vectors).astype(kind).reshape(-1)), vectors.shape[1])
    numbers = [pa.array(np.broadcast_to(np.float32(value), count).copy()) for value in (score, quality)]
    faces = pa.StructArray.from_arrays([box, *numbers, lay], ["box", "score", "quality", "embedding"])
    offsets = pa.array([*range(0, count, per_frame), count], pa.int32())
    frames = len(offsets) - 1
    names = [f"{i:05}.jpg" for i in range(frames)] if names is None else names
    return pa.table(
        {
            "media_id": names,
            "frame_index": pa.array([0] * frames, pa.int32()),
            "height": pa.array([100] * frames, pa.int32()),
            "width": pa.array([200] * frames, pa.int32()),
            "faces": pa.ListArray.from_arrays(offsets, faces),
        }
    )


def numbers(made):
    return [-1 if n is None else n for n in made["identities"]["identity"].to_pylist()]


def people(sizes, length=64, spread=0.5, seed=0):
    """Faces of people one after the other; cosines within a person about .8."""
    random = np.random.default_rng(seed)
    return np.concatenate(
        [unit(random.normal(size=(1, length))) * 8 + spread * random.normal(size=(n, length)) for n in sizes]
    )


def test_the_largest_identity_is_the_first_and_strangers_have_none():
    made = identities()(rows(people([4, 9, 1, 3, 4, 1])))
    assert numbers(made) == [1] * 4 + [0] * 9 + [-1] + [3] * 3 + [2] * 4 + [-1]
    summary = made["identity_summary"].to_pylist()
    assert [(row["identity"], row["size"], row["files"]) for row in summary] == [
        (0, 9, 9),
        (1, 4, 4),
        (2, 4, 4),
        (3, 3, 3),
    ]
    assert made["identities"]["probability"].to_pylist()[13] == 0.0


def test_one_stranger_does_not_hang_on_a_person():
    """By density alone the last face belongs to the person before."""
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
        made = identities()(other)
        assert all(made[name].equals(expected[name]) for name in made)
    assert expected["identities"].select(FACES).to_pylist()[:3] == [
        {"media_id": "00000.jpg", "frame_index": 0, "face_index": 0},
        {"media_id": "00000.jpg", "frame_index": 0, "face_index": 1},
        {"media_id": "00001.jpg", "frame_index": 0, "face_index": 0},
    ]


@pytest.mark.parametrize(
    ("column", "setting"), [("quality", "min_quality"), ("score", "min_score"), ("side", "min_side")]
)
def test_faces_that_do_not_pass_are_listed_but_not_clustered(column, setting):
    vectors = people([5, 5])
    values = np.full(10, 0.8, np.float32)
    values[[0, 7]] = 0.4
    least = 60 if column == "side" else 0.5  # .8 of 100 px is 80, .4 is 40
    batch = rows(vectors, **{column: 0.8})
    low = rows(vectors, **{column: 0.4})
    mixed = pa.concat_tables([(low if v < 0.5 else batch).slice(i, 1) for i, v in enumerate(values)])
    made = identities(**{setting: least})(mixed)
    assert [i for i, shown in enumerate(made["identities"]["clustered"].to_pylist()) if not shown] == [0, 7]
    assert numbers(made) == [-1, 0, 0, 0, 0, 1, 1, -1, 1, 1]
    assert [made["identities"][name][0].as_py() for name in ("probability", "outlier_score", "similarity")] == [
        None
    ] * 3


def test_noise_gets_a_second_chance_by_its_cosine_to_the_medoid():
    random = np.random.default_rng(1)
    vectors = unit(people([12, 12]))
    middle = unit(vectors[:12].sum(axis=0, keepdims=True))
    off = random.normal(size=(1, 64))
    off = unit(off - (off @ middle.T) * middle)
    odd = 0.42 * middle + np.sqrt(1 - 0.42**2) * off  # near its own person only, far out of the cluster
    batch = rows(np.concatenate([vectors, odd]))
    without = identities(strangers=0.5, assign=None)(batch)
    assert numbers(without)[-1] == -1
    medoid = without["identity_summary"].to_pylist()[numbers(without)[0]]
    cosine = float(unit(vectors)[int(medoid["media_id"][:5])] @ odd[0])
    for threshold, given in ((cosine - 0.01, True), (cosine + 0.01, False)):
        made = identities(strangers=0.5, assign=threshold)(batch)
        row = made["identities"].to_pylist()[-1]
        assert (row["identity"] == numbers(made)[0], row["assigned"]) == (given, given)
        sizes = [(r["size"], r["assigned"]) for r in made["identity_summary"].to_pylist()]
        assert sorted(sizes) == [(12, 0), (12 + given, int(given))]


def test_numbers_stay_when_media_are_added(tmp_path):
    vectors = people([9, 6, 3, 4])
    first, later = vectors[:15], np.concatenate([vectors[18:], vectors[:15], vectors[15:18]])
    before = identities()(rows(first))
    (tmp_path / "identity_summary").mkdir()
    pq.write_table(before["identity_summary"], tmp_path / "identity_summary" / "all.parquet")
    assert numbers(before) == [0] * 9 + [1] * 6
    stage = identities(known=str(tmp_path))
    assert stage.files == (str(tmp_path / "identity_summary"),)
    made = stage(rows(later))
    assert numbers(made) == [2] * 4 + [0] * 9 + [1] * 6 + [3] * 3
    known = {row["identity"]: row["recognised"] for row in made["identity_summary"].to_pylist()}
    assert known == {0: True, 1: True, 2: False, 3: False}
    # one who is away keeps the number, and nobody else gets it
    away = stage(rows(np.concatenate([vectors[:9], vectors[18:]])))
    assert numbers(away) == [0] * 9 + [2] * 4
    assert [(r["identity"], r["size"]) for r in away["identity_summary"].to_pylist()] == [(0, 9), (2, 4), (1, 0)]


def test_known_identities_may_lie_behind_a_url(tmp_path):
    vectors = people([9, 6])
    (out := tmp_path / "a b").mkdir()
    (out / "identity_summary").mkdir()
    before = identities()(rows(vectors))
    pq.write_table(before["identity_summary"], out / "identity_summary" / "all.parquet")
    url = out.as_uri()
    assert url.startswith("file:///") and "%20" in url
    made = [identities(known=known)(rows(vectors[9:])) for known in (str(out), url, f"{url}/")]
    assert numbers(made[0]) == [1] * 6
    for other in made[1:]:
        assert all(other[name].equals(made[0][name]) for name in other)


def planned(known):
    uses = {"faces": "stages.faces:Faces", "identities": "stages.identities:Identities"}
    steps = {name: {"use": use} for name, use in uses.items()}
    steps["identities"]["with"] = {"known": known}
    (identity,) = make_plan(
        PipelineFile.model_validate({"steps": steps}),
        ProfileFile(),
        Choices(),
        [Node(name="box", cpus=8)],
        check_weights=False,
    ).second
    return identity.fingerprint


def test_a_url_is_looked_into_before_anything_starts(tmp_path):
    (tmp_path / "identity_summary").mkdir()
    path = tmp_path / "identity_summary" / "all.parquet"
    path.write_bytes(b"one")
    first = planned(tmp_path.as_uri())
    assert planned(tmp_path.as_uri()) == first
    path.write_bytes(b"other")
    assert planned(tmp_path.as_uri()) != first


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("{}/gone", r"names '.*/gone/identity_summary', but there is no such file or folder; check the path\.$"),
        ("file://{}/gone", r"names 'file://.*/gone/identity_summary', but there is no such .*; check the URL\.$"),
        ("ftp://host/out", r"names 'ftp://host/out/identity_summary', which cannot be opened \(.*\); check the URL\.$"),
    ],
)
def test_known_identities_that_are_not_there_are_one_sentence(known, said, tmp_path):
    with pytest.raises(ConfigError, match=said) as told:
        planned(known.format(tmp_path))
    assert "\n" not in str(told.value)


def test_identities_of_another_network_are_refused(tmp_path):
    (tmp_path / "identity_summary").mkdir()
    made = identities()(rows(people([5, 5])))
    pq.write_table(made["identity_summary"], tmp_path / "identity_summary" / "all.parquet")
    with pytest.raises(ValueError, match="of 64 numbers, the faces of 32"):
        identities(known=str(tmp_path))(rows(people([5, 5], length=32)))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_faces_are_nobody(count):
    made = identities()(rows(people([5])[:count]))
    assert (numbers(made), made["identity_summary"].num_rows) == ([-1] * count, 0)


def test_rows_without_faces_count_as_none():
    batch = rows(people([4]))
    missing = pa.array([None], batch["faces"].type)
    hole = batch.slice(0, 1).set_column(4, "faces", missing).set_column(0, "media_id", pa.array(["a"]))
    assert numbers(identities()(pa.concat_tables([hole, batch]))) == [0] * 4


def test_copies_of_one_face_are_one_identity():
    made = identities()(rows(np.repeat(people([1]), 40, axis=0)))
    assert numbers(made) == [0] * 40
    assert made["identity_summary"]["cohesion"].to_pylist() == pytest.approx([1.0], abs=1e-6)
    assert not np.isnan(made["identities"]["outlier_score"].to_numpy()).any()


def test_one_person_alone_is_an_identity_and_strangers_are_not():
    assert numbers(identities()(rows(people([12])))) == [0] * 12
    assert numbers(identities()(rows(people([1] * 12)))) == [-1] * 12
    assert numbers(identities()(rows(people([12, 1, 1])))) == [0] * 12 + [-1, -1]


def test_embeddings_without_direction_are_left_out():
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
    assert numbers(identities()(batch)) == [0, 0, -1, 0, 0, 1, -1, 1, 1, 1]


@pytest.mark.parametrize(
    "wrong",
    [{"min_cluster_size": 1}, {"min_samples": 0}, {"one_person": 1.0}, {"assign": -0.1}, {"strangers": 0.6}],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Identities.Config(**wrong)


# --- real people ---


@pytest.fixture(scope="module")
def album():
    """Every tenth frame of six clips of five speakers, and seven photos of four people."""
    stage, parts = make(keep_crops=True), []
    clips = {f"av/grid/{name}.mpg": _frames(media(f"av/grid/{name}.mpg")) for name in SPEAKERS}
    for name, images in {**{f"faces/{name}": [read(f"faces/{name}")] for name in PORTRAITS}, **clips}.items():
        made = stage(pa.table({stage.pixels: pack(images)}))
        height, width = images[0].shape[:2]
        whole = {"height": pa.array([height] * len(images), pa.int32()), "width": [width] * len(images)}
        index = pa.array([10 * i for i in range(len(images))], pa.int32())
        parts.append(
            pa.table(
                {"media_id": [Path(name).name] * len(images), "frame_index": index, **whole, "faces": made["faces"]}
            )
        )
    return pa.concat_tables(parts)


def _frames(path):
    with av.open(str(path)) as file:
        return [f.to_ndarray(format="rgb24") for i, f in enumerate(file.decode(video=0)) if i % 10 == 0]


WHO = {Path(name).name: who for name, who in PORTRAITS.items()} | {f"{k}.mpg": who for k, who in SPEAKERS.items()}


@pytest.mark.slow
def test_people_are_told_apart(album):
    made = identities()(album)
    who = np.array([WHO[name] for name in made["identities"]["media_id"].to_pylist()])
    found = np.array(numbers(made))
    often = np.isin(who, [name for name in set(who) if (who == name).sum() >= 3])
    assert len(who) == 55 and len(set(who[often])) == 6
    assert adjusted_rand_score(who[often], found[often]) >= 0.95
    assert set(found[~often]) == {-1}, "biden, collins and hopper appear once"
    speakers = made["identity_summary"].to_pylist()[0]
    assert (speakers["size"], speakers["files"]) == (16, 2), "the one who is in two clips"
    crops = [face["crop"] for row in made["identity_summary"].to_pylist() for face in row["exemplars"]]
    assert len(crops) >= 6 * 4 and all(crop.startswith(b"\xff\xd8") for crop in crops)


@pytest.mark.slow
def test_the_engine_writes_what_the_stage_says(framemill, tmp_path):
    folder = weights("MobileFaceNet.onnx").parent
    (tmp_path / "in").mkdir()
    for name in ("faces/obama/obama.jpg", "faces/obama/obama2.jpg", "faces/obama/obama_partial_face.jpg"):
        (tmp_path / "in" / Path(name).name).write_bytes(media(name).read_bytes())
    for name in ("lbax4n", "pwij3p"):
        (tmp_path / "in" / f"{name}.mpg").write_bytes(media(f"av/grid/{name}.mpg").read_bytes())
    steps = {
        "faces": {"use": "stages.faces:Faces", "with": {"keep_crops": True}},
        "identities": {"use": "stages.identities:Identities"},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({"decode": {"every_nth": 20}, "steps": steps}))
    places = ("--pipeline", tmp_path / "pipeline.yaml", "--input", tmp_path / "in", "--output", tmp_path / "out")
    framemill("run", *places, "--weights-dir", folder)
    out = tmp_path / "out"
    frames = pq.read_table(out / "frames", columns=list(Identities().inputs))
    direct = identities()(frames)
    for name, table in direct.items():
        assert pq.read_table(out / name).cast(table.schema).equals(table)
    assert direct["identity_summary"]["size"].to_pylist() == [4, 4, 3]
    page = (out / "report.html").read_text()
    shown = sum(len(row) for row in direct["identity_summary"]["exemplars"].to_pylist())
    assert page.count("<img src=") == shown == 11
