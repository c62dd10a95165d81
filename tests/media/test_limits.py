"""Small files with extreme contents cost little, and the skipped part is a line in the errors table."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import check_sample_counts
from framekiln.media.frames import max_frames
from tests.support.machine.memory import peak_mb
from tests.support.media import bombs
from tests.support.media.media_factory import decoded, film, numbered

PEAK_MB = 500  # the libraries alone take 180, and an EXIF block of 32 MB is held four times
SECONDS = 150  # on a busy machine; alone it takes a tenth
LENGTH = 300  # frames: the limit by number, here
NOTES = ("webp exif", "webp icc", "jpeg icc", "png icc", "png text", "png xmp", "png exif")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[list], float]]:
    """By file: rows, failures, and peak memory so far, of a process that decodes all."""
    folder = tmp_path_factory.mktemp("bombs")
    scratch = folder / ".made.mov"
    files = {
        "canvas.gif": bombs.gif(20, 6_000),
        "canvas.png": bombs.apng(2, 6_000),
        "canvas.webp": bombs.webp(20, 6_000),
        "long.gif": bombs.gif(2_000, 8),
        "long.png": bombs.apng(2_000, 8),
        "long.webp": bombs.webp(2_000, 8),
        "sizes.mov": bombs.raw(scratch, 80_000_000),
        "packed.mov": bombs.raw(scratch, 80_000_000, packed=True),
        "sizes_true.mov": bombs.raw(scratch, 3),
        "packed_true.mov": bombs.raw(scratch, 3, packed=True),
        "fragment.mp4": bombs.fragmented(folder / ".made.mp4", 80_000_000),
        "run.mp4": bombs.fragmented(folder / ".made.mp4", 80_000_000, flags=0xA00),
        "tracks.mov": bombs.tracks(scratch, 5_000),
        **{name.replace(" ", "_"): bombs.photo_with(name, 32_000_000) for name in NOTES},
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    command = [sys.executable, "-m", "tests.media.test_limits", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.heavy
def test_memory_is_bounded(outcome: dict) -> None:
    assert max(peak for _, _, peak in outcome.values()) < PEAK_MB, {name: result[2] for name, result in outcome.items()}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", ["canvas.gif", "canvas.png", "canvas.webp", "sizes.mov", "packed.mov", "fragment.mp4", "run.mp4"]
)
def test_files_that_need_too_much_memory_are_rejected(outcome: dict, name: str) -> None:
    rows, failures, _ = outcome[name]
    assert (rows, [kind for _, kind, _ in failures]) == (0, ["too_large"])


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["long.gif", "long.png", "long.webp"])
def test_long_animations_are_limited_with_an_error(outcome: dict, name: str) -> None:
    rows, failures, _ = outcome[name]
    assert (rows, [failure[:2] for failure in failures]) == (LENGTH, [[LENGTH, "too_large"]])
    assert "decode.max_length" in failures[0][2]


@given(
    st.sampled_from(["video", "animation"]),
    *(st.integers(1, 10_000),) * 2,
    st.integers(0, 10**12),
    st.integers(1, 10**7),
)
def test_pixels_are_bounded_by_bytes(kind: str, height: int, width: int, size: int, length: int) -> None:
    limit = max_frames(kind, height, width, size, length)
    assert 1 <= limit <= length
    assert limit * height * width <= max(10**11, 300_000 * size)
    if height * width <= 3840 * 2160 and length <= 600:
        assert limit == length, "600 frames of a normal size are never limited"


_RUN_IN, _SIZES_IN = (b"moof", b"traf"), (b"moov", b"trak", b"mdia", b"minf", b"stbl")


@pytest.mark.parametrize("size", [None, 1, 0x0100_0010, 0x7FFF_FFFF, 0xFFFF_FFFF])
@pytest.mark.parametrize(("name", "flags"), [(b"trun", 0), (b"trun", 0xA00), (b"trun", 0xF00), (b"stsz", 0)])
def test_counts_without_data_are_rejected_whatever_size_their_box_states(
    tmp_path: Path, name: bytes, flags: int, size: int | None
) -> None:
    def made(samples: int) -> io.BytesIO:
        path = tmp_path / ("a.mov" if name == b"stsz" else "a.mp4")
        data = bombs.raw(path, samples) if name == b"stsz" else bombs.fragmented(path, samples, flags)
        parents = _SIZES_IN if name == b"stsz" else _RUN_IN
        return io.BytesIO(data if size is None else bombs.with_size(data, name, size, parents))

    with pytest.raises(MediaError) as refused:
        check_sample_counts(made(80_000_000), truncated=False)
    assert refused.value.reason is Reason.TOO_LARGE
    check_sample_counts(made(3), truncated=False)


def test_a_table_at_the_edge_of_two_reads_counts_once_and_text_counts_for_nothing() -> None:
    head = b"\0\0\0\x14ftypisom" + bytes(8)
    for before in range((1 << 20) - 60, (1 << 20) + 30):
        table = b"\0\0\0\x14stsz" + bytes(4) + b"\0\0\0\x01" + (9_000_000).to_bytes(4, "big")
        box = bytes(before) + table + b"is truncated and stsz and trunk more"
        check_sample_counts(io.BytesIO(head + (len(box) + 8).to_bytes(4, "big") + b"moov" + box), truncated=False)


@pytest.mark.heavy
def test_correct_tables_are_accepted(outcome: dict) -> None:
    assert [outcome[name][:2] for name in ("sizes_true.mov", "packed_true.mov")] == [[3, []]] * 2
    assert [kind for _, kind, _ in outcome["tracks.mov"][1]] == ["too_large"]


@pytest.mark.heavy
def test_large_metadata_affects_only_its_photo(outcome: dict) -> None:
    for name in NOTES:
        rows, failures, _ = outcome[name.replace(" ", "_")]
        assert rows + len(failures) == 1, name


@pytest.mark.parametrize("every_nth", [1, 4])
def test_a_film_that_is_too_long_keeps_its_first_frames(tmp_path: Path, every_nth: int) -> None:
    film(tmp_path / "a.mkv", [numbered(i) for i in range(30)])
    rows, failures = decoded(tmp_path, max_length=20, every_nth=every_nth)
    assert [row["frame_index"] for row in rows] == list(range(0, 20, every_nth))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("too_large", 20)]
    assert decoded(tmp_path, max_length=30, every_nth=every_nth)[1] == []


def test_sound_after_the_last_frame_is_limited_to_ten_minutes(tmp_path: Path) -> None:
    film(tmp_path / "a.mkv", [numbered(i) for i in range(5)], sound=np.zeros(15 * 60 * 48_000, np.int16), fps=5)
    rows, failures = decoded(tmp_path, ("sound",))
    assert [round(len(row["sound"]) / 16_000, 1) for row in rows] == [0.2] * 4 + [600.0]
    assert failures == []


def _decode_all(folder: str) -> None:
    from framekiln.media.config import DecodeConfig
    from framekiln.media.discovery.listing import list_media
    from framekiln.media.packets.decode import decode
    from framekiln.media.units import Unit

    results = {}
    for media in list_media(folder):
        rows, failures = 0, []
        for packet in decode(Unit(name="u", media=(media,)), ["frame_64"], 0, DecodeConfig(max_length=LENGTH)):
            rows += packet.stop - packet.start
            failures += [[failure.frame_index, failure.kind, failure.message] for failure in packet.failures]
        results[media.media_id] = rows, failures, peak_mb()
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    _decode_all(sys.argv[1])
