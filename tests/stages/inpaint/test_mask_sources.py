"""Inpainting: regions by size or category, of faces, of any column of masks, or from files."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.inpaint.stage import Inpaint
from framekiln_stages.shared.masks import BOX, MASK, SEGMENTATION, encode
from tests.support.stages.inpaint_factory import BARE, MASKS, make, opened, rectangle, values

INSTANCE = pa.struct([("category", pa.string()), ("probability", pa.float32())])


def changed(stage, **columns):
    """Return the painted pixels of a grey frame of 60x80."""
    frame = np.full((60, 80, 3), 128, np.uint8)
    (row,) = stage(pa.table({"frame": pack([frame]), **columns})).to_pylist()
    return np.zeros((60, 80), bool) if row["inpainted"] is None else (opened(row["inpainted"]) != frame).any(axis=2)


def column(value, dtype):
    return pa.array([value], dtype)


def test_all_masks_or_the_largest():
    masks = column(values(*MASKS), pa.list_(MASK))
    assert (changed(make(**BARE), masks=masks) == MASKS[0] | MASKS[1] | MASKS[2]).all()
    assert (changed(make(region="largest", **BARE), masks=masks) == MASKS[1]).all()


def test_the_largest_is_that_of_the_largest_share():
    coarse = rectangle(30, 40, 0, 20, 0, 30)  # half the frame, in fewer pixels of its own than the other
    masks = column(values(rectangle(60, 80, 0, 30, 0, 40), coarse), pa.list_(MASK))
    assert (changed(make(region="largest", **BARE), masks=masks) == rectangle(60, 80, 0, 40, 0, 60)).all()


def test_masks_by_category():
    masks = column(values(*MASKS), pa.list_(MASK))
    about = [("car", 0.9), ("person", 0.6), ("car", 0.4)]
    instances = column([dict(zip(INSTANCE.names, one, strict=True)) for one in about], pa.list_(INSTANCE))
    for categories, least, expected in (
        (("car",), 0.5, MASKS[0]),
        (("car",), 0.3, MASKS[0] | MASKS[2]),
        (("person", "car"), 0.5, MASKS[0] | MASKS[1]),
        (("dog",), 0.0, MASKS[0] & MASKS[1]),
    ):
        stage = make(region="category", categories=categories, min_probability=least, **BARE)
        assert stage.inputs == ("frame", "masks", "instances")
        assert (changed(stage, masks=masks, instances=instances) == expected).all()
    with pytest.raises(ValueError, match="shorter|longer"):
        changed(stage, masks=masks, instances=column([], pa.list_(INSTANCE)))


def test_faces_with_a_margin():
    face = {"box": dict(zip(("x0", "y0", "x1", "y1"), (0.25, 0.5, 0.5, 0.75), strict=True)), "score": 0.9}
    faces = column([face], pa.list_(pa.struct([("box", BOX), ("score", pa.float32())])))
    assert (
        changed(make(region="faces", face_margin=0, **BARE), faces=faces) == rectangle(60, 80, 30, 45, 20, 40)
    ).all()
    stage = make(region="faces", face_margin=1, **BARE)
    assert (changed(stage, faces=faces) == rectangle(60, 80, 15, 60, 0, 60)).all()
    assert not changed(stage, faces=column([], faces.type)).any()
    assert not changed(stage, faces=column(None, faces.type)).any()


def test_any_column_of_masks():
    stage = make(region="column", column="tracked", **BARE)
    assert stage.inputs == ("frame", "tracked")
    (one,) = encode(MASKS[1:2])
    assert (changed(stage, tracked=column(one, SEGMENTATION)) == MASKS[1]).all()
    assert (changed(stage, tracked=column(encode(MASKS), pa.list_(SEGMENTATION))) == np.logical_or.reduce(MASKS)).all()
    assert (changed(stage, tracked=column(values(*MASKS[:2]), pa.list_(MASK))) == MASKS[0] | MASKS[1]).all()
    assert not changed(stage, tracked=column(None, SEGMENTATION)).any()


def test_a_mask_of_another_size_is_scaled():
    stage = make(region="column", column="coarse", **BARE)
    (small,) = encode([rectangle(6, 8, 1, 3, 2, 8)])
    assert (changed(stage, coarse=column(small, SEGMENTATION)) == rectangle(60, 80, 10, 30, 20, 80)).all()


def test_masks_from_files(tmp_path):
    def write(name, mask, alpha=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = mask.astype(np.uint8) * 255
        cv2.imwrite(str(path), image if alpha is None else np.dstack([image] * 3 + [alpha.astype(np.uint8) * 255]))

    write("a/one.png", MASKS[0])
    write("a/two_mask.png", MASKS[1], np.ones((60, 80)))
    write("clear.png", MASKS[1], MASKS[0])
    write("clip.mp4/00000007.png", MASKS[2])
    (tmp_path / "bad.png").write_bytes(b"no image")
    stage = make(region="files", mask_folder=str(tmp_path), **BARE)
    assert stage.files == (str(tmp_path),) and Inpaint().files == ()
    nothing = np.zeros((60, 80), bool)
    for name, index, expected in (
        ("a/one.jpg", 0, MASKS[0]),
        ("a/two.jpeg", 0, MASKS[1]),
        ("clear.bmp", 0, nothing),
        ("clip.mp4", 7, MASKS[2]),
        ("clip.mp4", 8, nothing),
        ("none.jpg", 0, nothing),
    ):
        about = {"media_id": pa.array([name]), "frame_index": pa.array([index], pa.int32())}
        assert (changed(stage, **about) == expected).all(), name
    for name, file in (("bad.jpg", r"bad\.png"), ("../x.jpg", r"\.\./x\.jpg")):
        with pytest.raises(ValueError, match=file):
            changed(stage, media_id=pa.array([name]), frame_index=pa.array([0], pa.int32()))
    with pytest.raises(ValueError, match="mask_folder"):
        Inpaint(Inpaint.Config(region="files", mask_folder=str(tmp_path / "no"))).setup({}, Placement())
