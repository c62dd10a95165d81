"""Objects: the same masks as a session without forgetting, and bounded memory in a long video."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import interpolate

from framekiln.contract.errors import ConfigError
from framekiln.contract.placement import Placement
from framekiln.device import prepare
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln_stages.nets.sam2.image import PREPARATION
from framekiln_stages.nets.sam2.video import EDGETAM, Tracker, load_video_model, resize_mask
from framekiln_stages.objects.stage import OBJECTS, Objects
from framekiln_stages.shared.masks import MASK, decode
from framekiln_stages.shared.point_prompts import Prompt
from tests.support.media.photos import take
from tests.support.stages.inpaint_factory import values
from tests.support.stages.sam import video_reference as reference

SIDE = reference.SIDE
FRAMES = 18  # more than memories and pointers: 6 and 15
POINT = Prompt(points=np.array([[0.4, 0.5]], np.float32), labels=np.array([1]))
BOX = Prompt(points=np.array([[0.2, 0.3], [0.7, 0.8]], np.float32), labels=np.array([2, 3]))

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def film() -> tuple[np.ndarray, ...]:
    return take("flower.jpg", FRAMES, 540, 960)


def patch(frame: np.ndarray) -> np.ndarray:
    mask = np.zeros(frame.shape[:2], bool)
    mask[120:330, 200:500] = True
    return mask


@cache
def expected(kind: str, make=reference.model, frames: int = FRAMES) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return logits and scores by transformers' session over the first frames, without forgetting."""
    how = replace(PREPARATION, side=SIDE)
    pixels = prepare(film()[:frames], how, Placement(), torch.float32)
    points = torch.from_numpy(np.stack([POINT.points])[None] * SIDE), torch.ones(1, 1, 1, dtype=torch.int32)
    corners = torch.from_numpy(np.stack([BOX.points])[None] * SIDE), torch.tensor([[[2, 3]]], dtype=torch.int32)
    inputs = {
        "point": [(0, "points", points)],
        "box": [(0, "points", corners)],
        "mask": [(0, "mask", resize_mask(patch(film()[0]), SIDE, "cpu"))],
    }
    inputs |= {"both": inputs["point"] + inputs["mask"], "points": inputs["point"] + inputs["box"]}
    prompts = inputs[kind]
    with torch.inference_mode():
        return [(a[:, 0].numpy(), b.flatten().numpy()) for a, b in reference.plain(make(), pixels, prompts)]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["box", "both"])
def test_masks_equal_the_session_without_forgetting(kind):
    tracker = Tracker(reference.model(), Placement())
    for prompt in {"box": [BOX], "both": [POINT, patch(film()[0])]}[kind]:
        tracker.add(prompt)
    for image, (logits, scores) in zip(film(), expected(kind), strict=True):
        found, seen = tracker.track(image)
        np.testing.assert_allclose(found.numpy(), logits, atol=1e-3)
        np.testing.assert_allclose(seen.numpy(), scores, atol=1e-4)
    assert np.ptp(logits) > 1


@pytest.fixture
def timm():
    """Require the extra `edgetam`."""
    pytest.importorskip("timm", reason="EdgeTAM needs timm: pip install 'framekiln[edgetam]'")


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["points", "mask"])
def test_edgetam_equals_its_own_session(timm, kind):
    tracker = Tracker(reference.edgetam(), Placement())
    for prompt in {"points": [POINT, BOX], "mask": [patch(film()[0])]}[kind]:
        tracker.add(prompt)
    sizes = []
    for image, (logits, scores) in zip(film(), expected(kind, reference.edgetam), strict=True):
        found, seen = tracker.track(image)
        np.testing.assert_allclose(found.numpy(), logits, atol=1e-3)
        np.testing.assert_allclose(seen.numpy(), scores, atol=1e-4)
        sizes.append(held(tracker))
    assert np.ptp(logits) > 1
    assert sizes[16] == sizes[17], "nothing is added when the window is full"


@pytest.mark.heavy
def test_edgetam_loads_a_file_saved_by_transformers(timm, tmp_path, monkeypatch):
    whole = load_video_model(EDGETAM, None)
    monkeypatch.setattr(type(whole.config), "save_pretrained", lambda *_, **__: None)  # transformers 5.17 asks the Hub
    whole.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    assert file.stat().st_size == 55_912_824, "the published file's"
    again = load_video_model(EDGETAM, file).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.state_dict().items())


def test_without_timm_edgetam_is_refused_at_planning(monkeypatch):
    monkeypatch.setattr("framekiln_stages.objects.stage.is_timm_installed", lambda: False)
    steps = {"objects": {"use": "framekiln_stages.objects:Objects", "with": {"model": EDGETAM}}}
    with pytest.raises(ConfigError, match=r"timm.*framekiln\[edgetam\]") as error:
        make_plan(
            PipelineFile.model_validate({"steps": steps}), ProfileFile(), PlanOptions(), [Node(name="box", cpus=8)]
        )
    assert "\n" not in str(error.value)


def held(tracker: Tracker) -> int:
    """Return the bytes of all tensors in a session, each storage once."""
    found, todo, seen = {}, [tracker._session], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple):
            todo += one
        elif hasattr(one, "__dict__"):
            todo += vars(one).values()
    return sum(found.values())


