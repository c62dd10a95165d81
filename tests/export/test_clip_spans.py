"""The parts of films that clips are cut from, of a made output."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.export.clips import find_spans
from framekiln.export.request import ClipRequest
from framekiln.output.object_store import Store
from framekiln.selection.rows import Rows
from tests.support.errors import fails

FPS = 10.0


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A film of 60 frames with shots of 20 and 40, another whose rows are each fifth frame, and a photo."""
    folder = tmp_path_factory.mktemp("spans")
    films = {"a/film.mp4": range(60), "b.mov": range(0, 60, 5), "p.jpg": [0]}
    frames = [
        {
            "media_id": name,
            "frame_index": i,
            "media_type": "photo" if name == "p.jpg" else "video",
            "time_s": None if name == "p.jpg" else i / FPS,
            "fps": None if name == "p.jpg" else FPS,
        }
        for name, numbers in films.items()
        for i in numbers
    ]
    cuts = [("a/film.mp4", 0, 0, 19), ("a/film.mp4", 1, 20, 59), ("b.mov", 0, 0, 55), ("p.jpg", 0, 0, 0)]
    shots = [dict(zip(("media_id", "shot", "first_frame", "last_frame"), each, strict=True)) for each in cuts]
    for name, rows in {"frames": frames, "shots": shots}.items():
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "part.parquet")
    return Store(str(folder))


def spans(store, chosen, **request):
    table = pa.table({"media_id": [n for n, _ in chosen], "frame_index": pa.array([i for _, i in chosen], pa.int32())})
    return find_spans(Rows(store), table, ClipRequest(**request))


def ends(found):
    return [(span.media_id, span.first_frame, span.last_frame) for span in found]


def test_a_shot_with_a_chosen_frame_is_a_clip(store):
    chosen = [("a/film.mp4", 33), ("a/film.mp4", 35), ("b.mov", 10), ("p.jpg", 0)]
    found = spans(store, chosen)
    assert ends(found) == [("a/film.mp4", 20, 59), ("b.mov", 0, 55)]
    assert [span.shot for span in found] == [1, 0]
    assert (found[0].start_s, found[0].last_s, found[0].end_s) == pytest.approx((2.0, 5.9, 6.0))


def test_chosen_frames_that_follow_each_other_are_a_clip(store):
    chosen = [("a/film.mp4", i) for i in (3, 4, 18, 5, 19, 20, 21)] + [("b.mov", i) for i in (5, 10, 20)]
    assert ends(spans(store, chosen, of="frames")) == [
        ("a/film.mp4", 3, 5),
        ("a/film.mp4", 18, 21),
        ("b.mov", 5, 10),
        ("b.mov", 20, 20),
    ]


def test_short_clips_are_left_out_and_long_ones_divided(store):
    chosen = [("a/film.mp4", 0), ("a/film.mp4", 20)]
    assert ends(spans(store, chosen, min_seconds=2.0)) == [("a/film.mp4", 0, 19), ("a/film.mp4", 20, 59)]
    assert ends(spans(store, chosen, min_seconds=2.1)) == [("a/film.mp4", 20, 59)]
    assert ends(spans(store, chosen, min_seconds=0.9, max_seconds=1.5)) == [
        ("a/film.mp4", 0, 14),
        ("a/film.mp4", 20, 34),
        ("a/film.mp4", 35, 49),
        ("a/film.mp4", 50, 59),
    ]


def test_mistakes_are_told(tmp_path):
    for wrong in ({"min_seconds": -1.0}, {"min_seconds": 3.0, "max_seconds": 2.0}, {"max_seconds": 0.0}):
        with fails("FK-EXPORT-SECONDS"):
            ClipRequest(**wrong)
    with fails("FK-EXPORT-CLIPS"):
        ClipRequest(of="scenes")
    (tmp_path / "frames").mkdir()
    pq.write_table(
        pa.table({"media_id": ["a"], "frame_index": pa.array([0], pa.int32())}), tmp_path / "frames" / "p.parquet"
    )
    with fails("FK-SELECTION-TABLE"):
        spans(Store(str(tmp_path)), [("a", 0)])
