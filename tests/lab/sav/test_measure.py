"""Models on the objects of a made video: rows by object and run, damage and full memory as rows, and summaries."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from framekiln.contract.errors import ConfigError
from framekiln.contract.placement import Placement
from framekiln.lab.output.film_rows import VideoRow
from framekiln.lab.output.results import write_tables
from framekiln.lab.sav.layout import NAME, annotated_videos, write_made_video
from framekiln.lab.sav.masks import check_model, draw
from framekiln.lab.sav.measure import SavSettings, VideoModel, measure_videos, summarize
from framekiln_stages.nets.sam2.video import Tracker
from tests.support.stages.sam import video_reference as reference


@pytest.fixture
def folder(tmp_path):
    return write_made_video(tmp_path / "made", frames=13, size=(48, 64))


@pytest.fixture
def one_thread():
    """One thread in torch: on a busy machine threads of small calls wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Whole:
    """A tracker that marks the whole frame."""

    def __init__(self):
        self.prompts, self.frames = [], 0

    def reset(self):
        pass

    def add(self, prompt):
        self.prompts.append(prompt)

    def track(self, image):
        self.frames += 1
        return torch.ones(1, 12, 16), None


class Full(Whole):
    """A tracker that runs out of memory."""

    def track(self, image):
        raise torch.OutOfMemoryError


def rows(folder, model, **settings) -> list[VideoRow]:
    return list(measure_videos(model, annotated_videos(folder), SavSettings(**settings)))


def named(name, build) -> VideoModel:
    return VideoModel(name=name, weights="none", build=build)


@pytest.mark.parametrize(
    "prompt", ["points", *(pytest.param(kind, marks=pytest.mark.heavy) for kind in ("box", "mask"))]
)
def test_a_small_sam_2_tracks_from_each_prompt(folder, one_thread, prompt):
    """Weights are random, so that masks mean nothing; sizes, numbers of frames and ranges do."""
    model = VideoModel(name="toy", weights="dummy", build=lambda: Tracker(reference.model(), Placement()))
    (row,) = rows(folder, model, prompt=prompt, runs=1, limit_objects=1)
    assert (row.outcome, row.weights, row.video, row.object, row.frames) == ("ok", "dummy", NAME, "000", 13)
    assert row.latency_ms.count == 12 and row.fps > 0 and row.first_ms > 0
    # annotated are 0, 4, 12 (8 has no PNG); the first and the last do not count
    assert row.scored_frames == 1 and 0 <= row.j <= 1 and 0 <= row.f <= 1


def test_rows_by_object_and_run_and_a_line_for_each(folder, tmp_path):
    found = rows(folder, named("whole", Whole), runs=2)
    assert [(row.object, row.run, row.frames) for row in found] == [
        ("000", 1, 13),
        ("000", 2, 13),
        ("001", 1, 5),
        ("001", 2, 5),
    ]
    (truth,) = {annotated_videos(folder)[0].truth("000", "00004").mean()}
    assert found[0].j == pytest.approx(truth)  # all of the frame, against a disc
    # 001 has PNGs in frames 8 and 12 only: both are left out
    assert found[2].j is None and found[2].scored_frames == 0
    (path,) = write_tables(found, tmp_path / "out")
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["object"] for line in lines] == ["000", "000", "001", "001"]
    assert float(lines[0]["j"]) == found[0].j and lines[2]["j"] == ""
    (summary,) = summarize(found)
    assert tuple(summary[name] for name in ("objects", "runs", "failed", "j")) == (2, 4, 0, found[0].j)


def test_limits_of_objects_and_overlays_of_the_first_run(folder, tmp_path):
    tracker = Whole()
    settings = {"runs": 2, "limit_objects": 1, "overlays": tmp_path}
    rows(folder, named("whole", lambda: tracker), **settings)
    assert tracker.frames == 3 + 2 * 13  # the warm-up, and two runs
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jpg") if path.parent.name == "000"] == [
        f"whole/{NAME}/000/00004.jpg"
    ]


def test_a_model_is_warmed_up_once(folder):
    tracker = Whole()
    rows(folder, named("whole", lambda: tracker), runs=1)
    assert tracker.frames == 3 + 13 + 5


def test_an_overlay_shows_the_mask_and_the_true_outline():
    image = np.full((20, 20, 3), 100, np.uint8)
    mask, truth = np.zeros((2, 20, 20), bool)
    mask[:, 15:] = True
    truth[5:10, 5:10] = True
    picture = draw(image, mask, truth)
    assert (picture[0, 0] == 100).all() and (picture[3, 17] == (70, 150, 95)).all()
    assert (picture[5, 4] == (255, 40, 40)).all() and (picture[7, 7] == 100).all()


def test_damage_and_full_memory_become_rows(folder):
    (video,) = annotated_videos(folder)
    (full,) = rows(folder, named("fp32", Full), limit_objects=1)
    assert full.outcome == "oom" and full.fps is None
    video.frames[6].write_bytes(b"\xff\xd8\xff\xe0")
    broken = rows(folder, named("whole", Whole), runs=3)
    assert [(row.object, row.outcome) for row in broken] == [("000", "error"), ("001", "ok")] + [("001", "ok")] * 2
    (summary,) = summarize([*broken, replace(broken[0], object="002")])
    assert tuple(summary[name] for name in ("runs", "failed", "objects")) == (3, 2, 1)


def test_an_unknown_model_is_refused():
    with pytest.raises(ConfigError) as error:
        check_model("sam2.1-tini")
    assert error.value.code == "FK-SAV-MODEL" and "sam2.1-tiny" in str(error.value)
