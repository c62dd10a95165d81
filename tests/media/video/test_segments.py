"""A film decoded in segments by several tasks is identical to the film decoded as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.packet import Packet
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode_frames
from framekiln.media.packets.packet_builder import cut_clips
from framekiln.profiling.records import StepEvent
from framekiln.profiling.stats.progress import RunTotals
from tests.support.media.material import media
from tests.support.media.media_factory import packets_of, rows_of
from tests.support.media.remux import Change, remuxed
from tests.support.media.segmented_films import (
    FILMS,
    FRAMES,
    GOP,
    RATE,
    SMALL,
    WHOLE,
    by_task,
    check_rows,
    sample_film,
    unit_of,
)


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(sorted(FILMS)),
    count=st.integers(2, 9),
    halo=st.integers(0, 12),
    every_nth=st.sampled_from([1, 2, 7, 50]),
    max_frames=st.sampled_from([None, 1, 17, 60]),
    clip_frames=st.sampled_from([4, 15, 64]),
    packet_rows=st.sampled_from([1, 20, 500]),
    sound=st.booleans(),
)
def test_segments_equal_the_film(
    name: str,
    count: int,
    halo: int,
    every_nth: int,
    max_frames: int | None,
    clip_frames: int,
    packet_rows: int,
    sound: bool,
) -> None:
    path, columns = sample_film(name), ("frame", "sound") if sound else ("frame",)
    config = {
        "every_nth": every_nth,
        "max_frames": max_frames,
        "clip_frames": clip_frames,
        "packet_rows": packet_rows,
        **SMALL,
    }
    parts = by_task(path, columns, halo, tasks=count, **config)
    packets = [packet for part in parts for packet in part]
    total = len(range(0, FRAMES, every_nth)[:max_frames])
    assert [packet.start for packet in packets] == [0, *(packet.stop for packet in packets[:-1])]
    assert (packets[-1].start, packets[-1].stop, packets[-1].rows.num_rows) == (total, total, 0)
    assert not any(packet.failures for packet in packets)
    whole = [
        row for packet in packets_of(path, columns, **config | {"segment_frames": WHOLE}) for row in rows_of(packet)
    ]
    every = [row for packet in packets for row in rows_of(packet)]
    check_rows([row for row in every if not row["halo"]], whole)
    edges = by_task(path, (), tasks=1, **config | {"clip_frames": FRAMES, "packet_rows": FRAMES})[0]  # one each
    segments = [[packet for packet in packets if segment.start <= packet.start < segment.stop] for segment in edges]
    check_clips(path, segments, whole, halo, config)
    rows = [row for packet in packets_of(path, columns, halo=halo, **config) for row in rows_of(packet)]
    check_rows(rows, every)  # in one process, with the result of several


def check_clips(path: Path, parts: list[list[Packet]], whole: list[dict], halo: int, config: dict[str, Any]) -> None:
    """Check each segment's clips: those of a film of its frames alone, numbered from its first row, with halo."""
    (file,) = list_media(str(path))
    frames = list(decode_frames(file, ("frame",), DecodeConfig(**config | {"segment_frames": WHOLE})))
    for part in parts:
        if not part or part[0].start == part[0].stop:
            continue
        start, stop = part[0].start, max(packet.stop for packet in part)
        rule = {"max_frames": config["clip_frames"], "max_bytes": DecodeConfig.packet_bytes // 2, "halo": 0}
        expected = list(cut_clips(frames[start:stop], first=start, **rule))
        rows = [row for packet in part for row in rows_of(packet)]
        starts = [i for i, row in enumerate(rows) if not row["halo"] and row["clip_index"] != rows[i - 1]["clip_index"]]
        clips = [rows[i:j] for i, j in pairwise([*dict.fromkeys([0, *starts]), len(rows)])]
        assert [clip[0]["clip_index"] for clip in clips] == [clip.index for clip in expected]
        for clip, reference in zip(clips, expected, strict=True):
            own = [row["frame_index"] for row in clip if not row["halo"]]
            assert own == [frame.index for frame in reference.frames]
            after = [row for row in whole if row["frame_index"] > own[-1]][:halo]
            check_rows([row | {"halo": False} for row in clip if row["halo"]], after)


@pytest.mark.parametrize("name", sorted(FILMS))
def test_films_have_several_segments(name: str) -> None:
    parts = [part for part in by_task(sample_film(name), (), tasks=4, **SMALL) if part]
    assert len(parts) == (3 if name == "open and closed" else 4)
    assert sum(packet.share for part in parts for packet in part) == pytest.approx(1)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["video/cockatoo.mp4", "av/nasa_13013.mp4"])
