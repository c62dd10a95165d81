"""One stage object called from four threads at once: each call has the results that it has alone.

Networks are small, with random weights where no trained ones are at hand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.faces.stage import Faces
from framekiln_stages.flow.stage import Flow
from framekiln_stages.nets.sam2.image import MODELS
from framekiln_stages.nets.sam2.video import Tracker
from framekiln_stages.pose.stage import Pose
from framekiln_stages.segment.stage import Segment
from framekiln_stages.shared.point_prompts import Prompt
from tests.support.media import clip_factory
from tests.support.media.photos import photo, take
from tests.support.stages import flow_factory, inpaint_factory
from tests.support.stages.faces import faces_factory
from tests.support.stages.pose_factory import model_file
from tests.support.stages.sam import video_reference as video
from tests.support.stages.sam.weights import TOY
from tests.support.stages.threads import assert_calls_are_independent

pytestmark = pytest.mark.usefixtures("one_thread")
PICTURES = [photo("china.jpg")[:300, :400], photo("flower.jpg")[100:420, :300], photo("china.jpg")[60:400, 200:]]


def rows(stage, image, **columns):
    height, width = image.shape[:2]
    given = {
        stage.pixels: pack([np.ascontiguousarray(image)]),
        "height": [height],
        "width": [width],
        "time_s": [None],
    } | columns
    return stage(pa.table(given).select(stage.inputs)).to_pylist()


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", replace(TOY, side=128))


@pytest.mark.parametrize("of", ["frames", "instances"])
def test_categorize(of, monkeypatch):
    clip_factory.use_tiny(monkeypatch)
    stage = clip_factory.Categorize(clip_factory.Categorize.Config(model="clip-vit-b32", of=of, keep_embedding=True))
    stage.setup({}, Placement())
    boxes = [np.zeros(picture.shape[:2], bool) for picture in PICTURES]
    for i, mask in enumerate(boxes):
        mask[20:120, 30 + 9 * i : 150] = True
    masks = [{"masks": [inpaint_factory.values(mask)]} if of == "instances" else {} for mask in boxes]
    assert_calls_are_independent(lambda i: rows(stage, PICTURES[i], **masks[i]), range(3))


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_faces(runtime):
    one = faces_factory.made_album()[0]
    stage = faces_factory.make(runtime=runtime, size=0, paths=faces_factory.made_files())
    assert_calls_are_independent(lambda image: rows(stage, image), [one, one[:400, 40:], PICTURES[0]])


def test_faces_with_random_weights():
    stage = Faces(Faces.Config(size=0))
    stage.setup({}, Placement(channels_last=True))
    assert_calls_are_independent(lambda image: rows(stage, image), PICTURES)


@pytest.mark.parametrize("prompts", ["grid", "boxes"])
def test_segment(toy, prompts):
    loose = {"pred_iou_thresh": 0, "stability_score_thresh": 0, "box_nms_thresh": 1, "points_per_side": 2}
    given = {"prompts": "boxes", "prompt_column": "p"} if prompts == "boxes" else loose
    stage = Segment(Segment.Config(model="toy", size=0, mask_size="low", **given))
    stage.setup({}, Placement())
    box = {"x0": 0.1, "y0": 0.2, "x1": 0.6, "y1": 0.7}
    columns = {"p": [[box, box | {"x0": 0.3}]]} if prompts == "boxes" else {}
    assert_calls_are_independent(lambda image: rows(stage, image, **columns), PICTURES)


@pytest.mark.heavy
def test_inpaint():
    stage = inpaint_factory.network()

    def call(image):
        mask = np.zeros(image.shape[:2], bool)
        mask[100:160, 120:180] = True
        return stage(inpaint_factory.table([np.ascontiguousarray(image)], [inpaint_factory.values(mask)])).to_pylist()

    assert_calls_are_independent(call, PICTURES)


@pytest.mark.parametrize("backend", ["dis", "farneback", pytest.param("raft", marks=pytest.mark.heavy)])
def test_flow(backend):
    stage = Flow(Flow.Config(backend=backend, cache=True))
    stage.setup({}, Placement())
    clips = [
        [flow_factory.window(photo("china.jpg"), x, 40, 130, 170) for x in start] for start in ((40, 44), (90, 97))
    ]
    assert_calls_are_independent(lambda clip: stage(flow_factory.table(clip)).to_pylist(), clips)


@pytest.mark.heavy
def test_objects():
    net = Tracker(video.model(), Placement())
    films = [take("flower.jpg", 2, 270, 480), take("china.jpg", 2, 270, 480)]

    def track(film):
        tracker = net.another()
        tracker.add(Prompt(points=np.array([[0.4, 0.5]], np.float32), labels=np.array([1])))
        return [[part.tolist() for part in tracker.track(image)] for image in film]

    assert_calls_are_independent(track, films)


@pytest.mark.heavy
def test_pose():
    stage = Pose(Pose.Config(model="pose_landmarker_full_bundled", tile=0))
    stage.setup({stage.config.model: model_file(stage.config.model)}, Placement())
    assert_calls_are_independent(lambda image: rows(stage, image), [photo("grace_hopper.jpg"), PICTURES[0]])
