"""Following is right when it equals the reference session, and bounded when a long video holds no more than a short."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import av
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import interpolate

from pipeline.device import prepare
from pipeline.errors import ConfigError
from pipeline.machines import Node
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices, make_plan
from pipeline.stage import Placement
from stages.nets.edgetam import EDGETAM
from stages.nets.masks import MASK, decode, encode
from stages.nets.prompts import Prompt
from stages.nets.sam2 import PREPARATION
from stages.nets.sam2_video import Tracker, built, squared
from stages.objects import OBJECTS, Objects
from tests import sam_video_reference as reference
from tests.material import media

SIDE = reference.SIDE
FRAMES = 18  # more than the memory and the pointers reach: 6 and 15
POINT = Prompt(points=np.array([[0.4, 0.5]], np.float32), labels=np.array([1]))
BOX = Prompt(points=np.array([[0.2, 0.3], [0.7, 0.8]], np.float32), labels=np.array([2, 3]))

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def film() -> tuple[np.ndarray, ...]:
    with av.open(str(media("vos/bedroom.mp4"))) as container:
        frames = [
            one.to_ndarray(format="rgb24") for _, one in zip(range(FRAMES), container.decode(video=0), strict=False)
        ]
    return tuple(frames)


def patch(frame: np.ndarray) -> np.ndarray:
    mask = np.zeros(frame.shape[:2], bool)
    mask[120:330, 200:500] = True
    return mask


@cache
def expected(kind: str, make=reference.model) -> list[tuple[np.ndarray, np.ndarray]]:
    """Logits and scores by transformers' session that holds the whole video and forgets nothing."""
    how = replace(PREPARATION, side=SIDE)
    pixels = prepare(film(), how, Placement(), torch.float32)
    points = torch.from_numpy(np.stack([POINT.points])[None] * SIDE), torch.ones(1, 1, 1, dtype=torch.int32)
    corners = torch.from_numpy(np.stack([BOX.points])[None] * SIDE), torch.tensor([[[2, 3]]], dtype=torch.int32)
    inputs = {
        "point": [(0, "points", points)],
        "box": [(0, "points", corners)],
        "mask": [(0, "mask", squared(patch(film()[0]), SIDE, "cpu"))],
    }
    inputs |= {"both": inputs["point"] + inputs["mask"], "points": inputs["point"] + inputs["box"]}
    asked = inputs[kind]
    with torch.inference_mode():
        return [(a[:, 0].numpy(), b.flatten().numpy()) for a, b in reference.plain(make(), pixels, asked)]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["point", "box", "mask", "both"])
def test_what_is_followed_equals_the_session_that_forgets_nothing(kind):
    tracker = Tracker(reference.model(), Placement())
    for prompt in {"point": [POINT], "box": [BOX], "mask": [patch(film()[0])]}.get(kind, [POINT, patch(film()[0])]):
        tracker.add(prompt)
    for image, (logits, scores) in zip(film(), expected(kind), strict=True):
        found, seen = tracker.look(image)
        np.testing.assert_allclose(found.numpy(), logits, atol=1e-3)
        np.testing.assert_allclose(seen.numpy(), scores, atol=1e-4)
    assert np.ptp(logits) > 1


@pytest.fixture
def timm():
    """Of the extra `edgetam`."""
    pytest.importorskip("timm", reason="EdgeTAM needs timm: pip install 'framemill[edgetam]'")


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["points", "mask"])
def test_edgetam_equals_its_own_session(timm, kind):
    tracker = Tracker(reference.edgetam(), Placement())
    for prompt in {"points": [POINT, BOX], "mask": [patch(film()[0])]}[kind]:
        tracker.add(prompt)
    sizes = []
    for image, (logits, scores) in zip(film(), expected(kind, reference.edgetam), strict=True):
        found, seen = tracker.look(image)
        np.testing.assert_allclose(found.numpy(), logits, atol=1e-3)
        np.testing.assert_allclose(seen.numpy(), scores, atol=1e-4)
        sizes.append(held(tracker))
    assert np.ptp(logits) > 1
    assert sizes[16] == sizes[17], "nothing is added when the window is full"


@pytest.mark.heavy
def test_edgetam_reads_back_what_transformers_saves(timm, tmp_path):
    whole = built(EDGETAM, None)
    whole.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    assert file.stat().st_size == 55_912_824, "the published file's"
    again = built(EDGETAM, file).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.state_dict().items())


