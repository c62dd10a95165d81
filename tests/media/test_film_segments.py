"""Films cut into segments: rows do not depend on the number of tasks, also of damaged films."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.packet import Packet
from framekiln.media.config import MAX_SEGMENTS, MAX_TASKS, DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode
from framekiln.media.source_reader import Guard, ReadLimit
from framekiln.media.units import Segments, Unit, split_unit, task_bytes
from framekiln.media.video import segments
from tests.support.media.media_factory import packets_of, rows_of
from tests.support.media.segmented_films import (
    FILMS,
    FRAMES,
    GOP,
    WHOLE,
    by_task,
    check_rows,
    damage,
    sample_film,
    unit_of,
)

SMALL = {"segment_frames": 12, "segment_pixels": 1, "packet_rows": 8, "clip_frames": 5}
COLUMNS = ("frame", "sound")


def listed(parts: list[list[Packet]]) -> list[Any]:
    """Return all that is written of packets, in order."""
    packets = [packet for part in parts for packet in part]
    return [(packet.start, packet.stop, packet.rows.to_pylist(), packet.failures) for packet in packets]


@pytest.mark.parametrize("name", sorted(FILMS))
def test_segments_begin_at_the_first_key_frames_of_a_grid(name: str) -> None:
    parts = by_task(sample_film(name), (), tasks=7, **SMALL | {"packet_rows": 500})
    starts = [packet.start for part in parts for packet in part if packet.start < packet.stop]
    assert starts[0] == 0 and starts[-1] < FRAMES and len(starts) > 4
    lines = [start // 12 for start in starts]
    assert lines == sorted(set(lines))
    step = 1 if name == "all key frames" else GOP
    assert all(start % step == 0 for start in starts)


@pytest.mark.heavy
@settings(max_examples=8, deadline=None)
@given(
    name=st.sampled_from(sorted(FILMS)),
    tasks=st.integers(2, 20),
    halo=st.integers(0, 12),
    every_nth=st.sampled_from([1, 7, 50]),
    max_frames=st.sampled_from([None, 17, 60]),
)
def test_any_number_of_tasks_gives_the_same_packets(
    name: str, tasks: int, halo: int, every_nth: int, max_frames: int | None
) -> None:
    path, config = sample_film(name), SMALL | {"every_nth": every_nth, "max_frames": max_frames}
    one = by_task(path, COLUMNS, halo, tasks=1, **config)
    assert listed(by_task(path, COLUMNS, halo, tasks=tasks, **config)) == listed(one)
    whole = [
        row for packet in packets_of(path, COLUMNS, **config | {"segment_frames": WHOLE}) for row in rows_of(packet)
    ]
    check_rows([row for part in one for packet in part for row in rows_of(packet) if not row["halo"]], whole)
    check_rows(  # in a unit with other files
        [row for packet in packets_of(path, COLUMNS, **config) for row in rows_of(packet)], whole
    )


@pytest.mark.parametrize(("first", "last"), [(0, 3), (33, 36), (59, 59), (30, 59), (28, 31)])
@pytest.mark.parametrize("name", ["b-frames", "no reordering"])
def test_damage_gives_the_same_packets_too(tmp_path: Path, name: str, first: int, last: int) -> None:
    path = damage(sample_film(name), tmp_path / "film.mov", first, last)
    one = listed(by_task(path, COLUMNS, 1, tasks=1, **SMALL))
    assert any(failures for *_, failures in one)
    for tasks in (2, 5, 16):
        assert listed(by_task(path, COLUMNS, 1, tasks=tasks, **SMALL)) == one
    rows = [row for _, _, rows, _ in one for row in rows if not row["halo"]]
    together = packets_of(path, COLUMNS, halo=1, **SMALL)
    alike = [row for packet in together for row in packet.rows.to_pylist() if not row["halo"]]
    assert alike == rows
    assert [failure for packet in together for failure in packet.failures] == [f for *_, four in one for f in four]


def test_short_films_and_large_films_have_few_cells() -> None:
    rule = DecodeConfig()
    assert rule.frames_of_segment(2250, 1920 * 1080) == 128  # 90 s: 17 segments
    assert rule.frames_of_segment(2250, 640 * 360) == 217  # opening is a tenth of decoding
    assert -(-(10**7) // rule.frames_of_segment(10**7, 640 * 360)) <= MAX_SEGMENTS
    assert len([part for part in by_task(sample_film("b-frames"), (), tasks=6) if part]) == 1


def test_tasks_of_a_film_follow_the_slots() -> None:
    path = sample_film("b-frames")
    media = unit_of(path).media[0]
    for size, slots, count in ((68 * 10**6, 2, 8), (68 * 10**6, 16, 64), (10**6, 16, 3), (10**5, 16, 1)):
        film = Unit(name="u", media=(type(media)(media_id="f", path="", size=size, mtime_ns=0),))
        assert len(split_unit(film, task_bytes([film], DecodeConfig(), slots))) == count
    large = Unit(name="u", media=(type(media)(media_id="f", path="", size=1 << 50, mtime_ns=0),))
    assert split_unit(large, 1)[5] == Segments(index=5, count=MAX_TASKS)


def test_tasks_of_a_film_with_open_gops_try_few_key_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def starts(_: segments._Index, number: int) -> bool:
        tried.append(number)
        return not number

    monkeypatch.setattr(segments._Index, "_starts_closed_gop", starts)
    parts = by_task(sample_film("b-frames"), (), tasks=9, **SMALL)
    assert parts[0][0].start == 0 and not any(parts[1:])
    # each key frame by the first task, which looks for its end, and by its own; each task begins within an interval
    assert len([number for number in tried if number]) <= 2 * FRAMES // GOP + 9


def test_finished_cells_are_not_decoded_again() -> None:
    unit, rule = unit_of(sample_film("b-frames")), DecodeConfig(**SMALL)
    packets = [packet for part in by_task(sample_film("b-frames"), (), tasks=3, **SMALL) for packet in part]
    (wanted,) = split_unit(unit, WHOLE)
    left = list(decode(unit, (), 0, rule, wanted, lambda start, stop: not start <= 50 < stop))
    assert left[-1].start == left[-1].stop == FRAMES
    spans = [(packet.start, packet.stop) for packet in left[:-1]]
    assert set(spans) < {(packet.start, packet.stop) for packet in packets}
    assert spans[0][0] <= 50 < spans[-1][1] and spans[-1][1] - spans[0][0] <= 2 * GOP


class DiesInOneSegment(Guard):
    """A guard that knows of a segment whose first frame kills its decoder."""

    def start_file(self, media: MediaFile, wanted: Segments) -> ReadLimit | None:
        return ReadLimit(0, "SIGSEGV") if wanted.begin == 40 else None


def test_a_cell_that_kills_its_decoder_at_once_is_lost_alone() -> None:
    unit, rule = unit_of(sample_film("b-frames")), DecodeConfig(**SMALL)
    (wanted,) = split_unit(unit, WHOLE)
    packets = list(decode(unit, (), 0, rule, wanted, guard=DiesInOneSegment()))
    (failure,) = [failure for packet in packets for failure in packet.failures]
    assert (failure.kind, failure.frame_index) == ("crashed", 40)
    assert [packet.start for packet in packets] == [0, *(packet.stop for packet in packets[:-1])]
    numbers = [number for packet in packets for number in packet.rows["frame_index"].to_pylist()]
    lost = sorted(set(range(FRAMES)) - set(numbers))
    assert lost and lost == list(range(40, 40 + len(lost))) and len(lost) <= 2 * GOP and packets[-1].stop == FRAMES
