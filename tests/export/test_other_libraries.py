"""Exports opened by libraries that the development environment lacks: each test skips without its own."""

from __future__ import annotations

import json

import pytest

from tests.support.runs.export_factory import FILM


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def test_labelformat_reads_all_boxes_of_coco(out, tmp_path):
    library("labelformat")
    from labelformat.formats import COCOObjectDetectionInput
    from labelformat.model.bounding_box import BoundingBoxFormat

    out.export("coco", tmp_path / "to", images="none")
    path = tmp_path / "to" / "annotations" / "instances_all.json"
    items = [item for label in COCOObjectDetectionInput(input_file=path).get_labels() for item in label.objects]
    boxes = [item.box.to_format(BoundingBoxFormat.XYWH) for item in items]
    assert sorted(boxes) == sorted(item["bbox"] for item in json.loads(path.read_text())["annotations"])


def test_datumaro_reads_the_tracks_of_cvat(out, tmp_path):
    datumaro = library("datumaro")
    out.export("cvat", tmp_path / "to", images="none", include="tracks")
    (tmp_path / "film").mkdir()
    (tmp_path / "to" / "tracks" / f"{FILM}.xml").rename(tmp_path / "film" / "default.xml")
    boxes = [box for frame in datumaro.Dataset.import_from(str(tmp_path / "film"), "cvat") for box in frame.annotations]
    assert sorted(box.attributes["track_id"] for box in boxes) == [0] * 4 + [1] * 4 + [2] * 4
    assert [box.get_bbox() for box in boxes if box.attributes["track_id"] == 0] == [[16, 8, 112, 56]] * 4


def test_label_studio_takes_predictions_and_converts_them(out, tmp_path):
    library("label_studio_sdk")
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    out.export("labelstudio", tmp_path / "to", images="none")
    config, tasks = tmp_path / "to" / "config.xml", json.loads((tmp_path / "to" / "tasks" / "all.json").read_text())
    interface = LabelInterface(config.read_text())
    assert all(interface.validate_prediction(one) for task in tasks for one in task["predictions"])
    done = [task | {"id": n, "annotations": [{"id": n, **task["predictions"][0]}]} for n, task in enumerate(tasks)]
    (tmp_path / "done.json").write_text(json.dumps(done))
    converter = Converter(config=str(config), project_dir=str(tmp_path))
    converter.convert_to_coco(str(tmp_path / "done.json"), str(tmp_path / "coco"), is_dir=False)
    assert len(json.loads((tmp_path / "coco" / "result.json").read_text())["images"]) == len(tasks)