def test_without_timm_edgetam_is_refused_at_planning(monkeypatch):
    monkeypatch.setattr("stages.objects.available", lambda: False)
    steps = {"objects": {"use": "stages.objects:Objects", "with": {"model": EDGETAM}}}
    with pytest.raises(ConfigError, match=r"needs timm; install it by: pip install 'framemill\[edgetam\]'") as told:
        make_plan(PipelineFile.model_validate({"steps": steps}), ProfileFile(), Choices(), [Node(name="box", cpus=8)])
    assert "\n" not in str(told.value)


def held(tracker: Tracker) -> int:
    """Bytes of all tensors that a session holds, each storage once."""
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
def test_a_long_video_holds_no_more_than_a_short_one():
    tracker = Tracker(reference.model(), Placement())
    tracker.add(POINT)
    sizes = []
    for i in range(50):
        tracker.look(film()[i % 3])
        sizes.append(held(tracker))
    assert sizes[17] < sizes[0] * 20
    assert len(set(sizes[17:])) == 1, "from then on nothing is added"
    tracker.begin()
    assert held(tracker) == 0 and tracker.objects == 0


@pytest.mark.heavy
def test_sixteen_bits_say_nearly_the_same():
    tracker = Tracker(reference.model(), Placement(precision="bf16"))
    tracker.add(POINT)
    for image, (logits, _) in list(zip(film(), expected("point"), strict=True))[:3]:
        found = tracker.look(image)[0].numpy()
        assert found.dtype == np.float32
        assert ((found > 0) == (logits > 0)).mean() > 0.95


class Film:
    """A file's frames, of which every other is a row."""

    def __init__(self, frames, step: int = 1) -> None:
        self._frames, self._step, self.asked = frames, step, []

    def frames(self, pixels):
        self.asked.append(pixels)
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


def coded(*masks: np.ndarray) -> list[dict]:
    return [
        {"segmentation": code, "area": int(mask.sum())} for code, mask in zip(encode(list(masks)), masks, strict=True)
    ]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("stages.objects.built", lambda *_: reference.model())


def ready(**config) -> Objects:
    stage = Objects(Objects.Config(**config))
    stage.setup({}, Placement())
    return stage


def test_masks_of_the_first_frame_are_followed_the_largest_first(small):
    frames = film()[:4]
    specks = np.zeros(frames[0].shape[:2], bool)
    specks[:60, :90] = True
    batch = rows(frames, masks=[coded(specks, patch(frames[0])), *[coded(specks)] * 3])
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


def test_points_out_of_a_file_start_where_they_say(small, tmp_path):
    path = tmp_path / "points.jsonl"
    lines = [{"media_id": "a.mp4", "x": 0.4, "y": 0.5}, {"media_id": "a.mp4", "frame_index": 4, "x": 0.7, "y": 0.2}]
    path.write_text("\n".join(json.dumps({"frame_index": None, **line}) for line in lines))
    frames = film()[:7]
    batch, source = rows(frames, step=2), Film(frames, step=2)
    table = ready(prompts="points", prompt_file=str(path), size=512)(batch, source)["objects"]
    assert source.asked == ["frame_512"]
    found = list(zip(table["frame_index"].to_pylist(), table["object"].to_pylist(), strict=True))
    assert found == [(0, 0), (2, 0), (4, 0), (4, 1), (6, 0), (6, 1)]
    every = ready(prompts="points", prompt_file=str(path))(rows(frames[::2]), Film(frames[::2]))["objects"]
    logits = torch.from_numpy(expected("point")[0][0])[:, None]
    whole = interpolate(logits, frames[0].shape[:2], mode="bilinear")[0, 0].numpy() > 0
    assert (decode(every["segmentation"][0].as_py()) == whole).mean() > 0.9999


def test_photos_and_videos_without_prompts_have_no_rows(small):
    frames = film()[:2]
    source, stage = Film(frames), ready()
    for batch in (rows(frames, media_type="photo", masks=[coded(patch(frames[0]))] * 2), rows(frames, masks=[[], []])):
        table = stage(batch, source)["objects"]
        assert table.num_rows == 0 and table.schema.equals(OBJECTS)
    assert source.asked == [], "nothing was decoded for it"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": "sam3"}, "no model"),
        ({"prompts": "points"}, "prompt_file must be given"),
        ({"prompt_file": "a.csv"}, "for these only"),
        ({"prompts": "boxes", "prompt_file": "a.txt"}, "must end in"),
        ({"max_objects": 0}, "at least"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config, said):
    with pytest.raises(ValueError, match=said):
        Objects.Config(**config)
