"""COCO exports, read back by pycocotools."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from pycocotools.coco import COCO

import framekiln
from framekiln_stages.shared.skeleton import COCO_17
from tests.support.errors import fails
from tests.support.runs.export_factory import FILM, HEIGHT, PHOTOS, WIDTH, ring


def load(folder, split="all"):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(folder / "annotations" / f"instances_{split}.json")


def of_frame(coco, media_id, frame_index, category):
    """The annotations of one category on one frame."""
    image = next(i for i in coco.imgs.values() if (i["media_id"], i["frame_index"]) == (media_id, frame_index))
    number = next(item["id"] for item in coco.cats.values() if item["name"] == category)
    return [item for item in coco.imgToAnns[image["id"]] if item["category_id"] == number]


@pytest.fixture(scope="module")
def whole(out, tmp_path_factory):
    folder = tmp_path_factory.mktemp("coco") / "whole"
    summary = out.export("coco", folder, images="none")
    return summary, load(folder), folder


def test_boxes_masks_keypoints_come_back_equal(whole):
    summary, coco, _ = whole
    van, dog = of_frame(coco, PHOTOS[0], 0, "van"), of_frame(coco, PHOTOS[0], 0, "dog")
    assert [item["bbox"] for item in van] == [[1, 2, 8, 10]] and van[0]["area"] == 80
    assert len(dog) == 1 and dog[0]["score"] == 0.875 and dog[0]["bbox"] == [16, 8, 112, 56]
    assert np.array_equal(coco.annToMask(dog[0]), ring(64, 128)) and dog[0]["area"] == ring(64, 128).sum()
    assert "area" not in dog[0].get("attributes", {})  # of the mask at the size at which it was computed
    half = of_frame(coco, PHOTOS[0], 0, "mask")[0]  # of 32 by 64 px, on a picture of twice its sides
    assert np.array_equal(coco.annToMask(half), ring(32, 64).repeat(2, 0).repeat(2, 1))
    faces = of_frame(coco, PHOTOS[0], 0, "face")
    assert [item["bbox"] for item in faces] == [[8, 8, 8, 12], [30, 8, 8, 12]]
    assert faces[0]["keypoints"] == [value for i in range(5) for value in (8 + i, 8 + i, 2)]
    assert summary.images == {"all": 5} and min(coco.anns) == 1


def test_people_have_cocos_keypoints(whole):
    _, coco, _ = whole
    person, _, unknown = of_frame(coco, PHOTOS[1], 0, "person")
    points = np.array(person["keypoints"]).reshape(17, 3)
    places = [COCO_17.index(25), COCO_17.index(28)]  # a hidden knee, and an ankle below the picture
    assert points[places].tolist() == [[5 + 12.5, 31, 1], [0, 0, 0]] and person["num_keypoints"] == 16
    assert points[0].tolist() == [5, 6, 2]
    assert unknown["num_keypoints"] == 0 and unknown["bbox"] == [2, 2, 4, 4]
    category = next(item for item in coco.cats.values() if item["name"] == "person")
    assert category["keypoints"][5:7] == ["left_shoulder", "right_shoulder"] and [16, 14] in category["skeleton"]


def test_frames_that_nobody_looked_at_are_left_out_and_counted(whole):
    summary, coco, _ = whole
    assert (FILM, 3) not in {(item["media_id"], item["frame_index"]) for item in coco.imgs.values()}
    assert summary.left_out == {"poses": 1, "masks": 1} and next(summary.lines()) == summary.warnings[0]


def test_the_option_that_is_proposed_keeps_all_frames(whole, out, tmp_path):
    include = re.search(r"--include (\S+)", whole[0].warnings[0])[1]
    summary = out.export("coco", tmp_path, images="none", include=include)
    assert (summary.images, summary.left_out, summary.warnings) == ({"all": 6}, {}, ())


def test_frames_may_be_exported_alone_where_a_format_allows_it(out, tmp_path):
    assert out.export("coco", tmp_path / "all", images="none", include="none").images == {"all": 6}
    summary = out.export("coco", tmp_path / "poses", images="none", include="poses")
    assert summary.left_out == {"poses": 1} and "--include none " in summary.warnings[0]
    with fails("FK-EXPORT-KIND"):
        out.export("yolo", tmp_path / "yolo", images="none", include="none")


def test_an_export_repeats_itself(whole, out, tmp_path):
    _, _, folder = whole
    out.export("coco", tmp_path / "again", images="none")
    again = (tmp_path / "again" / "annotations" / "instances_all.json").read_bytes()
    assert again == (folder / "annotations" / "instances_all.json").read_bytes()


def test_biometrics_leave_only_when_they_are_named(whole, out, tmp_path):
    _, _, folder = whole
    text = (folder / "annotations" / "instances_all.json").read_text()
    assert "identity" not in text and "embedding" not in text and not list(folder.rglob("*.parquet"))
    out.export("coco", tmp_path, images="none", include="faces,identities")
    faces = of_frame(load(tmp_path), PHOTOS[0], 0, "face")
    assert [item["identity"] for item in faces] == [5, 6]


def test_embeddings_lie_beside_when_they_are_named(out, tmp_path):
    out.export("coco", tmp_path, images="none", include="faces,embeddings")
    coco, rows = load(tmp_path), pq.read_table(tmp_path / "embeddings").to_pylist()
    faces = {item["id"]: item for item in of_frame(coco, PHOTOS[0], 0, "face")}
    found = {row["annotation_id"]: row for row in rows if row["column"] == "faces"}
    assert found.keys() == faces.keys()
    assert [int(np.argmax(found[number]["embedding"])) for number in sorted(found)] == [8, 30]
    whole = [row for row in rows if row["column"] == "clip_embedding"]
    assert {row["image_id"] for row in whole} == coco.imgs.keys() and whole[0]["embedding"] == [1, 0]


@pytest.mark.parametrize(
    ("include", "right"),
    [("identities", "faces,identities"), ("identities,embeddings,boxes", "boxes,faces,identities,embeddings")],
)
def test_identities_need_the_faces_that_they_belong_to(out, tmp_path, include, right):
    with fails("FK-EXPORT-KIND", f"--include {right}."):
        out.export("coco", tmp_path, images="none", include=include)
    assert not list(tmp_path.iterdir())


def test_embeddings_stand_alone_where_the_frame_has_one(out, tmp_path):
    out.export("coco", tmp_path / "frame", images="none", include="embeddings")
    assert pq.read_table(tmp_path / "frame" / "embeddings").num_rows == 6
    shutil.copytree(out.path, tmp_path / "out")
    for part in (tmp_path / "out" / "frames").iterdir():
        pq.write_table(pq.read_table(part).drop_columns(["clip_embedding"]), part)
    faces = framekiln.open(tmp_path / "out")
    with fails("FK-EXPORT-KIND", "faces,embeddings"):
        faces.export("coco", tmp_path / "none", images="none", include="embeddings")
    summary = faces.export("coco", tmp_path / "faces", images="none", include="faces,embeddings")
    assert summary.annotations == {"faces": 2}


def test_tracks_give_numbers_and_the_people_who_were_missed(out, tmp_path):
    out.export("coco", tmp_path, images="none", include=["poses", "tracks"])
    coco = load(tmp_path)
    first = of_frame(coco, FILM, 0, "person")
    numbers = [item.get("track_id") for item in first]
    assert len(set(numbers[:2])) == 2 and None not in numbers[:2] and numbers[2] is None
    missed = of_frame(coco, FILM, 1, "person")  # one is found as a pose, one is interpolated, one has no pose
    assert {item.get("track_id") for item in missed} == {*numbers}
    assert len(of_frame(coco, FILM, 2, "object")) == 0 and len(of_frame(coco, FILM, 1, "object")) == 1


def test_all_keypoints_and_boxes_alone(out, tmp_path):
    out.export("coco", tmp_path / "all", images="none", include="poses", keypoints="all")
    assert len(of_frame(load(tmp_path / "all"), PHOTOS[0], 0, "person")[0]["keypoints"]) == 99
    out.export("coco", tmp_path / "boxes", images="none", include="boxes")
    assert {item["name"] for item in load(tmp_path / "boxes").cats.values()} == {"van", "dog"}


def test_sizes_and_names_are_those_of_the_frames(whole):
    _, coco, _ = whole
    image = next(item for item in coco.imgs.values() if item["media_id"] == PHOTOS[0])
    assert (image["width"], image["height"], image["category"]) == (WIDTH, HEIGHT, "park")
    assert image["file_name"].endswith(PHOTOS[0])


def test_mistakes_are_sentences(out, tmp_path):
    for code, words in {
        "FK-EXPORT-INCLUDE": {"include": "boxs"},
        "FK-EXPORT-BOTH": {"where": "true", "selection": "best"},
        "FK-EXPORT-EMPTY": {"where": "sharpness > 1000"},
        "FK-EXPORT-IMAGES": {"images": "resize"},
        "FK-EXPORT-SPLIT": {"split": "80/10/9"},
        "FK-EXPORT-BY": {"by": "people"},
        "FK-EXPORT-KEYPOINTS": {"keypoints": "33"},
        "FK-UNKNOWN-SELECTION": {"selection": "best"},
    }.items():
        with fails(code):
            out.export("coco", tmp_path, **{"images": "none", **words})
    with fails("FK-EXPORT-FORMAT"):
        out.export("cocoa", tmp_path)
    assert not list(tmp_path.iterdir())


def test_values_of_wrong_types_are_sentences(out, tmp_path):
    for value in (
        *({"selection": out.select(where="true")}, {"selection": 3}, {"split": [80, 10, 10]}, {"include": 5}),
        *({"include": [1, 2]}, {"where": True}, {"images": 1024}, {"shard_rows": "many"}),
        *({"columns": "crc"}, {"min_seconds": "long"}),
    ):
        with fails("FK-INVALID-SETTING", next(iter(value))):
            out.export("coco", tmp_path, **value)
    with fails("FK-UNKNOWN-OPTION", "images"):
        out.export("coco", tmp_path, image="none")
    assert not list(tmp_path.iterdir())


def test_a_destination_keeps_what_it_holds(out, tmp_path):
    out.export("coco", tmp_path / "one", images="none")
    out.export("coco", tmp_path / "one", images="none")
    with fails("FK-EXPORT-OTHER"):
        out.export("coco", tmp_path / "one", images="none", include="boxes")
    (tmp_path / "note.txt").write_text("mine")
    with fails("FK-EXPORT-NOT-EMPTY"):
        out.export("coco", tmp_path, images="none")
    record = json.loads((tmp_path / "one" / "export.json").read_text())
    assert record["request"]["to"] == "coco" and record["summary"]["images"] == {"all": 5}
