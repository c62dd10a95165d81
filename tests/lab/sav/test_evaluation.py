"""SA-V: J and F equal those of its evaluator, prompts come from the truth, and runs count the frames they track."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from framekiln.contract.errors import InputError, MediaError
from framekiln.device import Meter
from framekiln.lab.sav.layout import EVERY, MISSING, NAME, annotated_videos, appears, made_disc, write_made_video
from framekiln.lab.sav.masks import ObjectScores, evaluated, points_of
from framekiln.lab.sav.measure import ObjectBench

FRAMES, SIZE = 330, (45, 80)


def test_frames_that_the_evaluator_leaves_out():
    """By hand: the first and the last annotated frame, and frames before anything is seen; later empty ones count."""
    none, full = np.zeros((10, 10), bool), np.ones((10, 10), bool)
    half = full.copy()
    half[:, 5:] = False
    assert list(evaluated(["a", "b", "c", "d"])) == ["b", "c"]
    scores = ObjectScores()
    for mask, truth in ((none, none), (half, full), (none, none), (full, none)):
        scores.add(mask, truth)
    assert scores.j == [0.5, 1.0, 0.0]
    # a half has one outline, a line of 10 px; the whole image has none
    assert scores.f == [0.0, 1.0, 1.0]
    assert scores.means == (0.5, pytest.approx(2 / 3))


def test_an_object_that_no_evaluated_frame_shows_has_no_score():
    scores = ObjectScores()
    scores.add(np.ones((4, 4), bool), np.zeros((4, 4), bool))
    assert scores.j == [0.0] and scores.means is None


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """330 frames; object 001 from frame 112 on, no PNG of object 000 in frame 8."""
    (video,) = annotated_videos(write_made_video(tmp_path_factory.mktemp("sav"), frames=FRAMES, size=SIZE))
    return video


def test_the_made_video_is_read(made):
    every = [f"{frame:05}" for frame in range(0, FRAMES, EVERY)]
    assert (made.name, made.objects, len(made.frames)) == (NAME, ["000", "001"], FRAMES)
    assert made.annotated("000") == [stem for stem in every if stem != f"{MISSING:05}"]
    assert made.annotated("001") == [stem for stem in every if int(stem) >= 112]
    assert made.first_visible("001") == "00112" and appears(1, FRAMES) == 112
    np.testing.assert_array_equal(made.truth("001", "00200"), made_disc(1, 200, SIZE))


class Shifted:
    """A tracker that knows the truth and returns it from frame `wrong` on without its left half."""

    def __init__(self, number: int, wrong: int) -> None:
        self.number, self.wrong, self.prompts = number, wrong, []

    def reset(self):
        self.frame, self.prompts = appears(self.number, FRAMES), []

    def add(self, prompt):
        self.prompts.append(prompt)

    def track(self, image):
        mask = made_disc(self.number, self.frame, SIZE)
        if self.frame >= self.wrong:
            mask[:, : int(np.flatnonzero(mask.any(axis=0)).mean())] = False
        self.frame += 1
        return torch.from_numpy(mask[None].astype(np.float32)) - 0.5, None


@pytest.mark.parametrize(("number", "counted", "right"), [(0, 80, 49), (1, 53, 22)])
def test_a_run_is_scored_on_the_frames_of_the_evaluator(made, number, counted, right):
    """Object 000: 83 annotated frames less the missing one, the first and the last; object 001: 55 less two.

    Right are those from frame 4 (000: without frame 8) or 116 to 200; the others show the right half of a disc.
    """
    ticks = iter(range(10_000))
    tracker = Shifted(number, wrong=204)
    bench = ObjectBench(tracker=tracker, device="cpu", meter=Meter(), clock=lambda: next(ticks) / 100)
    seen = []
    run = bench.run(made, f"{number:03}", lambda stem, *_: seen.append(int(stem)))
    first = 112 if number else 0
    assert seen == [frame for frame in range(first + EVERY, 328, EVERY) if (number, frame) != (0, MISSING)]
    halves = []
    for frame in (frame for frame in seen if frame >= 204):
        truth = made_disc(number, frame, SIZE)
        left = int(np.flatnonzero(truth.any(axis=0)).mean())
        halves.append(truth[:, left:].sum() / truth.sum())
    assert (run.scored_frames, len(seen) - len(halves)) == (counted, right)
    assert run.j == pytest.approx((right + sum(halves)) / counted)
    assert 0.4 < run.f < 1 and run.peak_gb is None
    assert len(tracker.prompts) == 1 and run.first_frame == f"{first:05}"
    assert [run.first_ms, *run.latency_ms.values] == pytest.approx([10] * (FRAMES - first))
    assert run.frames == FRAMES - first and run.fps == pytest.approx(100)


def test_prompts_of_a_mask():
    """An L of two bars, 3 and 5 px wide: the middle of the wider one is deepest."""
    mask = np.zeros((40, 80), bool)
    mask[2:30, 10:13] = True
    mask[25:30, 10:50] = True
    (point,), labels = points_of(mask, "points")
    row, column = int(point[1] * 40), int(point[0] * 80)
    assert labels.tolist() == [1] and mask[row, column] and row == 27
    corners, labels = points_of(mask, "box")
    assert labels.tolist() == [2, 3]
    np.testing.assert_allclose(corners * (80, 40), [(10, 2), (50, 30)], rtol=1e-6)


def test_the_layout_of_davis_has_objects_by_their_labels(tmp_path):
    images, notes = tmp_path / "JPEGImages/480p/walk", tmp_path / "Annotations/480p/walk"
    notes.mkdir(parents=True)
    images.mkdir(parents=True)
    for frame in range(3):
        Image.new("RGB", (20, 10)).save(images / f"{frame:05}.jpg")
        labels = np.zeros((10, 20), np.uint8)
        labels[:, 15:] = 255
        labels[2:4, 3:6] = 1
        if frame:
            labels[6:9, 3:6] = 2
        picture = Image.fromarray(labels, mode="P")
        picture.putpalette([0] * 768)  # every label black: colours must not be read
        picture.save(notes / f"{frame:05}.png")
    (video,) = annotated_videos(tmp_path)
    assert video.objects == ["1", "2"] and video.first_visible("2") == "00001"
    assert video.annotated("2") == ["00000", "00001", "00002"]
    assert video.truth("2", "00002").sum() == 9


def test_a_folder_of_another_layout_is_refused(tmp_path):
    (tmp_path / "JPEGImages_24fps/a").mkdir(parents=True)
    (tmp_path / "JPEGImages_24fps/a/00000.jpg").touch()
    with pytest.raises(InputError) as error:
        annotated_videos(tmp_path)
    assert error.value.code == "FK-SAV-LAYOUT"


def test_a_damaged_mask_and_a_damaged_frame_are_media_errors(tmp_path):
    (video,) = annotated_videos(write_made_video(tmp_path, frames=13, size=SIZE))
    path = video.masks["000"]["00004"]
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(MediaError):
        video.truth("000", "00004")
    video.frames[3].write_bytes(b"\xff\xd8\xff\xe0 no image")
    with pytest.raises(MediaError):
        list(video.images())