def test_real_films(name: str) -> None:
    """The first film is by an old x264; decoders recognise its errors only from the film's first packet."""
    path, columns = media(name), ("frame_64", "sound")
    parts = by_task(path, columns, tasks=4, **SMALL)
    assert sum(bool(part) for part in parts) == {"video/cockatoo.mp4": 3, "av/nasa_13013.mp4": 2}[name]
    whole = [row for packet in packets_of(path, columns, segment_frames=WHOLE) for row in rows_of(packet)]
    check_rows([row for part in parts for packet in part for row in rows_of(packet)], whole)


# Films without segments


def hiding(frames: int) -> Change:
    """Return a change by which an edit list hides the first frames."""

    def earlier(packet: av.Packet, _: int) -> av.Packet:
        hidden = round(Fraction(frames, RATE) / packet.time_base)
        packet.pts, packet.dts = packet.pts - hidden, packet.dts - hidden
        return packet

    return earlier


@pytest.mark.parametrize(
    ("name", "skip", "options"),
    [
        ("film.mkv", 0, {}),
        ("film.ts", 0, {}),
        ("parts.mp4", 0, {"movflags": "+frag_keyframe+empty_moov"}),
        ("hidden.mp4", 3, {}),
    ],
)
def test_films_without_a_complete_index_have_no_segments(tmp_path: Path, name: str, skip: int, options: dict) -> None:
    path = remuxed(sample_film("b-frames"), tmp_path / name, hiding(skip), **options)
    first, *others = by_task(path, ("frame", "sound"), tasks=4, **SMALL)
    assert len(others) == 3 and not any(others)
    whole = [row for packet in packets_of(path, ("frame", "sound"), segment_frames=WHOLE) for row in rows_of(packet)]
    assert len(whole) == FRAMES - skip
    check_rows([row for packet in first for row in rows_of(packet)], whole)
    assert first[-1].start == first[-1].stop and sum(packet.share for packet in first) == pytest.approx(1)
    assert sum(packet.share > 0 for packet in first) >= 2


@pytest.mark.parametrize("options", [{"intra-refresh": "1", "bf": "0"}, {"x264-params": "open-gop=1", "bf": "3"}])
def test_open_gops_and_gradual_refreshes_begin_no_segment(tmp_path: Path, options: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 255, (64, 96, 3), np.uint8)
    with av.open(str(tmp_path / "film.mp4"), "w") as out:
        track = out.add_stream("libx264", rate=RATE, options=options)
        track.height, track.width, track.pix_fmt, track.gop_size = 64, 96, "yuv420p", GOP
        for number in range(FRAMES):
            out.mux(track.encode(av.VideoFrame.from_ndarray(np.roll(scene, number, axis=1), format="rgb24")))
        out.mux(track.encode(None))
    with av.open(str(tmp_path / "film.mp4")) as container:
        assert sum(entry.is_keyframe for entry in container.streams.video[0].index_entries) == FRAMES // GOP
    first, *others = by_task(tmp_path / "film.mp4", ("frame",), tasks=4, **SMALL)
    assert others and not any(others) and first[-1].stop == FRAMES


# Tasks in any order


def test_progress_follows_from_finished_shares() -> None:
    """Workers report segments of a film in any order."""
    path = sample_film("all key frames")
    unit = unit_of(path)
    figures = RunTotals([unit])
    about = {"step": "decode", "unit": "unit", "started": 1.0, "seconds": 1.0}
    parts = by_task(path, (), tasks=4, packet_rows=10, **SMALL)

    def decoded(worker: int) -> Iterator[StepEvent]:
        for packet in parts[worker]:
            rows = packet.stop - packet.start
            yield StepEvent(worker=str(worker), start=packet.start, rows=rows, share=packet.share, **about)

    for worker in (3, 1):
        figures.add(decoded(worker))
    assert figures.progress.shares(["decode"])["decode"] == pytest.approx(0.5, rel=0.1)
    for worker in (0, 2, 2):  # the last one was killed and decodes again
        figures.add(decoded(worker))
    assert figures.progress.shares(["decode"]) == {"decode": 1.0}
    assert figures.steps["decode"].rows == FRAMES
