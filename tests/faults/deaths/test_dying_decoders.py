"""Files that crash or hang a decoder are isolated; a video keeps the frames before that."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.samples import pan, tone, write_clip
from framekiln.media.source_reader import ReadLimit
from framekiln.media.units import Segments
from framekiln.planning.step import DecodeStep
from framekiln.runtime.recovery.decode_guard import find_limit
from tests.faults.chaos import ROOT
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import table

BROKEN = str(Path(__file__).parent / "broken_decoders")
FATES = {  # file: the start of its error, kind and frame, and words of its message
    "fatal.mp4": ("crashed", 21, "(SIGABRT) after 21 frames"),
    "photo2.png": ("crashed", None, "(SIGSEGV)"),
    "photo4.png": ("crashed", None, "(it hung)"),
}


@pytest.fixture
def media(tmp_path):
    """Six photos, of which one crashes a decoder and one hangs it, and a film that does at its frame 21."""
    for i in range(6):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    for number, words in ((2, b"crash me"), (4, b"hang me")):
        with (tmp_path / "in" / f"photo{number}.png").open("ab") as file:
            file.write(words)
    image = np.random.default_rng(0).integers(0, 255, (600, 800, 3), np.uint8)
    write_clip(tmp_path / "in" / "fatal.mp4", pan(image, 40), tone(1.6, 440))
    return tmp_path / "in"


def test_a_child_finds_how_far_a_file_can_be_read(media, monkeypatch):
    monkeypatch.syspath_prepend(BROKEN)  # children get this process's path
    for i in (1, 3, 5):
        (media / f"photo{i}.png").unlink()
    step = DecodeStep(config=DecodeConfig(), columns=("frame",), halo=0, cpus=1.0, workers=1, timeout_s=0.0)
    patience = {"photo4.png": 1.5}  # the others never run out of time, on a busy machine neither
    limits = {
        file.media_id: find_limit(replace(step, timeout_s=patience.get(file.media_id, 300.0)), file, Segments())
        for file in list_media(str(media))
    }
    assert limits == {
        "photo0.png": None,
        "fatal.mp4": ReadLimit(21, "SIGABRT"),
        "photo2.png": ReadLimit(-1, "SIGSEGV"),
        "photo4.png": ReadLimit(-1, "it hung"),
    }


@pytest.mark.heavy
@pytest.mark.slow
def test_files_that_kill_decoders_are_isolated(media, tmp_path):
    (tmp_path / "pipeline.yaml").write_text("steps: {crc: {use: 'tests.toys:Checksum'}}\n")
    (tmp_path / "profile.yaml").write_text("decode: {workers: 1, timeout_s: 5}\n")
    words = ["--pipeline", "pipeline.yaml", "--profile", "profile.yaml", "--input", "in", "--output", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "framekiln", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([BROKEN, str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    frames = table(tmp_path / "out", FRAMES).to_pylist()
    names = ["fatal.mp4"] * 21 + [f"photo{i}.png" for i in (0, 1, 3, 5)]
    assert [row["media_id"] for row in frames] == names and all(row["crc"] is not None for row in frames)
    errors = {row["media_id"]: row for row in table(tmp_path / "out", ERRORS).to_pylist()}
    assert errors.keys() == FATES.keys()
    for name, error in errors.items():
        kind, frame, words = FATES[name]
        assert (error["kind"], error["frame_index"]) == (kind, frame) and words in error["message"]
