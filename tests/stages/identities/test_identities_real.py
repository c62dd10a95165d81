"""Identities of real people in photos and clips match the files' names, from the command line too."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from framekiln.contract.columns import pack
from framekiln_stages.identities.stage import Identities
from tests.support.media.material import ROOT, media, picture, where_present
from tests.support.stages.faces.faces_factory import PORTRAITS, SPEAKERS, make
from tests.support.stages.faces.identities_factory import identities, numbers

WHO = {Path(name).name: who for name, who in PORTRAITS.items()} | {f"{k}.mpg": who for k, who in SPEAKERS.items()}


@pytest.fixture(scope="module")
def album():
    """Return every tenth frame of six clips of five speakers, and seven photos of four people."""
    stage, parts = make(keep_crops=True), []
    clips = {f"av/grid/{name}.mpg": _frames(media(f"av/grid/{name}.mpg")) for name in SPEAKERS}
    for name, images in {**{f"faces/{name}": [picture(f"faces/{name}")] for name in PORTRAITS}, **clips}.items():
        tables = stage(pa.table({stage.pixels: pack(images)}))
        height, width = images[0].shape[:2]
        whole = {"height": pa.array([height] * len(images), pa.int32()), "width": [width] * len(images)}
        index = pa.array([10 * i for i in range(len(images))], pa.int32())
        parts.append(
            pa.table(
                {"media_id": [Path(name).name] * len(images), "frame_index": index, **whole, "faces": tables["faces"]}
            )
        )
    return pa.concat_tables(parts)


def _frames(path):
    with av.open(str(path)) as file:
        return [f.to_ndarray(format="rgb24") for i, f in enumerate(file.decode(video=0)) if i % 10 == 0]


@pytest.mark.heavy
def test_people_are_distinguished(album):
    tables = identities()(album)
    who = np.array([WHO[name] for name in tables["identities"]["media_id"].to_pylist()])
    found = np.array(numbers(tables))
    often = np.isin(who, [name for name in set(who) if (who == name).sum() >= 3])
    assert len(who) == 55 and len(set(who[often])) == 6
    from sklearn.metrics import adjusted_rand_score  # never while tests are collected

    assert adjusted_rand_score(who[often], found[often]) >= 0.95
    assert set(found[~often]) == {-1}, "biden, collins and hopper appear once"
    speakers = tables["identity_summary"].to_pylist()[0]
    assert (speakers["size"], speakers["files"]) == (16, 2), "the speaker of two clips"
    crops = [face["crop"] for row in tables["identity_summary"].to_pylist() for face in row["exemplars"]]
    assert len(crops) >= 6 * 4 and all(crop.startswith(b"\xff\xd8") for crop in crops)


@pytest.mark.heavy
def test_blurred_and_smaller_copies_of_one_photo_are_nobody_and_a_second_photo_is():
    one, second = (cv2.resize(picture(f"faces/obama/{name}.jpg"), None, fx=0.3, fy=0.3) for name in ("obama", "obama2"))
    made = [cv2.GaussianBlur(one, (0, 0), sigma) for sigma in (0.5, 1, 1.5, 2)]
    made += [cv2.resize(one, None, fx=by, fy=by, interpolation=cv2.INTER_AREA) for by in (0.5, 0.6, 0.75, 1, 1.5)]
    assert set(numbers(identities()(_describe([*made, one[:, ::-1]])))) == {-1}
    assert set(numbers(identities()(_describe([*made, second])))) == {0}


def _describe(images):
    """Return what `identities` reads of photos."""
    faces = pa.concat_tables([stage(pa.table({stage.pixels: pack([image])})) for stage in [make()] for image in images])
    shapes = {side: pa.array([i.shape[n] for i in images], pa.int32()) for n, side in enumerate(("height", "width"))}
    names, first = [f"{i}.jpg" for i in range(len(images))], pa.array([0] * len(images), pa.int32())
    return pa.table({"media_id": names, "frame_index": first, **shapes}).append_column(
        faces.schema.field("faces"), faces["faces"]
    )


@pytest.fixture
def people(tmp_path):
    """A folder with photos and clips of three people."""
    (tmp_path / "in").mkdir()
    for name in ("faces/obama/obama.jpg", "faces/obama/obama2.jpg", "faces/obama/obama_partial_face.jpg"):
        (tmp_path / "in" / Path(name).name).write_bytes(media(name).read_bytes())
    for name in ("lbax4n", "pwij3p"):
        (tmp_path / "in" / f"{name}.mpg").write_bytes(media(f"av/grid/{name}.mpg").read_bytes())
    return tmp_path / "in"


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.parametrize("networks", where_present("MobileFaceNet.onnx", "trained") or ["random"])
def test_a_run_writes_the_stages_results(framekiln, no_weights, request, networks, tmp_path):
    if networks == "trained":
        source, given = request.getfixturevalue("people"), ("--weights-dir", ROOT / "weights")
    else:  # four faces an image, all alike: copies, of nobody
        source, given = request.getfixturevalue("collection"), ("--missing-weights", "dummy")
    sizes, exemplars = ([4, 4, 3], 11) if networks == "trained" else ([], 0)
    steps = {
        "faces": {"use": "framekiln_stages.faces:Faces", "with": {"keep_crops": True}},
        "identities": {"use": "framekiln_stages.identities:Identities"},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({"decode": {"every_nth": 20}, "steps": steps}))
    places = ("--pipeline", tmp_path / "pipeline.yaml", "--input", source, "--output", tmp_path / "out")
    framekiln("run", *places, *given)
    out = tmp_path / "out"
    frames = pq.read_table(out / "frames", columns=list(Identities().inputs))
    direct = identities()(frames)
    for name, table in direct.items():
        assert pq.read_table(out / name).cast(table.schema).equals(table)
    assert direct["identity_summary"]["size"].to_pylist() == sizes
    page = (out / "report.html").read_text()
    shown = sum(len(row) for row in direct["identity_summary"]["exemplars"].to_pylist())
    assert page.count("<img src=") == shown == exemplars
