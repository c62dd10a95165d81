"""Malformed files, made ones and those of the test material, decoded in a separate process that must stay small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine.memory import peak_mb
from tests.support.media.damaged import write_damaged
from tests.support.media.material import ROOT, media

PEAK_MB = 500  # the libraries alone take 180
SECONDS = 240  # ends a process that hangs

MADE = {
    "badcrc.png": "corrupt",
    "bomb_header.png": "too_large",
    "bomb_real.png": "too_large",
    "html.mp4": "unsupported",
    "mp4_cut_head.mp4": "truncated",
    "one.png": "unsupported",
    "text.jpg": "unsupported",
    "trunc_2.jpg": "truncated",
    "trunc_50.jpg": "truncated",
    "trunc_50.png": "truncated",
    "zero.jpg": "empty",
    "zero.mp4": "empty",
}
MET = {
    "compreface/corrupted.png": "corrupt",
    "compreface/truncated.jpg": "truncated",
    "file-type/fixture-corrupt.mkv": "corrupt",
    "file-type/fixture-json.webp": "unsupported",
    "fuzz/d79ee7159c75a937.tif": "corrupt",
    "image-rs/bad_bmp_Bad_reallybig.bmp": "too_large",
    "pillow/bmp_b_badwidth.bmp": "too_large",
    "pillow/broken_data_stream.png": "truncated",
    "pillow/crash-0c7e0e8e11ce787078f00b5b0ca409a167f070e0.tif": "corrupt",
    "pillow/decompression_bomb.gif": "too_large",
    "pillow/truncated_image.png": "truncated",
    "sharp/65536-uint32-limit.png": "too_large",
    "skimage_truncated.jpg": "truncated",
}
GOOD = {
    "png_named.jpg": 1,
    "exif/Portrait_6.jpg": 1,
    "image-rs/any-disposal.gif": 5,
    "pillow/apng_delay.png": 4,
    "pillow/exif_typeerror.jpg": 1,
    "pillow/hopper_bad_exif.jpg": 1,
    "pillow/pil_sample_cmyk.jpg": 1,
    "pillow/sugarshack_bad_mpo_header.jpg": 1,
}


@pytest.fixture(scope="module", params=["made", pytest.param("met", marks=pytest.mark.heavy)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Damaged files: made from whole ones, or as others met them."""
    return write_damaged(tmp_path_factory.mktemp("made")) if request.param == "made" else media("malformed")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> tuple[dict[str, int], dict[str, list[dict]], float]:
    """Rows by file, failures by file, and the process's peak memory in MB."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.media.test_malformed", str(folder)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    return result["rows"], result["failures"], result["peak_mb"]


def test_memory_is_bounded(outcome: tuple) -> None:
    assert outcome[2] < PEAK_MB


def test_every_file_gives_rows_or_exactly_one_failure(folder: Path, outcome: tuple) -> None:
    rows, failures, _ = outcome
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(rows.keys() | failures.keys()) == len(files)
    for name, lines in failures.items():
        if name not in rows:
            assert [line["frame_index"] for line in lines] == [None], name
            assert lines[0]["message"]
        else:
            assert all(line["frame_index"] is not None for line in lines), name


def test_reasons(folder: Path, outcome: tuple) -> None:
    rows, failures, _ = outcome
    reasons = MET if folder == ROOT / "media" / "malformed" else MADE
    assert {name: failures[name][0]["kind"] for name in reasons} == reasons
    whole = {name: count for name, count in GOOD.items() if (folder / name).exists()}
    assert whole and {name: rows.get(name) for name in whole} == whole


def _decode_all(folder: str) -> None:
    from dataclasses import asdict

    from framekiln.media.config import DecodeConfig
    from framekiln.media.discovery.listing import list_media
    from framekiln.media.packets.decode import decode
    from framekiln.media.units import form_units

    rows: dict[str, int] = {}
    failures: dict[str, list[dict]] = {}
    for unit in form_units(list_media(folder), slots=1):
        for packet in decode(unit, ["frame", "frame_224", "sound"], 1, DecodeConfig()):
            for name, halo in zip(*(packet.rows[column].to_pylist() for column in ("media_id", "halo")), strict=True):
                rows[name] = rows.get(name, 0) + (not halo)
            for failure in packet.failures:
                failures.setdefault(failure.media_id, []).append(asdict(failure))
    sys.stdout.write(json.dumps({"rows": rows, "failures": failures, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    _decode_all(sys.argv[1])
