"""Clips of a run's films: which files there are, what is in them, and what the table beside them says."""

from __future__ import annotations

import os
from pathlib import Path

import av
import pyarrow.parquet as pq
import pytest
from PIL import Image

import framekiln
from framekiln.contract.errors import FramekilnError
from framekiln.export import clips as clips_module
from tests.support.errors import fails
from tests.support.media.media_factory import click, film
from tests.support.media.photos import take
from tests.support.runs.serial_engine import without_ray
from tests.toys.functions import brightness

CUT = 25
FILMS = {"one.mp4": "libx264", "two.mkv": "libx265", "bad.mp4": "libx264"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Three films of 50 frames with a cut in the middle, one of them damaged after the run, and an animation."""
    folder = tmp_path_factory.mktemp("clips") / "in"
    (folder / "sub").mkdir(parents=True)
    shots = take("flower.jpg", CUT, 96, 128), take("china.jpg", 50 - CUT, 96, 128)
    for name, codec in FILMS.items():
        options = {"x265-params": "log-level=none:pools=1"} if codec == "libx265" else {"threads": "1"}
        sound = {"sound": click(1.5), "sound_codec": "aac"} if name == "one.mp4" else {}
        film(folder / "sub" / name, [*shots[0], *shots[1]], codec=codec, pix_fmt="yuv420p", options=options, **sound)
    first, *others = (Image.new("RGB", (32, 24), (shade, 0, 0)) for shade in (0, 90, 180))
    first.save(folder / "a.gif", save_all=True, append_images=others, duration=100)
    with without_ray():
        out = framekiln.run(folder, folder.parent / "out", stages=["shots", brightness])
    bad = folder / "sub" / "bad.mp4"
    status = bad.stat()
    with av.open(str(bad)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    with bad.open("r+b") as file:
        for place, size in places[30:34]:
            file.seek(place)
            file.write(bytes(size))
    os.utime(bad, ns=(status.st_atime_ns, status.st_mtime_ns))
    return out


def export(out, to, **options):
    seen = []
    summary = out.export("clips", to, **options, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] and [done for done, _ in seen] == sorted(done for done, _ in seen)
    return summary


def read_table(to, split="all"):
    return pq.read_table(to / "clips" / split / "metadata.parquet")


def frames_of(path):
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_each_shot_is_a_file_and_a_row(out, tmp_path):
    result = export(out, tmp_path, cut="exact", columns=["brightness"])
    table = read_table(tmp_path)
    rows = {row["file_name"]: row for row in table.to_pylist()}
    assert list(rows) == [
        *("sub/bad.mp4/000000-000024.mp4", "sub/one.mp4/000000-000024.mp4", "sub/one.mp4/000025-000049.mp4"),
        *("sub/two.mkv/000000-000024.mp4", "sub/two.mkv/000025-000049.mp4"),
    ]
    row = rows["sub/one.mp4/000025-000049.mp4"]
    assert (row["media_id"], row["shot"], row["first_frame"], row["frames"]) == ("sub/one.mp4", 1, 25, 25)
    assert (row["start_s"], row["end_s"], row["file_start_s"]) == pytest.approx((1.0, 2.0, 1.0))
    assert row["has_sound"] and row["exact"] and not rows["sub/two.mkv/000025-000049.mp4"]["has_sound"]
    brightness = out.table("frames").to_table(columns=["media_id", "frame_index", "brightness"]).to_pylist()
    own = {(item["media_id"], item["frame_index"]): item["brightness"] for item in brightness}
    assert row["brightness"] == own["sub/one.mp4", 25] and table.schema.field("start_s").metadata[b"unit"] == b"s"
    assert row["path"].endswith("in/sub/one.mp4")
    assert len(frames_of(tmp_path / "clips" / "all" / row["file_name"])) == 25
    assert result.images == {"all": 5} and "5.0 s of video in 3 films." in result.notes
    assert "1 animation." in result.notes[-1]


def test_a_damaged_film_is_a_row_of_errors(out, tmp_path):
    to = tmp_path / "exact"
    assert export(out, tmp_path / "copied").images == {"all": 5}
    result = export(out, to, cut="exact")
    (row,) = pq.read_table(to / "clips" / "errors.parquet").to_pylist()
    assert (row["media_id"], row["frame_index"], row["step"], row["kind"]) == ("sub/bad.mp4", 25, "export", "corrupt")
    assert result.images == {"all": 5} and "1 clip could not be cut" in result.notes[-2]
    kept = to / "clips" / "all" / "sub" / "one.mp4" / "000000-000024.mp4"
    os.utime(kept, ns=(0, 0))
    export(out, to, cut="exact")
    assert kept.stat().st_mtime_ns == 0


def test_copied_clips_of_chosen_frames_say_where_they_begin(out, tmp_path):
    export(out, tmp_path, where="media_id = 'sub/one.mp4' and frame_index between 28 and 40", of="frames")
    (row,) = read_table(tmp_path).to_pylist()
    assert (row["first_frame"], row["last_frame"], row["shot"]) == (28, 40, None)
    assert row["file_start_s"] <= row["start_s"] and row["frames"] >= 13 and not row["exact"]
    assert len(frames_of(tmp_path / "clips" / "all" / row["file_name"])) == row["frames"]


def test_a_line_says_how_far_copied_clips_begin_before_their_frames(out, tmp_path):
    where = "media_id = 'sub/one.mp4' and frame_index between 28 and 40"
    result = export(out, tmp_path / "copy", where=where, of="frames")
    (row,) = read_table(tmp_path / "copy").to_pylist()
    lead = row["start_s"] - row["file_start_s"]
    assert lead > 0.1 and any("1 copied clip begins" in note and f" {lead:.1f} s" in note for note in result.notes)
    notes = export(out, tmp_path / "exact", where=where, cut="exact").notes
    assert not any("copied" in note for note in notes) and not any("whole shots" in note for note in result.notes)
    assert any("only 13 of their 25 frames" in note for note in notes)


def test_copied_clips_are_not_split_by_shots(out, tmp_path):
    with fails("FK-EXPORT-CLIP-LEAK"):
        out.export("clips", tmp_path / "copy", split="50/50", by="shot")
    export(out, tmp_path / "exact", split="50/50", by="shot", cut="exact", where="media_id = 'sub/one.mp4'")
    assert not (tmp_path / "copy").exists() and len(list((tmp_path / "exact" / "clips").iterdir())) == 2


def test_an_export_that_was_stopped_goes_on(out, tmp_path, monkeypatch):
    where, cut, made = "media_id != 'sub/bad.mp4'", clips_module.cut, []

    def cut_three(*words, **options):
        made.append(words)
        if len(made) > 3:
            raise KeyboardInterrupt
        return cut(*words, **options)

    monkeypatch.setattr(clips_module, "cut", cut_three)
    with pytest.raises(KeyboardInterrupt):
        export(out, tmp_path, where=where)
    monkeypatch.setattr(clips_module, "cut", lambda *words, **options: made.append(words) or cut(*words, **options))
    files = sorted(path for path in (tmp_path / "clips").rglob("*.m*") if path.is_file())
    before = [path.stat().st_mtime_ns for path in files]
    assert len(files) == 3 and export(out, tmp_path, where=where).images == {"all": 4}
    assert len(made) == 5 and [path.stat().st_mtime_ns for path in files] == before
    files[0].unlink()
    export(out, tmp_path, where=where)
    assert len(made) == 6 and files[0].exists()
    assert read_table(tmp_path).num_rows == 4


def test_a_film_that_changed_since_the_run_is_not_cut(out, framekiln, tmp_path):
    paths = out.table("frames").to_table(columns=["path"])["path"].to_pylist()
    path = Path(next(path for path in paths if "two" in path))
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    try:
        framekiln("export", out.path, tmp_path, "--to", "clips", "--where", "media_id = 'sub/two.mkv'", code=1)
        with pytest.raises(FramekilnError) as failed:
            export(out, tmp_path, where="media_id = 'sub/two.mkv'")
    finally:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert failed.value.code == "FK-EXPORT-FAILED"
    errors = pq.read_table(tmp_path / "clips" / "errors.parquet")
    assert errors["kind"].to_pylist() == ["unreadable"] * 2


def test_a_column_that_is_missing_is_told(out, tmp_path):
    with fails("FK-SELECTION-COLUMN"):
        export(out, tmp_path, columns=["brightnes"])


def test_options_are_checked(out, tmp_path):
    for code, options in (
        *(
            ("FK-IDLE-OPTION", {"to": "coco", **idle})
            for idle in ({"cut": "exact"}, {"by": "shot"}, {"folders": "fps"}, {"shard_rows": 9})
        ),
        ("FK-IDLE-OPTION", {"to": "clips", "images": "copy"}),
        ("FK-IDLE-OPTION", {"to": "folder", "keypoints": "all"}),
        ("FK-IDLE-OPTION", {"to": "coco", "keypoints": "all", "include": ["boxes"]}),
        ("FK-EXPORT-CLIPS", {"to": "clips", "cut": "exactly"}),
        ("FK-EXPORT-EMPTY", {"to": "clips", "min_seconds": 99.0}),
    ):
        with fails(code):
            out.export(destination=tmp_path / "to", **options)
    assert not (tmp_path / "to").exists()


def test_the_command_does_the_same(out, framekiln, tmp_path):
    where = "media_id = 'sub/one.mp4' and shot = 1"
    shown = framekiln("export", out.path, tmp_path / "to", "--to", "clips", "--where", where, "--cut", "exact")
    assert "1 clip (all 1)" in shown
    (row,) = read_table(tmp_path / "to").to_pylist()
    assert (row["first_frame"], row["frames"]) == (25, 25)


def test_hugging_face_reads_the_folder(out, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    export(out, tmp_path / "to", where="media_id != 'sub/bad.mp4'", split="50/50")
    folders = {"data_dir": str(tmp_path / "to" / "clips"), "cache_dir": str(tmp_path)}
    files = {"train": "train/**", "val": "val/**"}
    found = datasets.load_dataset("videofolder", data_files=files, **folders)
    assert {name: rows.num_rows for name, rows in found.items()} == {"train": 2, "val": 2}
    assert set(found["train"]["media_id"]) != set(found["val"]["media_id"])
