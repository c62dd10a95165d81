"""Exports of a real run of photos and a film, from its output to what training code opens."""

from __future__ import annotations

import json
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pil

import framekiln
from framekiln.cli.app import main
from framekiln.export.export import Tally
from framekiln.media.samples import pan, photos, write_clip
from framekiln.output.object_store import Store
from tests.support.errors import fails
from tests.support.machine.object_server import Objects, served
from tests.support.runs.serial_engine import without_ray


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """An output of nine photos (a turned one, a HEIF, copies of one) and a film of 20 frames."""
    media = tmp_path_factory.mktemp("media")
    photo = Pil.open(photos()["flower.jpg"]).resize((160, 100))
    for number in range(5):
        photo.rotate(20 * number).save(media / f"{number}.v1.JPG", format="JPEG")
    turned = Pil.Exif()
    turned[0x0112] = 6
    photo.save(media / "turned.jpg", exif=turned)
    photo.save(media / "phone.heic")
    for size in ((160, 100), (120, 75)):
        Pil.open(photos()["china.jpg"]).resize(size).save(media / f"copy {size[0]}.png")
    image = cv2.cvtColor(cv2.imread(str(photos()["grace_hopper.jpg"])), cv2.COLOR_BGR2RGB)
    (media / "test").mkdir()
    write_clip(media / "test" / "a.mp4", pan(image, 20), np.zeros((1, 16_000), np.int16))
    folder = tmp_path_factory.mktemp("output") / "out"
    with without_ray():
        return framekiln.run(media, folder, stages=["lighting", "fingerprint", "duplicates"])


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def images_of(folder, split="all"):
    return json.loads((folder / "annotations" / f"instances_{split}.json").read_text())["images"]


def test_each_frame_of_a_film_has_a_name_without_pictures_too(out, tmp_path):
    names = {}
    for images in ("none", "copy"):
        out.export("coco", tmp_path / images, images=images)
        names[images] = [image["file_name"] for image in images_of(tmp_path / images)]
        out.export("cvat", tmp_path / f"cvat {images}", images=images)
        (file,) = (tmp_path / f"cvat {images}" / "annotations").iterdir()
        assert re.findall(r'<image id="\d+" name="([^"]+)"', file.read_text()) == names[images]
    assert len(set(names["none"])) == 29 == len(names["none"])
    assert len(set(names["none"]) & set(names["copy"])) == 20


def test_links_are_photos_and_the_rest_is_written(out, tmp_path):
    out.export("coco", tmp_path)
    images = {image["file_name"]: image for image in images_of(tmp_path)}
    assert len(images) == 29
    assert (tmp_path / "images/all/0.v1.JPG").is_symlink()
    for name in ("turned.jpg", "phone.heic.jpg", "test/a.mp4/000019.jpg"):
        assert not (tmp_path / "images/all" / name).is_symlink()
    for name, image in images.items():
        with Pil.open(tmp_path / "images/all" / name) as picture:
            assert picture.size == (image["width"], image["height"]), name  # as Pillow shows it, which turns nothing
    assert (images["turned.jpg"]["width"], images["turned.jpg"]["height"]) == (100, 160)


def test_an_export_goes_on_after_it_was_stopped_and_refuses_another(out, tmp_path):
    first, second = tmp_path / "whole", tmp_path / "cut here"
    out.export("coco", first, images="resize:50")

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        out.export("coco", second, images="resize:50", progress=stop)
    times = {path: path.stat().st_mtime_ns for path in second.rglob("*.jpg")}
    assert len(times) == 29
    (second / "images" / "all" / ".tmp-0").write_bytes(b"of an export that was killed")
    out.export("coco", second.as_uri(), images="resize:50")
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    whole, again = contents(first), contents(second)
    assert whole.keys() == again.keys()
    assert {name for name in whole if whole[name] != again[name]} == {"export.json"}  # which has the place
    for other in ({"images": "copy"}, {"images": "resize:50", "where": "media_type = 'photo'"}):
        with fails("FK-EXPORT-OTHER"):
            out.export("coco", second, **other)


def test_splits_reach_the_shards_and_leak_nothing(out, tmp_path):
    summary = out.export("webdataset", tmp_path, split="60/40", shard_rows=6)
    assert any(note.startswith("0 groups in two splits") for note in summary.notes)
    at = {}
    for path in tmp_path.glob("*.tar"):
        with tarfile.open(path) as tar:
            records = [json.loads(tar.extractfile(member).read()) for member in tar if member.name.endswith(".json")]
        for record in records:
            at.setdefault(record["media_id"], set()).add(path.name.partition("-")[0])
    assert len(at) == 10 and all(len(splits) == 1 for splits in at.values())
    assert at["copy 160.png"] == at["copy 120.png"]
    counts = Counter(summary.images)
    assert counts["train"] + counts["val"] == 29 and counts["train"] == 20  # the film alone has 20


