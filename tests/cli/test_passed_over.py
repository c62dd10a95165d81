"""Files that are no media, on the command line: counted apart, and an exit code for an input without any frame."""

from __future__ import annotations

import json

from PIL import Image

from framekiln.cli.console import NOTHING_DONE


def test_an_input_of_sidecars_alone_has_a_code_of_its_own_and_photos_beside_them_none(serial, framekiln, tmp_path):
    photos, out = tmp_path / "in", tmp_path / "out"
    words = ("run", "-i", photos, "-o", out, "--stages", "lighting", "--max-errors", "0")
    photos.mkdir()
    for name, text in {"1.txt": "a caption", "1.json": "{}"}.items():
        (photos / name).write_text(text)
    assert "2 files passed over" in framekiln(*words, code=NOTHING_DONE)
    assert NOTHING_DONE == 4
    Image.new("RGB", (32, 24), (200, 30, 90)).save(photos / "1.png")
    output = framekiln(*words, "--vram-cap", 8)
    assert (
        "--vram-cap does nothing: no step runs on a GPU." in output and "1 frame in" in output and "3 files (" in output
    )
    record = json.loads((out / "run.json").read_text())
    assert record["errors"] == {} and record["passed_over"] == 2
    assert "2 files, not media" in (out / "report.html").read_text()


def test_a_step_that_fails_on_every_row_has_that_code_too(serial, framekiln, tmp_path):
    photos, out, pipeline = tmp_path / "in", tmp_path / "out", tmp_path / "p.yaml"
    photos.mkdir()
    for name in ("1.png", "2.png"):
        Image.new("RGB", (32, 24), (200, 30, 90)).save(photos / name)
    steps = "picky: {use: 'tests.toys:Picky', with: {refuse: [0]}}, near: {use: 'tests.toys:Neighbours'}"
    pipeline.write_text(f"steps: {{{steps}}}")
    framekiln("run", "-i", photos, "-o", out, "--pipeline", pipeline, code=NOTHING_DONE)
    assert json.loads((out / "run.json").read_text())["figures"]["picky"]["errors"] == 2
    done = framekiln("run", "-i", photos, "-o", out, "--pipeline", pipeline, "--stages", "near")
    assert "Columns of picky leave frames/" in done