@pytest.mark.heavy
def test_a_long_video_takes_no_more_memory_than_a_short_one():
    tracker = Tracker(reference.model(), Placement())
    tracker.add(POINT)
    sizes = []
    for i in range(24):
        tracker.track(film()[i % 3])
        sizes.append(held(tracker))
    assert sizes[17] < sizes[0] * 20
    assert len(set(sizes[17:])) == 1, "from then on nothing is added"
    tracker.reset()
    assert held(tracker) == 0 and tracker.objects == 0


@pytest.mark.heavy
def test_sixteen_bits_are_close():
    tracker = Tracker(reference.model(), Placement(precision="bf16"))
    tracker.add(POINT)
    for image, (logits, _) in zip(film()[:3], expected("point", frames=3), strict=True):
        found = tracker.track(image)[0].numpy()
        assert found.dtype == np.float32
        assert ((found > 0) == (logits > 0)).mean() > 0.95


class Film:
    """The frames of a file; every other one is a row."""

    def __init__(self, frames, step: int = 1) -> None:
        self._frames, self._step, self.read = frames, step, []

    def frames(self, pixels):
        self.read.append(pixels)
        yield from list(enumerate(self._frames))[:: self._step]


def rows(frames, step: int = 1, media_type: str = "video", masks=None) -> pa.Table:
    numbers = list(range(len(frames)))[::step]
    height, width = frames[0].shape[:2]
    table = pa.table(
        {
            "media_id": pa.array(["a.mp4"] * len(numbers)),
            "frame_index": pa.array(numbers, pa.int32()),
            "media_type": pa.array([media_type] * len(numbers)),
            "height": pa.array([height] * len(numbers), pa.int32()),
            "width": pa.array([width] * len(numbers), pa.int32()),
        }
    )
    return table if masks is None else table.append_column("masks", pa.array(masks, pa.list_(MASK)))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("framekiln_stages.objects.stage.load_video_model", lambda *_: reference.model())


def ready(**config) -> Objects:
    stage = Objects(Objects.Config(**config))
    stage.setup({}, Placement())
    return stage


def test_masks_of_the_first_frame_are_tracked_the_largest_first(small):
    frames = film()[:4]
    specks = np.zeros(frames[0].shape[:2], bool)
    specks[:60, :90] = True
    batch = rows(frames, masks=[values(specks, patch(frames[0])), *[values(specks)] * 3])
    stage = ready(max_objects=2)
    table = stage(batch, Film(frames))["objects"]
    assert table.schema.equals(OBJECTS) and table["object"].to_pylist() == [0, 1] * 4
    first, second = table.slice(0, 2).to_pylist()
    for row, mask in ((first, patch(frames[0])), (second, specks)):
        both = decode(row["segmentation"])
        assert (both & mask).sum() / (both | mask).sum() > 0.9
        assert row["area"] == both.sum() and row["score"] > 0.99
        ys, xs = np.nonzero(both)
        height, width = both.shape
        want = [xs.min() / width, ys.min() / height, (xs.max() + 1) / width, (ys.max() + 1) / height]
        assert list(row["box"].values()) == pytest.approx(want, abs=1e-6)
    shuffled = batch.take(pa.array([2, 0, 3, 1]))
    assert stage(shuffled, Film(frames))["objects"].equals(table)
    assert ready(max_objects=1)(batch, Film(frames))["objects"]["object"].to_pylist() == [0] * 4


@pytest.mark.heavy
def test_points_from_a_file_start_in_their_frame(small, tmp_path):
    path = tmp_path / "points.jsonl"
    lines = [{"media_id": "a.mp4", "x": 0.4, "y": 0.5}, {"media_id": "a.mp4", "frame_index": 4, "x": 0.7, "y": 0.2}]
    path.write_text("\n".join(json.dumps({"frame_index": None, **line}) for line in lines))
    frames = film()[:7]
    batch, source = rows(frames, step=2), Film(frames, step=2)
    stage = ready(prompts="points", prompt_file=str(path), size=512)
    table = stage(batch, source)["objects"]
    assert source.read == ["frame_512"]
    stage.chunk_sizes["frames"] = 3  # encoded at once
    alike = stage.agreement(table, stage(batch, Film(frames, step=2))["objects"], "objects")
    assert alike is not None and alike["mask_iou_min"] > 0.99
    found = list(zip(table["frame_index"].to_pylist(), table["object"].to_pylist(), strict=True))
    assert found == [(0, 0), (2, 0), (4, 0), (4, 1), (6, 0), (6, 1)]
    every = ready(prompts="points", prompt_file=str(path))(rows(frames[::2]), Film(frames[::2]))["objects"]
    logits = torch.from_numpy(expected("point", frames=1)[0][0])[:, None]
    whole = interpolate(logits, frames[0].shape[:2], mode="bilinear")[0, 0].numpy() > 0
    assert (decode(every["segmentation"][0].as_py()) == whole).mean() > 0.9999


def test_photos_and_videos_without_prompts_have_no_rows(small):
    frames = film()[:2]
    source, stage = Film(frames), ready()
    for batch in (rows(frames, media_type="photo", masks=[values(patch(frames[0]))] * 2), rows(frames, masks=[[], []])):
        table = stage(batch, source)["objects"]
        assert table.num_rows == 0 and table.schema.equals(OBJECTS)
    assert source.read == [], "no frame was decoded"
