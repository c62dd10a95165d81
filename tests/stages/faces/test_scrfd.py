"""SCRFD: a detector's distances from cells, against a reference computed cell by cell.

The published file is not used: these detectors have its outputs, computed from the colours of their cells.
"""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from framekiln_stages.nets.faces.scrfd import Scrfd
from tests.support.stages.faces.onnx_factory import mobilefacenet, scrfd

COLOURS = np.random.default_rng(1).integers(0, 256, (9, 7, 3), dtype=np.uint8)


def picture(height, width):
    """Return large patches of colour, on which scaling has little effect."""
    return cv2.resize(COLOURS, (width, height), interpolation=cv2.INTER_NEAREST)


def make(path, side=128, min_score=0.5, most=100):
    return Scrfd(path, side=side, min_score=min_score, max_faces=most, placement=Placement())


def fitted(image, side):
    """Return the image in the corner of a square, and its scale; by other means than the detector's."""
    height, width = image.shape[:2]
    size = (side, height * side // width) if width > height else (width * side // height, side)
    small = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    return cv2.copyMakeBorder(small, 0, side - size[1], 0, side - size[0], cv2.BORDER_CONSTANT), size[0] / width


def overlap(a, b):
    high, wide = (max(0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (1, 0))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return high * wide / (sum(areas) - high * wide)


def worked_out(heads, square, min_score):
    """Return each anchor's score, box and points in px of the square, highest score first, without overlaps."""
    guesses = []
    for stride in (8, 16, 32):
        for y in range(0, square.shape[0] - stride + 1, stride):
            for x in range(0, square.shape[1] - stride + 1, stride):
                colour = (square[y : y + stride, x : x + stride].reshape(-1, 3).mean(0) - 127.5) / 128
                score, box, points = (heads[stride, n][0] @ colour + heads[stride, n][1] for n in (1, 4, 10))
                for guess in range(2):
                    left, top, right, bottom = box[4 * guess :][:4] * stride
                    place = [x - left, y - top, x + right, y + bottom]
                    marks = points[10 * guess :][:10].reshape(5, 2) * stride + [x, y]
                    guesses.append((score[guess], np.array(place), marks))
    kept = []
    for guess in sorted((g for g in guesses if g[0] >= min_score), key=lambda g: -g[0]):
        if all(overlap(guess[1], other[1]) <= 0.4 for other in kept):
            kept.append(guess)
    return kept, guesses


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("size", [(96, 128), (300, 400), (260, 130), (31, 60)])
def test_faces_equal_those_of_each_cell(tmp_path, size, leading):
    heads = scrfd(tmp_path / "net.onnx", leading=leading)
    image = picture(*size)
    square, scale = fitted(image, 128)
    expected, guesses = worked_out(heads, square, 0.5)
    assert 4 < len(expected) < sum(guess[0] >= 0.5 for guess in guesses) < len(guesses) == 672
    found = make(tmp_path / "net.onnx")(image)
    assert np.allclose(found.scores, [guess[0] for guess in expected], atol=1e-4)
    slack = 1.5 / scale  # sides are whole numbers of px, so that x and y differ slightly in scale
    assert np.abs(found.boxes - np.stack([guess[1] for guess in expected]) / scale).max() < slack
    assert np.abs(found.points - np.stack([guess[2] for guess in expected]) / scale).max() < slack


def test_an_image_at_its_own_size_is_not_scaled(tmp_path):
    heads = scrfd(tmp_path / "net.onnx")
    image = picture(100, 130)
    padded = cv2.copyMakeBorder(image, 0, 28, 0, 30, cv2.BORDER_CONSTANT)
    expected, _ = worked_out(heads, padded, 0.5)
    found = make(tmp_path / "net.onnx", side=0)(image)
    assert np.allclose(found.boxes, [guess[1] for guess in expected], atol=1e-3)
    assert np.allclose(found.points, [guess[2] for guess in expected], atol=1e-3)


def test_faces_are_limited_by_score_and_number(tmp_path):
    scrfd(tmp_path / "net.onnx")
    image = picture(128, 128)
    every, sure = (make(tmp_path / "net.onnx", min_score=score)(image) for score in (0.3, 0.7))
    assert len(every.scores) > len(sure.scores) > 3
    assert sure.scores.min() >= 0.7 > every.scores.min() >= 0.3
    few = make(tmp_path / "net.onnx", min_score=0.3, most=3)(image)
    assert (few.boxes == every.boxes[:3]).all() and (np.diff(every.scores) <= 0).all()
    empty = make(tmp_path / "net.onnx", min_score=1e6)(image)
    assert (empty.boxes.shape, empty.points.shape, empty.scores.shape) == ((0, 4), (0, 5, 2), (0,))


def test_the_stage_embeds_detected_faces(tmp_path):
    scrfd(tmp_path / "net.onnx")
    stage = Faces(Faces.Config(detector="scrfd", detect_side=128, max_faces=5))
    assert stage.weights == ("scrfd_10g", "mobilefacenet") and stage.config.min_score == 0.5
    assert Faces.Config(detector="scrfd").detect_side == 640
    stage.setup(
        {"scrfd_10g": tmp_path / "net.onnx", "mobilefacenet": mobilefacenet(tmp_path / "recognizer.onnx")}, Placement()
    )
    image = picture(128, 128)
    (row,) = stage(pa.table({stage.pixels: pack([image])})).to_pylist()
    direct = make(tmp_path / "net.onnx", most=5)(image)
    assert row["face_count"] == 5
    assert [face["score"] for face in row["faces"]] == [pytest.approx(score) for score in direct.scores]
    assert np.allclose(list(row["faces"][0]["box"].values()), (direct.boxes[0] / 128).clip(0, 1), atol=1e-6)


def test_invalid_detectors_are_refused_by_name(tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"no graph at all")
    with pytest.raises(ValueError, match=r"junk\.onnx"):
        make(tmp_path / "junk.onnx")
    scrfd(tmp_path / "net.onnx", outputs=6)
    with pytest.raises(ValueError, match=r"net\.onnx has 6 outputs"):
        make(tmp_path / "net.onnx")
    assert Faces.Config(detector="yunet", detect_side=100).detect_side == 100
