"""Exports for labelling and training tools, read back by hand or by what their documents say."""

from __future__ import annotations

import configparser
import json
from urllib.parse import unquote
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import yaml

from framekiln.export.annotation import ExportedImage
from framekiln.export.formats import find_format
from framekiln.export.request import ExportRequest
from framekiln.output.object_store import Store
from framekiln_stages.shared.masks import decode
from framekiln_stages.shared.skeleton import COCO_17
from tests.support.errors import fails
from tests.support.runs.export_factory import FILM, HEIGHT, PHOTOS, WIDTH, mask, person, ring

BOX = [16, 8, 128, 64]  # of both masks


def filled(mask):
    """A mask without its holes."""
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros(mask.shape, np.uint8), outlines, -1, 1, cv2.FILLED).astype(bool)


def inside(points, height=HEIGHT, width=WIDTH):
    """The pixels (height width) whose middle is inside a polygon with corners in px, by crossings."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    found = np.zeros((height, width), bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y0 != y1:
            found ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    return found


def landmarks(x):
    """The keypoints that COCO has of a person, in px, with their visibility."""
    marks = [person(x)["landmarks"][i] for i in COCO_17]
    return [(mark["x"] * WIDTH, mark["y"] * HEIGHT, 1 + (mark["visibility"] > 0.5)) for mark in marks]


# YOLO


def labels(folder, name, split="all"):
    text = (folder / "labels" / split / name).read_text()
    return [[float(word) for word in line.split()] for line in text.splitlines()]


def test_yolo_has_masks_as_outlines_without_their_holes(out, tmp_path):
    summary = out.export("yolo", tmp_path, images="none", include="masks")
    rows = labels(tmp_path, f"{PHOTOS[0]}.txt")
    names = yaml.safe_load((tmp_path / "data.yaml").read_text())["names"]
    assert [names[row[0]] for row in rows] == ["dog", "mask"]
    for row, original in zip(rows, (ring(64, 128), ring(32, 64).repeat(2, 0).repeat(2, 1)), strict=True):
        points = np.array(row[1:]).reshape(-1, 2) * (WIDTH, HEIGHT)
        assert np.array_equal(inside(points), filled(original))
    assert any("10 masks have holes" in note for note in summary.notes)


def test_yolo_has_poses(out, tmp_path):
    out.export("yolo", tmp_path, images="none", include="poses")
    facts = yaml.safe_load((tmp_path / "data.yaml").read_text())
    assert facts["kpt_shape"] == [17, 3] and facts["names"] == {0: "person"}
    assert facts["flip_idx"][:7] == [0, 2, 1, 4, 3, 6, 5] and facts["train"] == facts["val"] == "images/all"
    first, _, unknown = labels(tmp_path, f"{PHOTOS[0]}.txt")
    assert np.allclose(first[:5], [0, 12 / WIDTH, 22 / HEIGHT, 16 / WIDTH, 32 / HEIGHT])
    for found, (x, y, seen) in zip(np.array(first[5:]).reshape(17, 3), landmarks(4.0), strict=True):
        assert np.allclose(found, [x / WIDTH, y / HEIGHT, seen] if y <= HEIGHT else 0)
    assert not any(unknown[5:])


def test_yolo_has_boxes_of_all_kinds_and_empty_files(out, tmp_path):
    out.export("yolo", tmp_path / "all", images="none", include="boxes,faces,masks")
    names = yaml.safe_load((tmp_path / "all" / "data.yaml").read_text())["names"]
    rows = labels(tmp_path / "all", f"{PHOTOS[0]}.txt")
    assert [names[row[0]] for row in rows] == ["face", "face", "dog", "mask", "van"] and {len(row) for row in rows} == {
        5
    }
    assert np.allclose(rows[-1][1:], [5 / WIDTH, 7 / HEIGHT, 8 / WIDTH, 10 / HEIGHT])
    out.export("yolo", tmp_path / "faces", images="none", include="faces")
    assert labels(tmp_path / "faces", f"{FILM}/000000.txt") == []
    assert yaml.safe_load((tmp_path / "faces" / "data.yaml").read_text())["kpt_shape"] == [5, 3]


# CVAT


def decode_cvat(element):
    """A mask (h w) as CVAT's documentation describes it."""
    left, top, width, height = (int(element.get(name)) for name in ("left", "top", "width", "height"))
    pixels = [place % 2 for place, run in enumerate(element.get("rle").split(", ")) for _ in range(int(run))]
    whole = np.zeros((HEIGHT, WIDTH), bool)
    whole[top : top + height, left : left + width] = np.reshape(pixels, (height, width))
    return whole


