"""Shots are right when every cut, fade and dissolve is found where it was made, and a flash or a pan is none."""

from __future__ import annotations

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.shots.stage import Features, Shots
from tests.support.media.media_factory import film
from tests.support.media.photos import PHOTOS, photo
from tests.support.stages.flow_factory import window
from tests.support.stages.shots_factory import (
    clip,
    described,
    described_films,
    dissolve,
    kept_films,
    mixed,
    through,
    whip,
    wipe,
)

CHINA, FLOWER, HOPPER = PHOTOS


def some(*quick, heavy=()):
    """Return parameters, of which some are left to `make test-all`."""
    return [*quick, *(pytest.param(*values, marks=pytest.mark.heavy) for values in heavy)]


def found(frames, **config):
    """Kinds, first and last frames of transitions; and where shots begin; of frames, or of what is read of them."""
    made = Shots(Shots.Config(**config))(frames if isinstance(frames, pa.Table) else described(frames))
    rows = made["shots"].to_pylist()
    assert [row["shot"] for row in rows] == list(range(len(rows)))
    assert [rows[0]["first_frame"], *(row["last_frame"] + 1 for row in rows)] == [
        *(row["first_frame"] for row in rows), len(frames),
    ]  # fmt: skip
    assert all(row["frames"] == row["last_frame"] - row["first_frame"] + 1 for row in rows)
    changes = [(row["kind"], row["first_frame"], row["last_frame"]) for row in made["transitions"].to_pylist()]
    return changes, [row["first_frame"] for row in rows[1:]]


PAIRS = [
    ((HOPPER, 0), (CHINA, 0)),
    ((FLOWER, 30), (HOPPER, 5)),
    ((CHINA, 20), (FLOWER, 20)),
    ((FLOWER, 0), (CHINA, 9)),
]


@pytest.mark.parametrize(("first", "second"), some(*PAIRS[:2], heavy=PAIRS[2:]))
def test_cuts_between_clips_are_found_to_the_frame(first, second):
    frames = clip(*first, 12) + clip(*second, 12)
    assert found(frames) == ([("cut", 11, 12)], [12])


@pytest.mark.parametrize(("name", "cuts", "gradual"), [
    ("av/nasa_13013.mp4", [201], [("dissolve", 126, 150)]),
    ("video/test_clip_10s.mp4", [103, 213], [("fade_out", 69, 103), ("fade_out", 132, 153), ("fade_in", 164, 183)]),
    ("video/cockatoo.mp4", [], []),
    ("vos/06_pingpong.mp4", [], []),
    ("vos/bedroom.mp4", [], []),
])  # fmt: skip
def test_edited_and_unedited_videos(name, cuts, gradual):
    """Cuts exactly; what was seen of gradual ones by eye within three frames, and no others."""
    changes, _ = found(kept_films().filter(pc.field("media_id") == name))
    assert [first for kind, first, _ in changes if kind == "cut"] == cuts
    soft = [change for change in changes if change[0] != "cut"]
    assert [kind for kind, *_ in soft] == [kind for kind, *_ in gradual]
    assert np.abs(np.array([c[1:] for c in soft]) - np.array([c[1:] for c in gradual])).max(initial=0) <= 3


@pytest.mark.heavy
def test_the_kept_films_are_what_flow_and_features_give():
    """Another processor or codec may round otherwise."""
    kept, fresh = kept_films(), described_films()
    for name in ("media_id", "frame_index", "time_s"):
        assert kept[name].to_pylist() == fresh[name].to_pylist(), name
    for name, off in (("cut", 0.02), ("luma_deviation", 0.5)):
        assert kept[name].to_pylist() == pytest.approx(fresh[name].to_pylist(), abs=off), name
    grids = (np.array(rows["colour_grid"].to_pylist()) for rows in (kept, fresh))
    assert np.abs(np.subtract(*grids)).max() <= 2


def lengths(*short):
    """Pairs of clips, each with a short length, and with a long one."""
    pairs = PAIRS[: len(short)]
    once = [pytest.param(*pair, length) for pair, length in zip(pairs, short, strict=True)]
    long = [pytest.param(*pair, 30, marks=pytest.mark.heavy) for pair in pairs]
    return pytest.mark.parametrize(("first", "second", "length"), [*once, *long])