def test_shards_go_to_a_bucket_and_the_same_export_finds_them_done(out, tmp_path):
    out.export("webdataset", tmp_path, shard_rows=10)
    with served(Objects()) as objects:
        place = objects.url.format("shards")
        said = out.export("webdataset", place, shard_rows=10)
        marks = [data for name, data in objects.files.items() if name.endswith("export.json")]
        assert "id:secret@" in place and "secret" not in str(said) and len(marks) == 1 and b"secret" not in marks[0]
        tars = {name.rpartition("/")[2]: data for name, data in objects.files.items() if name.endswith(".tar")}
        assert tars == {path.name: path.read_bytes() for path in tmp_path.glob("*.tar")} and len(tars) == 3
        again = objects.count(lambda: out.export("webdataset", place, shard_rows=10))
        assert not any(method in ("PUT", "POST") and key.endswith(".tar") for method, key in again)
        with fails("FK-EXPORT-LINK"):
            out.export("coco", objects.url.format("linked"), images="link")


def test_folders_are_splits_and_categories_with_a_table_each(out, tmp_path):
    summary = out.export("folder", tmp_path, images="copy", split="60/40", folders="lighting_key")
    rows = []
    for split in ("train", "val"):
        found = pq.read_table(tmp_path / split / "metadata.parquet").to_pylist()
        assert len(found) == summary.images[split]
        for row in found:
            assert (tmp_path / split / row["file_name"]).is_file()
            assert row["file_name"].partition("/")[0] == row["lighting_key"]
        rows += found
    assert {row["media_id"] for row in rows} == set(out.table("frames").to_table(["media_id"])["media_id"].to_pylist())


def test_what_a_format_cannot_do_is_one_sentence(out, tmp_path):
    for code, options in (
        ("FK-EXPORT-HOLDS", {"to": "webdataset", "images": "link"}),
        ("FK-EXPORT-CROP", {"to": "hf", "images": "crop:faces"}),
        ("FK-EXPORT-SHARD-ROWS", {"to": "hf", "shard_rows": 0}),
    ):
        with fails(code):
            out.export(destination=tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_folders_as_datasets_reads_them(out, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    where = "media_id like 'copy%' or media_type = 'video'"  # the film is in a folder `test`, which is no split
    options = {"images": "resize:40", "where": where, "folders": "lighting_key", "split": "50/50", "by": "duplicate"}
    written = out.export("folder", tmp_path / "made", **options).images
    files = {split: f"{split}/**" for split in written}
    folders = {"data_dir": str(tmp_path / "made"), "cache_dir": str(tmp_path / "cache")}
    loaded = datasets.load_dataset("imagefolder", data_files=files, **folders)
    rows = {split: list(loaded[split]) for split in files}
    assert {split: len(found) for split, found in rows.items()} == written and sum(written.values()) == 22
    assert len({(split, row["media_id"]) for split, found in rows.items() for row in found}) == 3
    assert all(min(row["image"].size) == 40 for found in rows.values() for row in found)


def test_a_file_that_changed_since_the_run_is_said_before_anything_is_written(out, tmp_path):
    paths = out.table("frames").to_table(["path"])["path"].to_pylist()
    source = Path(next(path for path in paths if path.endswith("4.v1.JPG")))
    source.write_bytes(source.read_bytes() + b"more")
    with fails("FK-INPUT-CHANGED", "run again"):
        out.export("hf", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    out.export("coco", tmp_path / "names", images="none")
    assert Store(str(tmp_path / "names")).folders() == ["annotations"]


def test_folders_without_split_and_category_are_the_destination_itself(out, tmp_path):
    for images in ("link", "copy"):
        out.export("folder", tmp_path / images, images=images, where="media_type = 'video' or media_id = 'turned.jpg'")
        names = pq.read_table(tmp_path / images / "metadata.parquet")["file_name"].to_pylist()
        assert "test/a.mp4/000019.jpg" in names and all((tmp_path / images / name).is_file() for name in names)
    out.export("folder", tmp_path / "types", images="none", folders="media_type")
    names = pq.read_table(tmp_path / "types" / "metadata.parquet")["file_name"].to_pylist()
    assert {name.partition("/")[0] for name in names} == {"photo", "video"}


def test_an_export_that_wrote_nothing_leaves_its_destination_free(out, tmp_path):
    with fails("FK-EXPORT-COLUMN"):
        out.export("folder", tmp_path / "new", folders="lighting_kee", images="none")
    assert not (tmp_path / "new").exists()
    out.export("folder", tmp_path / "new", folders="lighting_key", images="none")
    mark = json.loads((tmp_path / "new" / "export.json").read_text())
    (tmp_path / "alone").mkdir()
    del mark["summary"]
    (tmp_path / "alone" / "export.json").write_text(json.dumps(mark))
    assert sum(out.export("coco", tmp_path / "alone", images="none").images.values()) == 29
    with fails("FK-EXPORT-OTHER"):
        out.export("folder", tmp_path / "alone", images="none")


def test_ctrl_c_says_that_the_same_command_goes_on(out, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tally, "add", stop)
    monkeypatch.setattr("framekiln.cli.console.leave", sys.exit)  # which ends the process
    with pytest.raises(SystemExit) as end:
        main(["export", out.path, str(tmp_path), "--to", "coco", "--images", "none"])
    said = capsys.readouterr().err
    assert end.value.code == 130 and said.strip() == "Stopped. The same command continues."