def box_of(element):
    return [float(element.get(name)) for name in ("xtl", "ytl", "xbr", "ybr")]


def test_cvat_has_shapes_masks_and_skeletons(out, tmp_path):
    out.export("cvat", tmp_path, images="none")
    root = ElementTree.parse(tmp_path / "annotations" / "all.xml").getroot()
    assert {"person", "face", "dog", "van", "park"} <= {
        name.text for name in root.findall("meta/task/labels/label/name")
    }
    images = root.findall("image")
    assert [int(image.get("id")) for image in images] == list(range(5)) and images[0].get("name").endswith(PHOTOS[0])
    first = images[0]
    assert [tag.get("label") for tag in first.findall("tag")] == ["park"]
    masks = {element.get("label"): decode_cvat(element) for element in first.findall("mask")}
    assert np.array_equal(masks["dog"], ring(64, 128))
    assert np.array_equal(masks["mask"], ring(32, 64).repeat(2, 0).repeat(2, 1))
    boxes = [(element.get("label"), box_of(element)) for element in first.findall("box")]
    assert ("van", [1, 2, 9, 12]) in boxes and ("face", [8, 8, 16, 20]) in boxes
    person = next(item for item in first.findall("skeleton") if item.get("label") == "person")
    for points, (x, y, seen) in zip(person, landmarks(4.0), strict=True):
        assert points.get("outside") == str(int(y > HEIGHT)) and points.get("occluded") == str(int(seen == 1))
        assert y > HEIGHT or points.get("points") == f"{x:.2f},{y:.2f}"


def test_cvat_lists_a_skeleton_with_its_points(out, tmp_path):
    out.export("cvat", tmp_path, images="none")
    labels = ElementTree.parse(tmp_path / "annotations" / "all.xml").findall("meta/task/labels/label")
    facts = [{fact.tag: fact.text for fact in label} for label in labels]
    assert {"name": "van", "type": "any"} in facts and {"name": "person", "type": "skeleton"} in facts
    assert [fact["name"] for fact in facts if fact.get("parent") == "person"][:2] == ["nose", "left_eye"]


def test_cvat_names_differ_without_their_suffix(tmp_path):
    """CVAT gives the shapes of `a.jpg` to `a.png` where both are in a task."""
    writer = find_format("cvat")(Store(str(tmp_path)), ExportRequest(to="cvat"))

    def name(media_id, suffix="", split="train"):
        place = {"media_id": media_id, "frame_index": 0, "media_type": "photo", "uri": "", "path": None, "split": split}
        return writer.name_of(ExportedImage(**place, width=1, height=1), suffix)

    assert [name("a.jpg"), name("a.jpg", ".jpg"), name("a.png"), name("a.png", ".jpg")] == [
        "a.jpg",
        "a.jpg",
        "a.png.png",
        "a.png.jpg",
    ]
    assert name("b/a.png") == "b/a.png" and name("a.png", split="val") == "a.png"


def test_cvat_has_tracks_that_pause(out, tmp_path):
    out.export("cvat", tmp_path, images="none", include="tracks")
    root = ElementTree.parse(tmp_path / "tracks" / f"{FILM}.xml").getroot()
    tracks, size = root.findall("track"), root.find("meta/original_size")
    assert [(side.tag, side.text) for side in size] == [("width", str(WIDTH)), ("height", str(HEIGHT))]
    assert [track.get("label") for track in tracks] == ["object", "person", "person"]
    boxes = {int(box.get("frame")): box for box in tracks[0].findall("box")}
    assert [boxes[frame].get("outside") for frame in range(4)] == ["0", "0", "1", "0"]
    assert box_of(boxes[3]) == BOX and len(list((tmp_path / "tracks").rglob("*.xml"))) == 1


# Label Studio


