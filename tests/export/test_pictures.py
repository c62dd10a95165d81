"""Pictures of rows: the bytes of a file where readers agree on them, else the pixels that stages saw."""

from __future__ import annotations

import io
import json

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pil

import framekiln
from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import Annotation, Category, ExportedImage
from framekiln.export.pictures import PictureReader
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode_frames
from framekiln.media.samples import pan, photos, write_clip
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.output.unit_table import write_units
from framekiln.runtime.run.record import sealed
from tests.support.errors import fails
from tests.support.runs import export_factory
from tests.support.runs.export_factory import HEIGHT, PHOTOS, WIDTH, write_output


def media_of(folder):
    return {
        path.name: MediaFile(media_id=path.name, path=str(path), size=path.stat().st_size, mtime_ns=1)
        for path in folder.iterdir()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A photo as JPEG, PNG and HEIF, turned, cut off; an animation and a film of 300 frames, in three segments."""
    folder = tmp_path_factory.mktemp("pictures")
    photo = Pil.open(photos()["flower.jpg"]).resize((320, 200))
    photo.save(folder / "plain.jpg")
    photo.save(folder / "plain.png")
    photo.save(folder / "phone.heic")
    turned = Pil.Exif()
    turned[0x0112] = 6
    photo.save(folder / "turned.jpg", exif=turned)
    (folder / "cut.jpg").write_bytes((folder / "plain.jpg").read_bytes()[:-3000])
    photo.save(folder / "moving.gif", save_all=True, append_images=[photo.rotate(90), photo.rotate(180)])
    image = cv2.cvtColor(cv2.imread(str(photos()["china.jpg"])), cv2.COLOR_BGR2RGB)
    write_clip(folder / "film.mp4", pan(image, 300), np.zeros((1, 16_000), np.int16))
    (folder / "none.jpg").write_bytes(b"\xff\xd8\xff and nothing else")
    return folder


def read(folder, way, *keys, annotations=()):
    """The pictures of some frames, each a list or a failure."""
    media, images = media_of(folder), []
    for name, index in keys:
        height, width = shown(folder, name, min(index, 299)).shape[:2] if name != "none.jpg" else (1, 1)
        kind = {".mp4": "video", ".gif": "animation"}.get(name[-4:], "photo")
        size = {"width": width, "height": height, "annotations": annotations}
        images.append(ExportedImage(media_id=name, frame_index=index, media_type=kind, uri="", path=None, **size))
    found = list(PictureReader(media=media, config=DecodeConfig(), way=way).read(images))
    assert all(
        (image.width, image.height) == (still.width, still.height)
        for pictures in found
        if isinstance(pictures, list)
        for image, still in pictures
    )
    return [pictures if isinstance(pictures, Failure) else [still for _, still in pictures] for pictures in found]


def pixels(still):
    return np.asarray(Pil.open(io.BytesIO(still.data)).convert("RGB"))


def shown(folder, name, index=0):
    frames = decode_frames(media_of(folder)[name], ("frame",), DecodeConfig())
    return next(frame.images["frame"] for frame in frames if frame.index == index)


def test_copies_are_the_file_where_all_readers_show_it_alike(folder):
    names = ["plain.jpg", "plain.png"]
    for name, (still,) in zip(names, read(folder, "copy", *((name, 0) for name in names)), strict=True):
        assert still.data == (folder / name).read_bytes() and name.endswith(still.ending)
        assert (still.height, still.width) == (200, 320)


@pytest.mark.parametrize("name", ["turned.jpg", "cut.jpg", "phone.heic", "moving.gif"])
def test_other_photos_are_encoded_as_they_were_seen(folder, name):
    """Pillow, which turns nothing and refuses what is cut off, shows what the stages saw."""
    ((still,),) = read(folder, "copy", (name, 0))
    right = shown(folder, name)
    assert still.data != (folder / name).read_bytes() and still.ending == ".jpg"
    assert pixels(still).shape == right.shape == (still.height, still.width, 3)
    assert np.abs(pixels(still).astype(int) - right).mean() < 3


def test_frames_of_films_and_animations_are_those_of_their_numbers(folder):
    keys = [("moving.gif", 1), ("film.mp4", 0), ("film.mp4", 7), ("film.mp4", 290), ("plain.jpg", 0), ("film.mp4", 140)]
    stills = [still for (still,) in read(folder, "copy", *keys)]
    for key, still in zip(keys, stills, strict=True):
        assert np.abs(pixels(still).astype(int) - shown(folder, *key)).mean() < 3, key
    assert (
        np.abs(pixels(stills[1]).astype(int) - pixels(stills[2])).mean() > 3
    )  # the film moves: a wrong one would show


def test_resizing_is_by_the_short_side_and_never_enlarges(folder):
    keys = [("plain.jpg", 0), ("turned.jpg", 0), ("film.mp4", 3), ("phone.heic", 0)]
    sizes = [(still.height, still.width) for (still,) in read(folder, "resize:100", *keys)]
    assert sizes == [(100, 160), (160, 100), (100, 133), (100, 160)]
    assert {(still.height, still.width) for (still,) in read(folder, "resize:4000", *keys[:1])} == {(200, 320)}


def test_what_cannot_be_read_is_said_and_the_others_come(folder):
    first, gone, last, film = read(
        folder, "copy", ("plain.jpg", 0), ("none.jpg", 0), ("plain.png", 0), ("film.mp4", 4000)
    )
    assert isinstance(gone, Failure) and gone.media_id == "none.jpg"
    assert isinstance(film, Failure) and film.frame_index == 4000
    assert first[0].ending == ".jpg" and last[0].ending == ".png"


def test_crops_are_faces_with_a_margin_and_their_own_landmarks(folder):
    def face(*box):
        marks = [(box[0] + 1, box[1] + 2, 2), (0.0, 0.0, 0)]
        return Annotation(kind="faces", source="faces", category=Category(name="face"), box=box, keypoints=marks)

    faces = [face(100.0, 50.0, 120.0, 80.0), face(-10.0, 0.0, 30.0, 20.0), face(400.0, 0.0, 420.0, 9.0)]
    ((first, edge),) = read(folder, "crop:faces", ("plain.jpg", 0), annotations=faces)
    assert (first.height, first.width) == (48, 32)  # 30 x 20 and 0.3 of each on each side
    right = shown(folder, "plain.jpg")[41:89, 94:126]
    assert np.abs(pixels(first).astype(int) - right).mean() < 3
    assert (edge.height, edge.width) == (26, 42)


@pytest.mark.parametrize(("name", "expected"), [("Ada", "Ada"), ("6", "%36"), ("none", "%6Eone")])
def test_faces_are_cut_into_a_folder_for_each_person(tmp_path, monkeypatch, name, expected):
    monkeypatch.setattr(export_factory, "NAME", name)
    store = Store(str(write_output(tmp_path / "out", tmp_path / "media")))
    path = tmp_path / "media" / PHOTOS[0]
    path.parent.mkdir(parents=True)
    Pil.new("RGB", (WIDTH, HEIGHT)).save(path)
    media = MediaFile(media_id=PHOTOS[0], path=str(path), size=path.stat().st_size, mtime_ns=path.stat().st_mtime_ns)
    write_units(store, [Unit(name="0123456789abcdef", media=(media,))])
    store.write("run.json", json.dumps(sealed({"decode": {}, "steps": {}, "figures": {}, "profile": {}})).encode())
    asked = {"where": "list_contains(identities, 5)", "images": "crop:faces", "include": "faces,identities"}
    framekiln.open(store.root).export("folder", tmp_path / "to", **asked)
    crops = {
        path.relative_to(tmp_path / "to").parts[0]: Pil.open(path).size for path in (tmp_path / "to").rglob("*.jpg")
    }
    assert crops == {expected: (13, 20), "6": (13, 20)}
    table = pq.read_table(tmp_path / "to" / "metadata.parquet")
    assert table.select(["identity", "person"]).to_pylist() == [
        {"identity": 5, "person": name},
        {"identity": 6, "person": None},
    ]
    with fails("FK-EXPORT-KIND"):
        framekiln.open(store.root).export("folder", tmp_path / "no", include="faces")
