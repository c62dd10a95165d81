"""Sync: shots of one file are read together where they agree, and never mixed where they do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from stages.sync import Sync
from tests.sync_factory import clip, heard, judge, moved, shots, spoken, table_of

PAIRS = [("lbax4n", "sbwe5n"), ("pwij3p", "bbaf2n"), ("lrwp9a", "lbax4n")]


def joined(
    *parts: tuple[str, int, int], shifts: tuple[float, ...] = (0, 0), heard_of: tuple[str, ...] = ()
) -> pa.Table:
    """Lips of runs of frames (clip, first, count) after each other, and whole clips' sound, each later by its shift."""
    mouths = pa.concat_tables([clip(name)[1].slice(first, count) for name, first, count in parts])
    names = heard_of or tuple(name for name, _, _ in parts)
    samples = np.concatenate([moved(clip(name)[2], by) for name, by in zip(names, shifts, strict=False)])
    sound = spoken(samples, np.concatenate([clip(name)[3] for name in names]))
    count = len(mouths)
    keys = {
        "media_id": ["a"] * count,
        "frame_index": pa.array(range(count), pa.int32()),
        "time_s": np.arange(count) / 25,
    }
    return pa.table(keys | {"mouths": mouths["mouths"], "voice": sound["voice"].slice(0, count)})


@pytest.mark.heavy
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_shots_with_one_offset_are_read_together(one, other):
    for by in (-8, 0, 8):
        late = joined((one, 0, 75), (other, 0, 75), shifts=(by, by))
        row = judge(late, 75)
        assert row["offset_frames"] == pytest.approx(by, abs=2)
        assert (row["shots"], row["first_frame"], row["last_frame"]) == ([0, 1], 0, 149)
        assert row["face_seconds"] > 5.5


@pytest.mark.heavy
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("by", [8, -8])
def test_two_shots_with_offsets_of_their_own_are_not_mixed(one, other, by):
    table = joined((one, 0, 75), (other, 0, 72), shifts=(0, by))
    made = Sync()(table, shots(0, 75))
    first, second = made["sync_shots"]["offset_frames"].to_pylist()
    row = made["sync"].to_pylist()[0]
    assert row["offset_frames"] == pytest.approx(0, abs=2), "that of the longest"
    assert first == pytest.approx(0, abs=2)
    assert second == pytest.approx(by, abs=2)
    assert made["sync_shots"]["first_frame"].to_pylist() == [0, 75]
    assert row["shots"] in ([0], [0, 1])


@pytest.mark.heavy
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_lips_of_a_cutaway_do_not_spoil_the_speakers(one, other):
    """60 frames of one, 40 of somebody else's lips while the sound goes on, the rest of the other."""
    third = "id2_vcd_swwp2s"
    for by in (-4, 4):
        table = joined((one, 0, 60), (third, 20, 40), (other, 25, 50), shifts=(by, by), heard_of=(one, other))
        row = judge(table, 60, 100)
        assert row["offset_frames"] == pytest.approx(by, abs=2)


def test_a_look_ends_at_the_cut():
    """The same place of the face, so that boxes alone would follow it across; .8 s of either side is no look."""
    table = joined(("lbax4n", 20, 20), ("lbax4n", 40, 20), heard_of=("lbax4n",))
    assert judge(table)["reason"] != "no face"
    assert judge(table, 20)["reason"] == "no face"


def test_a_file_whose_shots_failed_is_refused():
    with pytest.raises(ValueError, match="no shots are known of 'lbax4n.mpg'"):
        Sync()(table_of("lbax4n", heard("lbax4n")), shots())