def test_label_studio_has_regions_in_percent(out, tmp_path):
    summary = out.export("labelstudio", tmp_path, images="none")
    tasks = json.loads((tmp_path / "tasks" / "all.json").read_text())
    assert len(tasks) == 5 and unquote(tasks[0]["data"]["image"]).endswith(PHOTOS[0])
    regions = tasks[0]["predictions"][0]["result"]
    assert len({region["id"] for region in regions}) == len(regions)
    van = next(item["value"] for item in regions if item["value"].get("rectanglelabels") == ["van"])
    assert np.allclose(
        [van["x"], van["y"], van["width"], van["height"]], np.array([1 / 128, 2 / 64, 8 / 128, 10 / 64]) * 100
    )
    parts = [item["value"]["points"] for item in regions if item["value"].get("polygonlabels") == ["dog"]]
    found = np.any([inside(np.array(part) * (WIDTH, HEIGHT) / 100) for part in parts], axis=0)
    assert len(parts) == 2 and np.array_equal(found, filled(ring(64, 128)))
    noses = [item["value"] for item in regions if item["value"].get("keypointlabels") == ["nose"]]
    assert np.allclose([noses[-2]["x"], noses[-2]["y"]], [4 / 128 * 100, 6 / 64 * 100])
    assert any("holes" in note for note in summary.notes)


def test_label_studios_interface_has_a_control_for_each_region(out, tmp_path):
    out.export("labelstudio", tmp_path, images="none")
    view = ElementTree.parse(tmp_path / "config.xml").getroot()
    controls = {
        item.get("name"): {child.get("value") for child in item} for item in view if item.get("toName") == "image"
    }
    assert [int(child.get("model_index")) for child in view.find("KeyPointLabels")] == list(range(18))
    regions = [
        region
        for task in json.loads((tmp_path / "tasks" / "all.json").read_text())
        for region in task["predictions"][0]["result"]
    ]
    for region in regions:
        assert region["to_name"] == "image" and set(region["value"][region["type"]]) <= controls[region["from_name"]]
    assert controls.keys() == {"rectanglelabels", "polygonlabels", "keypointlabels", "choices"}


# MOT


def test_mot_has_the_tracks_of_films(out, tmp_path):
    summary = out.export("mot", tmp_path, images="none")
    folder = tmp_path / "all" / FILM
    rows = np.loadtxt(folder / "gt" / "gt.txt", delimiter=",")
    things, people = rows[rows[:, 7] == 1], rows[rows[:, 7] == 2]
    assert people[:, 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4] and set(people[:, 1]) == {2, 3}
    assert np.allclose(people[0, 2:6], [7, 7, 16, HEIGHT - 6])  # round all 33, one of which lies below the picture
    assert things[:, 0].tolist() == [1, 2, 4] and things[0, 2:6].tolist() == [17, 9, 112, 56]
    info = configparser.ConfigParser()
    info.read(folder / "seqinfo.ini")
    assert dict(info["Sequence"])["seqlength"] == "4" and info["Sequence"]["imwidth"] == str(WIDTH)
    assert any("MOT holds only videos: 2 photos." in note for note in summary.notes)
    assert (summary.images, summary.annotations, summary.tracks) == ({"all": 4}, {"tracks": len(rows)}, 3)
    assert "4 images (all 4), 11 boxes of 3 tracks" in str(summary)


@pytest.mark.parametrize(
    ("to", "photo", "frame"),
    [
        ("coco", "images/all/images/b.png", "images/all/c.mp4/000003.jpg"),
        # a label is named without the suffix, and found by the last folder `images`
        ("yolo", "images/all/%69mages/b.png.png", "images/all/c.mp4/000003.jpg"),
        ("mot", "all/images/b.png", "all/c.mp4/img1/000004.jpg"),
    ],
)
def test_pictures_lie_where_each_format_has_them(tmp_path, to, photo, frame):
    writer = find_format(to)(Store(str(tmp_path)), ExportRequest(to=to))
    own = {"uri": "", "path": None, "width": 8, "height": 8}
    images = [
        ExportedImage(media_id="images/b.png", frame_index=0, media_type="photo", **own),
        ExportedImage(media_id="c.mp4", frame_index=3, media_type="video", **own),
    ]
    assert [f"{writer.folder_of(image)}/{writer.name_of(image)}" for image in images] == [photo, frame]


@pytest.mark.parametrize(
    ("to", "include", "code"),
    [
        ("mot", "boxes", "FK-EXPORT-KIND"),
        ("labelstudio", "tracks", "FK-EXPORT-KIND"),
        ("yolo", "embeddings", "FK-EXPORT-KIND"),
    ],
)
def test_what_a_format_cannot_hold_is_a_sentence(out, tmp_path, to, include, code):
    with fails(code, include, to):
        out.export(to, tmp_path, images="none", include=include)


def test_masks_of_the_factory_are_what_the_tests_compare(out):
    assert np.array_equal(decode(mask(64, 128)["segmentation"]), ring(64, 128)) and filled(ring(64, 128)).sum() > 0
