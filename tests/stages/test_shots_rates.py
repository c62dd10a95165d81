"""Shots do not depend on the frame rate, and light is no transition at any."""

from __future__ import annotations

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln_stages.shots.stage import Shots
from tests.stages.test_shots import CHINA, FLOWER, HOPPER, found, some
from tests.support.media.media_factory import film
from tests.support.stages.shots_factory import clip, described, mixed


@pytest.mark.parametrize("every_nth", some(5, 10, heavy=[(1,), (2,), (15,)]))
def test_cuts_of_an_edit_are_found_whatever_the_frames_a_second(every_nth):
    """Eight pictures of 1.2 s at 25 frames a second, of which each n-th frame is kept."""
    pictures = [clip(name, start, 1)[0] for start in (0, 60, 120) for name in (CHINA, FLOWER, HOPPER)]
    rows = described([pictures[i // 30] for i in range(0, 240, every_nth)])
    times = pa.array(np.arange(len(rows)) * every_nth / 25)
    rows = rows.set_column(rows.column_names.index("time_s"), "time_s", times)
    made = Shots()(rows)["transitions"]
    assert made["kind"].to_pylist() == ["cut"] * 7
    assert made["last_frame"].to_pylist() == [-(-30 * n // every_nth) for n in range(1, 8)]


def test_a_shot_of_one_frame_is_no_dissolve_though_its_tones_lie_between_its_neighbours():
    before, seen, after = (clip(name, start, 9) for name, start in ((CHINA, 0), (FLOWER, 60), (HOPPER, 0)))
    tones, detail = mixed(before[4], after[4], 0.5), seen[0] - cv2.blur(seen[0].astype(np.float32), (99, 56))
    between = np.clip(cv2.blur(tones.astype(np.float32), (99, 56)) + 0.6 * detail, 0, 255).astype(np.uint8)
    rows = described([*before[:4], between, *after[5:]])
    for rate in (1, 2):
        made = Shots()(at_rate(rows, rate))["transitions"]
        assert made["kind"].to_pylist() == ["cut", "cut"] and made["last_frame"].to_pylist() == [4, 5]


def test_shots_of_two_frames_that_come_again_are_cut_apart():
    """Their light rises and falls as that of a flash does, and a cut has another one two frames before and after."""
    dark, light = ([mixed(frame, to, share) for frame in clip(name, 0, 4)] for name, to, share in COPIES)
    made = [*dark[:2], *light[:2], *dark[2:], *light[2:]]
    for rate in (1, 2):
        assert Shots()(at_rate(described(made), rate))["transitions"]["last_frame"].to_pylist() == [2, 4, 6]


def at_rate(rows, rate):
    """The same rows at another number of frames a second."""
    return rows.set_column(rows.column_names.index("time_s"), "time_s", pa.array(np.arange(len(rows)) / rate))


def edit(times):
    """Frames at these times of one scene: a cut at 2 s, a dissolve from 4 to 5 s, a fade through black, a wipe."""
    one, two, three, four = (
        [clip(name, start, 1)[0]] * 2 for name, start in ((CHINA, 0), (FLOWER, 0), (HOPPER, 0), (CHINA, 90))
    )
    frames, rng = [], np.random.default_rng(0)
    for at in times:
        if at < 5:
            made = one[0] if at < 2 else mixed(two[0], three[0], np.clip(at - 4, 0, 1))
        elif at < 8.3:
            made = mixed(three[0], 0, np.clip((at - 7) / 0.8, 0, 1))
        else:
            made = mixed(four[0], 0, np.clip((9.1 - at) / 0.8, 0, 1)).copy()
            made[:, : round(np.clip(at - 11, 0, 1) * made.shape[1])] = two[0][:, : round(np.clip(at - 11, 0, 1) * 398)]
        frames.append(np.clip(made + rng.normal(0, 2, made.shape), 0, 255).astype(np.uint8))
    return frames


LATE = (1, 1, 1, 1, 0.08)  # of an image's light in frames before a fade that none of them shows
COPIES = ((FLOWER, 0, 0.7), (HOPPER, 240, 0.5))
EDIT = [("cut", 2, 2), ("dissolve", 4, 5), ("fade_out", 7, 7.8), ("fade_in", 8.3, 9.1), ("wipe", 11, 12)]


@pytest.mark.parametrize(
    "rate", [2, *(pytest.param(rate, marks=pytest.mark.heavy) for rate in (5, 12, 25, 60, "varies"))]
)
def test_an_edit_has_the_same_transitions_at_any_frame_rate(tmp_path, rate):
    """Of the variable rate two seconds in three have 30 frames, the third has 5."""
    steps = [1 / 30] * 60 + [0.2] * 5 if rate == "varies" else [1 / rate]
    times = np.cumsum(np.resize(steps, 1000))
    times = np.round(times[times < 14], 3)
    path = film(tmp_path / "a.mkv", edit(times), fps=1000, times=[round(1000 * at) for at in times])
    with av.open(str(path)) as container:
        frames = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    rows = described([frame for _, frame in frames])
    rows = rows.set_column(rows.column_names.index("time_s"), "time_s", pa.array([at for at, _ in frames]))
    made = Shots()(rows)["transitions"].to_pylist()
    assert [row["kind"] for row in made] == [kind for kind, *_ in EDIT]
    for row, (_, *truth) in zip(made, EDIT, strict=True):
        for name, at in zip(("first_frame", "last_frame"), truth, strict=True):
            near = int(np.searchsorted(times, at - 1e-6)) - (name == "first_frame" and at not in times)
            assert abs(row[name] - near) <= 1 or abs(times[row[name]] - at) <= 0.1


@pytest.mark.parametrize(("name", "speed"), some((CHINA, 2.0), heavy=[(FLOWER, 2.0), (HOPPER, 0.7), (FLOWER, 4.0)]))
def test_a_flash_that_decays_while_the_camera_moves_is_no_transition(name, speed):
    rest = [np.exp(-(i - 15) / 7) if i >= 15 else 0.0 for i in range(45)]
    made = [
        (frame + (255.0 - frame) * share).astype(np.uint8)
        for frame, share in zip(clip(name, 0, 45, speed), rest, strict=True)
    ]
    assert found(made) == ([], [])


def test_a_cut_to_white_that_another_image_comes_out_of_is_no_flash():
    share = np.clip(np.arange(30) / 20, 0, 1)
    after = [mixed(np.full_like(frame, 255), frame, by) for frame, by in zip(clip(FLOWER, 0, 30), share, strict=True)]
    changes, _ = found(clip(HOPPER, 0, 20) + after)
    assert [kind for kind, *_ in changes] == ["cut", "fade_in"] or [kind for kind, *_ in changes] == ["fade_in"]


@pytest.mark.parametrize(("one", "other"), some((HOPPER, CHINA), heavy=[(FLOWER, HOPPER)]))
def test_shots_meet_at_a_colour_beside_which_a_frame_a_second_shows_one_fade(one, other):
    for after in ((0.22, 1, 1, 1), (0.3, 1, 1, 1)):
        shown = [
            mixed(clip(name, 0, 1)[0], 0, 1 - share) for name, own in ((one, LATE), (other, after)) for share in own
        ]
        assert found(at_rate(described(shown), 1)) == ([("fade_in", 4, 6)], [4])


@pytest.mark.parametrize("name", some(FLOWER, heavy=[(CHINA,), (HOPPER,)]))
def test_a_strobe_is_no_row_of_cuts(name):
    lit = [mixed(frame, 0, 0.96 if i * 5 // 12 % 2 else 0) for i, frame in enumerate(clip(name, 0, 12))]
    assert found(at_rate(described(lit), 12)) == ([], [])


def test_a_cut_in_an_upright_video_between_black_bars_is_found():
    made = [frame.copy() for frame in clip(CHINA, 0, 6) + [mixed(frame, 0, 0.4) for frame in clip(HOPPER, 0, 6)]]
    for frame in made:
        frame[:, :136] = frame[:, -136:] = 0
    assert found(made)[1] == [6]