@lengths(4, 12, 4)
def test_dissolves_are_found_where_they_were_made(first, second, length):
    changes, starts = found(dissolve(first, second, length))
    ((kind, begin, end),) = changes
    off = max(2, 0.3 * length)  # motion in the first frames of a slow dissolve hides them; all others are within 2
    assert kind == "dissolve" and abs(begin - 19) <= off and abs(end - 19 - length) <= off
    assert len(starts) == 1 and abs(starts[0] - 19 - length / 2) <= off / 2 + 1


@pytest.mark.parametrize(("pair", "step"), some((PAIRS[1], 3.0), heavy=[(PAIRS[0], 6.0), (PAIRS[2], 6.0)]))
def test_dissolves_between_shots_that_move_are_found(pair, step):
    ((kind, begin, end),), starts = found(dissolve(*pair, 20, (step, 0.7)))
    assert kind == "dissolve" and abs(begin - 19) <= 8 and abs(end - 39) <= 8
    assert len(starts) == 1


@pytest.mark.parametrize(("direction", "length"), some(("right", 8), ("up", 20), heavy=[("left", 20), ("down", 8)]))
def test_wipes_are_found_where_they_were_made(direction, length):
    first, second = PAIRS[length % 3]
    ((kind, begin, end),), starts = found(wipe(first, second, length, direction))
    assert kind == "wipe" and abs(begin - 11) <= 2 and abs(end - 11 - length) <= 2
    assert abs(starts[0] - 11 - length / 2) <= 2


@pytest.mark.parametrize(("name", "step"), some((CHINA, 80), (FLOWER, 60), heavy=[(FLOWER, 80), (HOPPER, 70)]))
def test_motion_too_fast_for_flow_is_no_cut(name, step):
    assert found(whip(name, step)) == ([], [])


def test_a_cut_between_fast_pans_is_found():
    frames = clip(CHINA, 0, 9, 45.0) + clip(FLOWER, 0, 9, 45.0)
    assert found(frames) == ([("cut", 8, 9)], [9])


@pytest.mark.parametrize(
    ("length", "colour"),
    [(5, 255), (12, 0), *(pytest.param(30, colour, marks=pytest.mark.heavy) for colour in (0, 255))],
)
def test_fades_through_a_colour_are_found_where_they_were_made(colour, length):
    first, second = PAIRS[length % 4]
    changes, starts = found(through(first, second, length, colour))
    assert [kind for kind, *_ in changes] == ["fade_out", "fade_in"]
    truth = [(19, 19 + length), (22 + length, 22 + 2 * length)]
    assert np.abs(np.array([c[1:] for c in changes]) - truth).max() <= 2
    assert len(starts) == 1 and 19 + length <= starts[0] <= 23 + length


@pytest.mark.heavy
def test_fades_and_cuts_survive_a_lossy_codec(tmp_path):
    made = through(*PAIRS[1], 12, 0) + clip(CHINA, 0, 10)
    path = film(tmp_path / "a.mp4", made, codec="libx264", pix_fmt="yuv420p", options={"crf": "28"})
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    changes, starts = found(frames)
    assert len(frames) == len(made) and [kind for kind, *_ in changes] == ["fade_out", "fade_in", "cut"]
    truth = [(19, 31), (34, 46), (len(made) - 11, len(made) - 10)]
    assert np.abs(np.array([c[1:] for c in changes]) - truth).max() <= 2
    assert len(starts) == 2 and changes[-1][1:] == truth[-1]


def test_a_fade_is_said_with_its_colour_and_at_the_ends_of_a_file_makes_no_shot():
    frames = through(*PAIRS[0], 12, 255)
    head = Shots()(described(frames[20:]))
    assert head["transitions"].to_pylist()[-1]["colour"] == "white"
    changes, starts = found(frames[33:])  # from white on
    assert starts == [] and [kind for kind, *_ in changes] == ["fade_in"]


