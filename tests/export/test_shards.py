"""Formats with the pictures in them: each opened by its own library, and by plain readers where that is missing."""

from __future__ import annotations

import io
import json
import tarfile

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pil
from pycocotools import mask as coco

from framekiln.export.annotation import Annotation, Category, ExportedImage
from framekiln.export.formats import find_format
from framekiln.export.pictures import PictureReader
from framekiln.export.request import ExportRequest
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.samples import pan, photos, write_clip
from framekiln.output.object_store import Store
from tests.support.errors import fails
from tests.support.machine.buckets import empty_bucket

COLUMNS = pa.schema([("sharpness", pa.float32()), ("note", pa.string()), ("clip_embedding", pa.list_(pa.float16(), 4))])
PERSON = Category(name="person", keypoints=("nose", "left eye"), skeleton=((0, 1),))
SHARDS = ("webdataset", "hf", "lance")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five photos, one of which is broken, and a film of ten frames."""
    folder = tmp_path_factory.mktemp("shards")
    photo = Pil.open(photos()["flower.jpg"]).resize((120, 80))
    for number in range(5):
        photo.rotate(number).save(folder / f"a.b {number}.jpg")
    (folder / "a.b 3.jpg").write_bytes(b"\xff\xd8\xff")
    frames = pan(cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB), 10)
    write_clip(folder / "film.mp4", frames, np.zeros((1, 16_000), np.int16))
    return folder


def annotate(width, height):
    """A mask of half the picture's size, a pose and nothing else known."""
    mask = np.zeros((height // 2, width // 2), np.uint8)
    mask[5:20, 10:30] = 1
    code = coco.encode(np.asfortranarray(mask))
    return [
        Annotation(
            kind="masks",
            source="masks",
            category=Category(name="dog"),
            box=(20.0, 10.0, 60.0, 40.0),
            score=0.5,
            mask={"size": [height // 2, width // 2], "counts": code["counts"].decode()},
        ),
        Annotation(
            kind="poses",
            source="poses",
            category=PERSON,
            box=(1.0, 2.0, 3.5, 4.0),
            keypoints=[(1.5, 2.5, 2), (0.0, 0.0, 0)],
            track=("tracks", 7),
            attributes={"shot": 2, "size": float("nan")},
            embedding=[0.5, 0.25],
        ),
    ]


def rows_of(folder):
    """Photos in train and val in turns, and frames of the film in train."""
    keys = [(f"a.b {n}.jpg", 0, "photo", (120, 80)) for n in range(5)]
    keys += [("film.mp4", n, "video", (480, 360)) for n in range(0, 10, 2)]
    return [
        ExportedImage(
            media_id=name,
            frame_index=index,
            media_type=kind,
            uri="",
            path=None,
            width=width,
            height=height,
            time_s=index / 25 if kind == "video" else None,
            split="val" if kind == "photo" and n % 2 else "train",
            annotations=annotate(width, height) if index == 0 else [],
            values={"sharpness": 3.5, "note": "küche"} if n else {},
            embeddings={"clip_embedding": np.array([1, 0, 0.5, n], np.float16)},
        )
        for n, (name, index, kind, (width, height)) in enumerate(keys)
    ]


def export(folder, destination, to, images="copy"):
    request = ExportRequest(to=to, images=images, shard_rows=3)
    media = {
        path.name: MediaFile(media_id=path.name, path=str(path), size=path.stat().st_size, mtime_ns=1)
        for path in folder.iterdir()
    }
    writer = find_format(to)(destination, request)
    writer.bind(PictureReader(media=media, config=DecodeConfig(), way=images), COLUMNS)
    images = rows_of(folder)
    for start in range(0, len(images), 4):
        writer.write(images[start : start + 4])
    writer.end()
    return writer


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """The exports by format, each made once."""
    found = {}

    def of(to):
        if to == "lance":
            pytest.importorskip("lance", reason="pylance is not installed")
        if to not in found:
            destination = tmp_path_factory.mktemp(to)
            export(folder, Store(str(destination)), to)
            found[to] = destination
        return found[to]

    return of


def check_rows(rows):
    """Rows of train and val as dicts: right pictures, boxes, masks, keypoints and embeddings."""
    assert [(row["media_id"], row["frame_index"]) for row in rows["train"]] == [
        *((f"a.b {n}.jpg", 0) for n in (0, 2, 4)),
        *(("film.mp4", n) for n in range(0, 10, 2)),
    ]
    assert [row["media_id"] for row in rows["val"]] == ["a.b 1.jpg"]  # without the broken one
    for row in [*rows["train"], *rows["val"]]:
        assert (row["width"], row["height"]) == row["picture"].size
        assert row["note"] == ("küche" if row["media_id"] != "a.b 0.jpg" else None)
        assert len(row["objects"]) == (2 if row["frame_index"] == 0 else 0)
        assert row["embedding"].dtype == np.float32 and row["embedding"][:3].tolist() == [1, 0, 0.5]
        for dog, person in [row["objects"]] if row["objects"] else []:
            assert dog["bbox"] == [20, 10, 40, 30] and dog["category"] == "dog" and dog["score"] == 0.5
            height, width = dog["segmentation"]["size"]
            assert (width, height) == row["picture"].size
            mask = coco.decode({"size": [height, width], "counts": dog["segmentation"]["counts"].encode()})
            assert mask[10:40, 20:60].all() and mask.sum() == 30 * 40
            assert person["keypoints"] == [1.5, 2.5, 2, 0, 0, 0] and (person["track_table"], person["track_id"]) == (
                "tracks",
                7,
            )
            facts = person["attributes"]
            assert person["embedding"] == [0.5, 0.25]
            assert (json.loads(facts) if isinstance(facts, str) else facts) == {"shot": 2, "size": None}


def test_webdataset_as_tar_files(made):
    folder = made("webdataset")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["categories.json", *(f"train-00000{n}.tar" for n in range(3)), "val-000000.tar"]
    rows = {"train": [], "val": []}
    for name in names[1:]:
        with tarfile.open(folder / name) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}
        for key in sorted({name.partition(".")[0] for name in members}):
            record = json.loads(members[f"{key}.json"])
            picture = Pil.open(io.BytesIO(members[f"{key}.jpg"]))
            vector = np.load(io.BytesIO(members[f"{key}.clip_embedding.npy"]))
            rows[record["split"]].append({"note": None, **record, "picture": picture, "embedding": vector})
    check_rows(rows)
    assert json.loads((folder / "categories.json").read_text())[1]["keypoints"] == ["nose", "left eye"]


def test_webdataset_as_its_library_reads_it(made):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    folder = made("webdataset")
    shards = str(folder / "train-{000000..000002}.tar")
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode("pil"))
    assert [sample["json"]["frame_index"] for sample in samples] == [0, 0, 0, 0, 2, 4, 6, 8]
    assert samples[0]["jpg"].size == (120, 80) and samples[0]["clip_embedding.npy"].dtype == np.float32


def test_hf_as_parquet(made):
    folder = made("hf")
    assert "data/val-*.parquet" in (folder / "README.md").read_text()
    rows = {}
    for split, count in (("train", 3), ("val", 1)):
        files = sorted((folder / "data").glob(f"{split}-*.parquet"))
        assert len(files) == count
        rows[split] = pa.concat_tables(map(pq.read_table, files)).to_pylist()
    check_rows({split: [from_arrow(row, row["image"]["bytes"]) for row in part] for split, part in rows.items()})


def test_hf_as_its_library_reads_it(made, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    loaded = datasets.load_dataset(str(made("hf")), cache_dir=str(tmp_path))
    assert {name: len(part) for name, part in loaded.items()} == {"train": 8, "val": 1}
    first = loaded["train"][0]
    assert first["image"].size == (120, 80) and first["objects"][0]["category"] == "dog"
    assert loaded["train"].features["clip_embedding"].feature.dtype == "float32"


def test_lance_as_its_library_reads_it(made):
    folder = made("lance")
    import lance

    rows = {split: lance.dataset(str(folder / f"{split}.lance")).to_table().to_pylist() for split in ("train", "val")}
    check_rows({split: [from_arrow(row, row["image"]) for row in part] for split, part in rows.items()})
    assert lance.dataset(str(folder / "train.lance")).take([7]).to_pylist()[0]["frame_index"] == 8


def from_arrow(row, data):
    return row | {"picture": Pil.open(io.BytesIO(data)), "embedding": np.array(row["clip_embedding"], np.float32)}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", ["webdataset", "hf"])
def test_an_export_that_was_cut_goes_on_and_ends_with_the_same_bytes(folder, made, tmp_path, to):
    """A shard that is there is not written again; one that is not whole was never there."""
    whole = contents(made(to))

    class Cut(Store):
        left = 2

        def writing(self, path):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            return super().writing(path)

    with pytest.raises(KeyboardInterrupt):
        export(folder, Cut(str(tmp_path / "out")), to)
    kept = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in contents(tmp_path / "out")}
    assert len(kept) == 2 and all(whole[name] == data for name, data in contents(tmp_path / "out").items())
    export(folder, Store(str(tmp_path / "out")), to)
    assert contents(tmp_path / "out") == whole
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == time for name, time in kept.items())


def test_lance_goes_on_after_its_last_commit(folder, made, tmp_path):
    lance = pytest.importorskip("lance", reason="pylance is not installed")
    kind = find_format("lance")
    write_shard = kind.write_shard
    done = []

    def write_two(self, *given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(given)
        write_shard(self, *given)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(kind, "write_shard", write_two)
        export(folder, Store(str(tmp_path)), "lance")
    export(folder, Store(str(tmp_path)), "lance")
    for split in ("train", "val"):
        again, whole = (lance.dataset(str(place / f"{split}.lance")).to_table() for place in (tmp_path, made("lance")))
        assert again.equals(whole)


@pytest.mark.parametrize("to", ["webdataset", "hf"])
def test_a_bucket_gets_the_same_bytes(folder, made, to):
    store, bucket = empty_bucket()
    export(folder, store, to)
    found = {name.removeprefix("/out/"): file.getvalue() for name, file in bucket.store.items()}
    assert found == contents(made(to))


def test_what_lance_lacks_is_one_sentence(monkeypatch):
    store, _ = empty_bucket()
    monkeypatch.setitem(__import__("sys").modules, "lance", None)
    with fails("FK-EXPORT-LANCE", "framekiln[lance]"):
        find_format("lance")(store, ExportRequest(to="lance"))


def test_lance_refuses_a_bucket():
    pytest.importorskip("lance", reason="pylance is not installed")
    with fails("FK-EXPORT-LANCE", "copy"):
        find_format("lance")(empty_bucket()[0], ExportRequest(to="lance"))


def test_a_row_whose_picture_is_gone_is_counted(folder, tmp_path):
    writer = export(folder, Store(str(tmp_path)), "webdataset", images="resize:40")
    assert [failure.media_id for failure in writer.failures] == ["a.b 3.jpg"]
    with tarfile.open(tmp_path / "train-000001.tar") as tar:
        record = json.loads(tar.extractfile("000001000000.json").read())
    assert (record["width"], record["height"], record["objects"][0]["bbox"][2]) == (53, 40, 4.417)  # 40 of 480 px
