"""Agreement of results in two runs: no drift without a change, and figures for each change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from framekiln_stages.categorize.stage import Categorize
from framekiln_stages.faces.stage import Faces
from framekiln_stages.flow.stage import Flow
from framekiln_stages.identities.stage import Identities
from framekiln_stages.inpaint.stage import Inpaint
from framekiln_stages.lighting.stage import Lighting
from framekiln_stages.objects.stage import OBJECTS, Objects
from framekiln_stages.pose.stage import Pose
from framekiln_stages.segment.stage import Segment
from framekiln_stages.shared.masks import areas_and_boxes, encode
from framekiln_stages.shared.result_agreement import (
    Detections,
    box_iou,
    cosine_similarities,
    match_by_boxes,
    mean_distance,
)

BOXES = arrays.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(4)), elements=st.floats(0, 1, width=32))


def ordered(boxes):
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


@given(BOXES, BOXES)
def test_overlaps_are_symmetric_shares_and_one_for_the_same(a, b):
    a, b = ordered(a), ordered(b)
    found = box_iou(a, b)
    assert ((found >= 0) & (found <= 1 + 1e-9)).all()
    assert np.allclose(found, box_iou(b, a).T)
    assert np.allclose(np.diag(box_iou(a, a)), 1)


def test_overlaps_of_known_boxes():
    a, b = np.array([[0, 0, 0.4, 0.2]]), np.array([[0.2, 0, 0.6, 0.2], [0.5, 0.5, 1, 1]])
    assert box_iou(a, b) == pytest.approx(np.array([[1 / 3, 0]]))


def face(x, vector):
    box = {"x0": x, "y0": 0.2, "x1": x + 0.1, "y1": 0.4}
    return {"box": box, "score": 0.9, "quality": 0.5, "yaw": 0.0, "pitch": 0.0, "embedding": vector}


def faces(*rows):
    stage = Faces()
    dims = stage.face.field("embedding").type.list_size

    def filled(one):
        return one | {
            "embedding": np.resize(one["embedding"], dims).astype(np.float16),
            "landmarks": [{"x": 0, "y": 0}] * 5,
        }

    lists = [None if row is None else [filled(one) for one in row] for row in rows]
    return pa.table({"faces": pa.array(lists, pa.list_(stage.face)), "face_count": [len(row or ()) for row in rows]})


def test_faces_are_matched_by_place_in_any_order():
    a = faces([face(0.1, [1, 0]), face(0.6, [0, 1])], [], None, [face(0.3, [1, 1])])
    b = faces([face(0.61, [0, 1]), face(0.1, [1, 0])], [], None, [face(0.7, [1, 1])])
    figures = Faces().agreement(a, b)
    assert figures["faces_found"] == pytest.approx(2 * 2 / 6)  # two of three on either side have a match
    assert figures["embedding_cosine_min"] == pytest.approx(1, abs=1e-3)
    assert figures["drift"] == pytest.approx(1 / 3, abs=1e-3)
    assert Faces().agreement(a, a)["drift"] == pytest.approx(0, abs=1e-6)
    turned = Faces().agreement(faces([face(0.1, [1, 0])]), faces([face(0.1, [0, 1])]))
    assert turned["embedding_cosine_mean"] == pytest.approx(0) and turned["drift"] == pytest.approx(1)


def test_embeddings_of_two_lengths_have_a_cosine_of_zero():
    assert cosine_similarities(np.ones((3, 4)), np.ones((3, 8))).tolist() == [0, 0, 0]


def squares(*sides):
    masks = []
    for side in sides:
        mask = np.zeros((100, 100), bool)
        mask[10 : 10 + side, 10 : 10 + side] = True
        masks.append(mask)
    codes = encode(masks)
    boxes = areas_and_boxes(codes)[1] / 100
    return [
        {"segmentation": code, "box": dict(zip(("x0", "y0", "x1", "y1"), box.tolist(), strict=True))}
        for code, box in zip(codes, boxes, strict=True)
    ]


def test_overlap_of_masks_and_objects():
    kind = Segment().outputs.field("masks").type
    a, b = (pa.table({"masks": pa.array([squares(side), []], kind)}) for side in (40, 36))
    figures = Segment().agreement(a, b)
    assert (figures["masks_found"], figures["mask_iou"]) == (1, pytest.approx(36**2 / 40**2))
    assert figures["drift"] == pytest.approx(1 - 36**2 / 40**2)
    rows = [
        pa.Table.from_pylist(
            [{"media_id": "v", "frame_index": 0, "object": 0, **one} for one in squares(side)], schema=OBJECTS
        )
        for side in (40, 36)
    ]
    assert Objects().agreement(*rows)["mask_iou"] == pytest.approx(36**2 / 40**2)
    assert Objects().agreement(rows[0], rows[0])["drift"] == 0


def test_masks_of_two_sizes_are_matched_by_boxes():
    kind = Segment().outputs.field("masks").type
    large = squares(40)
    small = [large[0] | {"segmentation": encode([np.ones((50, 50), bool)])[0]}]
    figures = Segment().agreement(*(pa.table({"masks": pa.array([one], kind)}) for one in (large, small)))
    assert figures["mask_iou"] == pytest.approx(1)


def person(x, shift=0.0):
    landmarks = [{"x": x + shift, "y": 0.5, "z": 0.0, "visibility": 1.0, "presence": 1.0}] * 33
    return {"score": 1.0, "box": {"x0": x, "y0": 0.2, "x1": x + 0.3, "y1": 0.6}, "landmarks": landmarks}


def test_distance_of_landmarks_is_in_diagonals_of_the_box():
    stage = Pose()

    def poses(*people):
        return pa.table({"poses": pa.array([people, []], stage.outputs.field("poses").type)})

    figures = stage.agreement(poses(person(0.1)), poses(person(0.1, 0.05)))
    assert figures["pose_distance"] == pytest.approx(0.05 / 0.5, rel=1e-5)
    assert figures["drift"] == pytest.approx(0.1, rel=1e-5)
    assert stage.agreement(poses(person(0.1)), poses())["drift"] == 1
    assert stage.agreement(poses(), poses())["drift"] == 0


def test_flow_is_compared_by_lengths_directions_on_a_circle():
    def flow(lengths, turned):
        return pa.table({"motion_mean": lengths, "motion_direction": turned})

    a = flow([1.0, 3.0, None], [359.0, None, None])
    b = flow([1.2, 2.8, None], [1.0, None, None])
    figures = Flow().agreement(a, b)
    assert figures["magnitude_difference"] == pytest.approx(0.2 / 2)
    assert figures["direction_difference"] == pytest.approx(2)
    assert Flow().agreement(a, a)["drift"] == 0
    assert Flow().agreement(a, flow([None, 3.0, None], [None] * 3))["drift"] == pytest.approx(1 / 3)


def test_lighting_and_categories():
    outputs = Lighting().outputs
    rows = [{item.name: 1.0 for item in outputs} | {"lighting_key": "mid-key"} for _ in range(4)]
    a, b = (pa.Table.from_pylist(part, schema=outputs) for part in (rows, [rows[0] | {"exposure": 2.17}, *rows[1:]]))
    figures = Lighting().agreement(a, b)
    assert figures["exposure_difference"] == pytest.approx(1.17 / 4, rel=1e-5)
    assert figures["drift"] == pytest.approx(0.1 / 4, rel=1e-5)
    a, b = (pa.table({"category": names, "category_probability": [0.9, 0.8]}) for names in (["x", "y"], ["x", "z"]))
    assert Categorize().agreement(a, b)["drift"] == 0.5
    vectors = [pa.array([one, None], pa.list_(pa.float16(), 2)) for one in ([np.float16(1), np.float16(0)],) * 2]
    figures = Categorize().agreement(
        *(x.append_column("clip_embedding", v) for x, v in zip((a, b), vectors, strict=True))
    )
    assert figures["embedding_cosine_min"] == 1


def test_instances_are_matched_without_empty_ones():
    stage = Categorize(Categorize.Config(of="instances"))
    kind = stage.outputs.field("instances").type
    box = {"x0": 0.1, "y0": 0.1, "x1": 0.5, "y1": 0.5}
    a, b = (pa.table({"instances": pa.array([[{"category": x, "box": box}, None]], kind)}) for x in ("cat", "dog"))
    assert stage.agreement(a, a) == {"instances_found": 1, "category_agreement": 1, "drift": 0}
    assert stage.agreement(a, b)["drift"] == 1


def test_identities_are_groups_with_any_numbers():
    a, b = (pa.table({"identity": pa.array(one, pa.int32())}) for one in ([0, 0, 1, 1, None], [7, 7, 3, 3, None]))
    assert Identities().agreement(a, b, "identities") == {"adjusted_rand": 1, "drift": 0}
    split = pa.table({"identity": pa.array([0, 1, 2, 3, None], pa.int32())})
    assert Identities().agreement(a, split, "identities")["drift"] == 1


def test_painted_shares():
    a, b = (pa.table({"inpainted_share": pa.array(one, pa.float32())}) for one in ([0.5, None], [0.25, None]))
    assert Inpaint().agreement(a, b)["drift"] == pytest.approx(0.25)
    assert Inpaint().agreement(a, a)["drift"] == 0


def test_empty_results_are_equal():
    kind = Faces().outputs.field("faces").type
    none = Detections.from_column(pa.chunked_array([pa.array([[], None], kind)]))
    assert match_by_boxes(none, none).share == 1
    assert mean_distance(np.array([np.nan]), np.array([1.0])) == 0


STAGES = [
    Lighting(),
    Flow(),
    Pose(),
    Categorize(),
    Categorize(Categorize.Config(of="instances")),
    Categorize(Categorize.Config(keep_embedding=True)),
    Faces(),
    Segment(),
    Inpaint(),
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: type(stage).__name__)
@pytest.mark.parametrize("rows", [0, 3])
def test_rows_that_failed_in_both_runs_agree(stage, rows):
    nothing = pa.table([pa.nulls(rows, item.type) for item in stage.outputs], schema=stage.outputs)
    figures = stage.agreement(nothing, nothing)
    assert figures["drift"] == 0
    assert all(np.isfinite(value) for value in figures.values())


def test_no_rows_of_the_second_pass_agree():
    assert Objects().agreement(OBJECTS.empty_table(), OBJECTS.empty_table())["drift"] == 0
    nobody = Identities().tables["identities"].schema.empty_table()
    assert Identities().agreement(nobody, nobody, "identities")["drift"] == 0