@pytest.mark.parametrize("colour", some(0, heavy=[(255,)]))
@lengths(12)
def test_a_clip_that_begins_or_ends_inside_a_fade_is_one_shot(first, second, length, colour):
    frames = through(first, second, length, colour)
    middle = len(frames) // 2
    before, after = frames[: middle - 2 - length // 3], frames[middle + 2 + length // 3 :]
    assert found(before) == ([], [])
    assert found(after) == ([], [])


@pytest.mark.parametrize(("name", "length"), some((FLOWER, 8), heavy=[(CHINA, 25), (HOPPER, 8)]))
def test_a_clip_that_gets_brighter_or_darker_is_one_shot(name, length):
    frames = clip(name, 0, length + 20)
    ramp = np.interp(np.arange(len(frames)), [10, 10 + length], [0.35, 1.0])
    bright = [mixed(frame, 0, 1 - share) for frame, share in zip(frames, ramp, strict=True)]
    for made in (bright, bright[::-1]):
        assert found(made) == ([], [])


@pytest.mark.parametrize(("name", "flash"), some((CHINA, 1), (FLOWER, 2), heavy=[(HOPPER, 1)]))
def test_a_flash_is_no_cut(name, flash):
    frames = list(clip(name, 0, 16))
    for i in range(8, 8 + flash):
        frames[i] = (frames[i].astype(int) * 4 + 80).clip(0, 255).astype(np.uint8)
    assert found(frames) == ([], [])


@pytest.mark.parametrize("frames", [2, 5])
@pytest.mark.parametrize("name", [HOPPER, FLOWER])
def test_a_flash_that_decays_is_no_transition(name, frames):
    """It fills the frame with white, and falls to a third in so many frames."""
    rest = [np.exp(-(i - 15) / frames) if i >= 15 else 0.0 for i in range(45)]
    made = [
        (frame + (255.0 - frame) * share).astype(np.uint8) for frame, share in zip(clip(name, 0, 45), rest, strict=True)
    ]
    assert found(made) == ([], [])


def test_a_cut_between_two_takes_on_one_set_is_no_flash():
    nearer = [cv2.resize(frame[30:-60, 60:-100], (398, 224)) for frame in clip(HOPPER, 0, 12)]
    assert found(clip(HOPPER, 0, 12) + nearer) == ([("cut", 11, 12)], [12])


@pytest.mark.parametrize("name", some(FLOWER, heavy=[(CHINA,)]))
def test_a_pan_is_one_shot(name):
    image = photo(name)
    step = (image.shape[1] - 300) / 40
    frames = [window(image, int(step * i), 20, 224, 300) for i in range(40)]
    assert found(frames) == ([], [])


def test_a_photo_an_empty_file_and_failed_features_have_their_shots():
    one = found(clip(HOPPER, 0, 1))
    assert one == ([], [])
    rows = described(clip(HOPPER, 0, 6) + clip(CHINA, 0, 6))
    assert all(made.num_rows == 0 for made in Shots()(rows.slice(0, 0)).values())
    for name in ("colour_grid", "luma_deviation"):
        at = rows.column_names.index(name)
        values = rows[name].to_pylist()
        values[3] = None
        rows = rows.set_column(at, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))
    assert [row["first_frame"] for row in Shots()(rows)["shots"].to_pylist()] == [0, 6]
    nothing = rows.set_column(5, rows.schema.field("luma_deviation"), pa.nulls(12, pa.float32()))
    nothing = nothing.set_column(4, "colour_grid", pa.nulls(12, rows.schema.field("colour_grid").type))
    assert Shots()(nothing)["shots"].num_rows == 1


def test_frames_left_out_are_named_by_their_numbers():
    rows = described(clip(HOPPER, 0, 6) + clip(CHINA, 0, 6))
    sampled = rows.set_column(1, "frame_index", pa.array(range(0, 60, 5), pa.int32()))
    first, second = Shots()(sampled)["shots"].to_pylist()
    assert (first["first_frame"], first["last_frame"], second["first_frame"]) == (0, 25, 30)
    assert first["end_s"] == pytest.approx(5 / 25)


def test_features_are_the_means_of_tiles_and_the_deviation_of_luma():
    image = photo("flower.jpg")[:224, :400]
    stage = Features()
    stage.setup({}, Placement())
    (row,) = stage(pa.table({"frame_224": pack([image])})).to_pylist()
    tiles = image.reshape(4, 56, 4, 100, 3).astype(float).mean(axis=(1, 3))
    assert np.abs(np.array(row["colour_grid"]).reshape(4, 4, 3) - tiles).max() <= 0.6  # rounded twice
    luma = image.astype(float) @ [0.299, 0.587, 0.114]
    assert row["luma_deviation"] == pytest.approx(luma.std(), abs=0.1)
    empty = stage(pa.table({"frame_224": pack([image])}).slice(0, 0))
    assert empty.num_rows == 0 and empty.schema.equals(stage.outputs)
