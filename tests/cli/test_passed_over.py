"""Files that are no media, on the command line: counted apart, and an exit code for an input without any frame."""

from __future__ import annotations

import json

from PIL import Image

from framekiln.cli.console import NOTHING_READ


def test_an_input_of_sidecars_alone_has_a_code_of_its_own_and_photos_beside_them_none(framekiln, tmp_path):
    photos, out = tmp_path / "in", tmp_path / "out"
    words = ("run", "-i", photos, "-o", out, "--stages", "lighting", "--max-errors", "0")
    photos.mkdir()
    for name, text in {"1.txt": "a caption", "1.json": "{}"}.items():
        (photos / name).write_text(text)
    assert "2 files passed over" in framekiln(*words, code=NOTHING_READ)
    assert NOTHING_READ == 4
    Image.new("RGB", (32, 24), (200, 30, 90)).save(photos / "1.png")
    output = framekiln(*words, "--vram-cap", 8)
    assert (
        "--vram-cap does nothing: no step runs on a GPU." in output and "1 frame in" in output and "3 files (" in output
    )
    record = json.loads((out / "run.json").read_text())
    assert record["errors"] == {} and record["passed_over"] == 2
    assert "2 files, not media" in (out / "report.html").read_text()
