"""Inpainting: what is outside the mask stays to the bit, what is inside is replaced, and regions are what they say.

No trained weights are at hand, so nothing is said of how good a painting looks. Where only geometry matters a painter
that fills in one colour, or shows its picture again, stands in for the network.
"""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from pipeline.columns import pack
from pipeline.ledger import cover
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.stage import Placement
from pipeline.storage import Store
from stages.inpaint import Inpaint
from stages.nets.crops import GRID, Framing, crops, cut
from stages.nets.ffc import Sizes
from stages.nets.masks import BOX, MASK, SEGMENTATION, encode
from tests.material import media

COLOUR = np.array([10, 200, 90], np.float32)
INSTANCE = pa.struct([("category", pa.string()), ("probability", pa.float32())])


def fill(images, masks):
    """One colour, whatever is asked."""
    return np.stack([np.broadcast_to(COLOUR, image.shape) for image in images])


def echo(images, masks):
    """What it was shown."""
    return np.stack(images).astype(np.float32)


def make(painter=fill, **config):
    stage = Inpaint(Inpaint.Config(**{"region": "all", **config}))
    stage._paint = painter
    return stage


def network(**config):
    """The stage with a real, small network and random weights."""
    from stages.nets.lama import Eager

    return make(Eager(None, Placement(), 8, Sizes(width=8, blocks=1)), **config)


def values(*masks):
    """Masks as values of MASK."""
    return [{"segmentation": coded, "area": int(mask.sum())} for coded, mask in zip(encode(masks), masks, strict=True)]


def table(frames, masks):
    return pa.table({"frame": pack(frames), "masks": pa.array(masks, pa.list_(MASK))})


def opened(data):
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def paint(stage, image, *masks):
    """The painted picture and its share."""
    (row,) = stage(table([image], [values(*masks)])).to_pylist()
    return None if row["inpainted"] is None else opened(row["inpainted"]), row["inpainted_share"]


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def rectangle(height, width, top, bottom, left, right):
    mask = np.zeros((height, width), bool)
    mask[top:bottom, left:right] = True
    return mask


def grown(mask, px):
    """By another library."""
    return distance_transform_edt(~mask) <= px if mask.any() else mask


# Pixels


def test_a_real_photo_stays_to_the_bit_outside_the_mask_and_changes_inside():
    image = cv2.imread(str(media("inpaint/overture-creations-5sI6fQgYIuo.png")))[:, :, ::-1].copy()
    mask = cv2.imread(str(media("inpaint/overture-creations-5sI6fQgYIuo_mask.png")), cv2.IMREAD_GRAYSCALE) > 127
    for config in ({}, {"feather": 0}, {"max_side": 128}, {"dilate": 0, "feather": 0}):
        painted, share = paint(network(**config), image, mask)
        inside = grown(mask, config.get("dilate", 8))
        assert (painted[~inside] == image[~inside]).all()
        assert (painted[mask] != image[mask]).any(axis=1).mean() > 0.98, "random weights may hit a colour by chance"
        assert share == pytest.approx(inside.mean())


@pytest.mark.parametrize("dilate", [0, 1, 3, 8, 20])
def test_all_of_the_dilated_mask_is_replaced_and_nothing_else(dilate):
    image, mask = noise(150, 200), rectangle(150, 200, 40, 60, 100, 103)
    mask[90, 20] = True
    painted, share = paint(make(dilate=dilate, feather=0), image, mask)
    inside = grown(mask, dilate)
    assert (painted == np.where(inside[:, :, None], COLOUR.astype(np.uint8), image)).all()
    assert share == pytest.approx(inside.mean())


def test_the_feather_rises_from_the_edge_to_the_object():
    image, mask = np.full((120, 160, 3), 255, np.uint8), rectangle(120, 160, 40, 80, 0, 60)
    painted, _ = paint(make(dilate=8, feather=6), image, mask)
    inside = grown(mask, 8)
    alpha = np.minimum(1, distance_transform_edt(inside) / 7)[:, :, None]
    expected = np.rint(alpha * COLOUR + (1 - alpha) * 255)
    assert np.abs(painted.astype(float) - expected).max() <= 1
    assert (painted[mask] == COLOUR).all(), "none of the object shows through, also at the frame's edge"
    row = painted[60, 50:80, 0].astype(int)
    assert (np.diff(row) >= 0).all() and len(set(row)) > 5


@pytest.mark.parametrize("size", [(700, 900), (333, 1500), (2000, 310)])
def test_reduced_crops_come_back_to_their_place(size):
    """A picture that is linear in both directions survives reduction and enlargement; one pixel off would be 1 to 3."""
    down, across = np.meshgrid(*(np.arange(side) / max(size) for side in size), indexing="ij")
    image = np.rint(np.stack([255 * down, 255 * across, 127 * (down + across)], axis=2)).astype(np.uint8)
    mask = rectangle(*size, size[0] // 10, size[0] - 33, 57, size[1] - size[1] // 8)
    shapes = []

    def listen(images, masks):
        shapes.extend(one.shape for one in images)
        return echo(images, masks)

    painted, _ = paint(make(listen, max_side=256, min_margin=10), image, mask)
    assert max(max(shape[:2]) for shape in shapes) == 256
    assert np.abs(painted.astype(int) - image).max() <= 2


def test_unreduced_crops_come_back_exactly():
    image = noise(500, 700)
    mask = rectangle(500, 700, 0, 90, 600, 700) | rectangle(500, 700, 300, 420, 10, 200)
    painted, _ = paint(make(echo), image, mask)
    assert (painted == image).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (5, 3), (8, 8), (65, 7), (100, 130)])
@pytest.mark.parametrize("kind", ["nothing", "a corner", "an edge", "everything"])
def test_frames_of_any_size_and_masks_at_any_edge(shape, kind):
    image, (height, width) = noise(*shape), shape
    window = {"nothing": (0, 0, 0, 0), "a corner": (0, 1, 0, 1), "an edge": (0, height, 0, 1)}
    mask = rectangle(*shape, *window.get(kind, (0, height, 0, width)))
    painted, share = paint(network(dilate=1, feather=1), image, mask)
    inside = grown(mask, 1)
    assert share == pytest.approx(inside.mean())
    if kind == "nothing":
        assert painted is None
    else:
        assert painted.shape == image.shape
        assert (painted[~inside] == image[~inside]).all()


def test_a_small_mask_in_a_huge_frame_costs_as_a_crop():
    image = np.full((3000, 4000, 3), 128, np.uint8)
    mask = rectangle(3000, 4000, 100, 160, 3900, 3950) | rectangle(3000, 4000, 2500, 2600, 300, 420)
    shapes = []

    def listen(images, masks):
        shapes.extend(one.shape[:2] for one in images)
        return fill(images, masks)

    painted, _ = paint(make(listen), image, mask)
    assert len(shapes) == 2 and max(max(shape) for shape in shapes) <= 448
    assert (painted[mask] == COLOUR).all()


# Crops


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_crops_hold_the_mask_and_do_not_meet(data):
    height, width = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 400))
    mask = np.zeros((height, width), bool)
    for _ in range(data.draw(st.integers(0, 5))):
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        mask[top : top + data.draw(st.integers(1, 60)), left : left + data.draw(st.integers(1, 200))] = True
    how = Framing(margin=data.draw(st.sampled_from([0, 0.25])), least=data.draw(st.integers(0, 40)), longest=128)
    answered = np.zeros(mask.shape, int)
    for crop in crops(mask, how):
        answered[crop.own] += 1
        for own, view, side, length in zip(crop.own, crop.view, mask.shape, crop.size, strict=True):
            assert 0 <= view.start <= own.start < own.stop <= view.stop <= side
            assert 0 < length <= 128
            assert length % GRID == 0 or (view.start, view.stop) == (0, side)
        image, shown = cut(np.where(mask, 255, 0).astype(np.uint8)[:, :, None].repeat(3, axis=2), mask, crop)
        assert image.shape[:2] == shown.shape == crop.size
        assert (image[~shown] == 0).all(), "what is painted over must not shine through a reduced pixel"
    assert answered.max(initial=0) <= 1
    assert (answered[mask] == 1).all()


def test_the_margin_is_a_share_of_the_region_with_a_floor():
    mask = rectangle(2000, 2000, 900, 1000, 800, 1200)
    for margin, least, expected in ((0.25, 0, 100), (0.25, 128, 128), (0, 7, 7)):
        (crop,) = crops(mask, Framing(margin=margin, least=least, longest=1024))
        assert crop.own == (slice(900 - expected, 1000 + expected), slice(800 - expected, 1200 + expected))


# Results depend on the picture alone


@settings(max_examples=6, deadline=None)
@given(order=st.permutations(range(5)), chunk=st.integers(1, 4))
def test_neighbours_their_order_and_chunks_change_no_byte(order, chunk):
    shapes = [(90, 100), (90, 100), (3, 3), (90, 100), (140, 60)]
    frames = [noise(*shape, seed) for seed, shape in enumerate(shapes)]
    masks = [values(rectangle(*shape, 0, 30, 1, 20)) for shape in shapes]
    masks[3] = None
    stage = network(min_margin=10)
    stage.chunk_rows["crops"] = chunk
    alone = [stage(table([frame], [mask])).to_pylist()[0] for frame, mask in zip(frames, masks, strict=True)]
    assert [row["inpainted"] is None for row in alone] == [False, False, False, True, False]
    together = stage(table([frames[i] for i in order], [masks[i] for i in order])).to_pylist()
    assert together == [alone[i] for i in order]


# What is painted over

MASKS = [rectangle(60, 80, 0, 10, 0, 10), rectangle(60, 80, 20, 50, 30, 70), rectangle(60, 80, 52, 58, 5, 30)]
BARE = {"dilate": 0, "feather": 0}


def changed(stage, **columns):
    """Which pixels of a grey frame of 60x80 are painted."""
    frame = np.full((60, 80, 3), 128, np.uint8)
    (row,) = stage(pa.table({"frame": pack([frame]), **columns})).to_pylist()
    return np.zeros((60, 80), bool) if row["inpainted"] is None else (opened(row["inpainted"]) != frame).any(axis=2)


def column(value, dtype):
    return pa.array([value], dtype)


def test_all_masks_or_the_largest():
    masks = column(values(*MASKS), pa.list_(MASK))
    assert (changed(make(**BARE), masks=masks) == MASKS[0] | MASKS[1] | MASKS[2]).all()
    assert (changed(make(region="largest", **BARE), masks=masks) == MASKS[1]).all()


def test_the_largest_is_that_of_the_largest_share():
    coarse = rectangle(30, 40, 0, 20, 0, 30)  # half the frame, in fewer pixels of its own than the other
    masks = column(values(rectangle(60, 80, 0, 30, 0, 40), coarse), pa.list_(MASK))
    assert (changed(make(region="largest", **BARE), masks=masks) == rectangle(60, 80, 0, 40, 0, 60)).all()


def test_masks_by_category():
    masks = column(values(*MASKS), pa.list_(MASK))
    about = [("car", 0.9), ("person", 0.6), ("car", 0.4)]
    instances = column([dict(zip(INSTANCE.names, one, strict=True)) for one in about], pa.list_(INSTANCE))
    for categories, least, expected in (
        (("car",), 0.5, MASKS[0]),
        (("car",), 0.3, MASKS[0] | MASKS[2]),
        (("person", "car"), 0.5, MASKS[0] | MASKS[1]),
        (("dog",), 0.0, MASKS[0] & MASKS[1]),
    ):
        stage = make(region="category", categories=categories, min_probability=least, **BARE)
        assert stage.inputs == ("frame", "masks", "instances")
        assert (changed(stage, masks=masks, instances=instances) == expected).all()
    with pytest.raises(ValueError, match="shorter|longer"):
        changed(stage, masks=masks, instances=column([], pa.list_(INSTANCE)))


def test_faces_with_a_margin():
    face = {"box": dict(zip(("x0", "y0", "x1", "y1"), (0.25, 0.5, 0.5, 0.75), strict=True)), "score": 0.9}
    faces = column([face], pa.list_(pa.struct([("box", BOX), ("score", pa.float32())])))
    assert (
        changed(make(region="faces", face_margin=0, **BARE), faces=faces) == rectangle(60, 80, 30, 45, 20, 40)
    ).all()
    stage = make(region="faces", face_margin=1, **BARE)
    assert (changed(stage, faces=faces) == rectangle(60, 80, 15, 60, 0, 60)).all()
    assert not changed(stage, faces=column([], faces.type)).any()
    assert not changed(stage, faces=column(None, faces.type)).any()


def test_any_column_of_masks():
    stage = make(region="column", column="tracked", **BARE)
    assert stage.inputs == ("frame", "tracked")
    (one,) = encode(MASKS[1:2])
    assert (changed(stage, tracked=column(one, SEGMENTATION)) == MASKS[1]).all()
    assert (changed(stage, tracked=column(encode(MASKS), pa.list_(SEGMENTATION))) == np.logical_or.reduce(MASKS)).all()
    assert (changed(stage, tracked=column(values(*MASKS[:2]), pa.list_(MASK))) == MASKS[0] | MASKS[1]).all()
    assert not changed(stage, tracked=column(None, SEGMENTATION)).any()


def test_a_mask_of_another_size_is_scaled():
    stage = make(region="column", column="coarse", **BARE)
    (small,) = encode([rectangle(6, 8, 1, 3, 2, 8)])
    assert (changed(stage, coarse=column(small, SEGMENTATION)) == rectangle(60, 80, 10, 30, 20, 80)).all()


def test_masks_from_files(tmp_path):
    def write(name, mask, alpha=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = mask.astype(np.uint8) * 255
        cv2.imwrite(str(path), image if alpha is None else np.dstack([image] * 3 + [alpha.astype(np.uint8) * 255]))

    write("a/one.png", MASKS[0])
    write("a/two_mask.png", MASKS[1], np.ones((60, 80)))
    write("clear.png", MASKS[1], MASKS[0])
    write("clip.mp4/00000007.png", MASKS[2])
    (tmp_path / "bad.png").write_bytes(b"no image")
    stage = make(region="files", mask_folder=str(tmp_path), **BARE)
    assert stage.files == (str(tmp_path),) and Inpaint().files == ()
    nothing = np.zeros((60, 80), bool)
    for name, index, expected in (
        ("a/one.jpg", 0, MASKS[0]),
        ("a/two.jpeg", 0, MASKS[1]),
        ("clear.bmp", 0, nothing),
        ("clip.mp4", 7, MASKS[2]),
        ("clip.mp4", 8, nothing),
        ("none.jpg", 0, nothing),
    ):
        about = {"media_id": pa.array([name]), "frame_index": pa.array([index], pa.int32())}
        assert (changed(stage, **about) == expected).all(), name
    for name, message in (("bad.jpg", "bad.png in the folder of masks"), ("../x.jpg", "leads out of the folder")):
        with pytest.raises(ValueError, match=message):
            changed(stage, media_id=pa.array([name]), frame_index=pa.array([0], pa.int32()))
    with pytest.raises(ValueError, match="there is no folder"):
        Inpaint(Inpaint.Config(region="files", mask_folder=str(tmp_path / "no"))).setup({}, Placement())


def test_frames_with_too_little_or_too_much_to_paint_are_left():
    masks = column(values(MASKS[1]), pa.list_(MASK))  # a quarter of the frame
    for config, expected in (({"min_share": 0.2}, 0.25), ({"min_share": 0.3}, 0), ({"max_share": 0.2}, 0)):
        assert changed(make(**BARE, **config), masks=masks).mean() == expected


# The columns


@pytest.mark.parametrize(
    ("kind", "start", "lossless"),
    [
        ("png", b"\x89PNG", True),
        ("webp", b"RIFF", True),
        ("jpeg", b"\xff\xd8\xff", False),
    ],
)
def test_the_formats(kind, start, lossless):
    image, mask = cv2.GaussianBlur(noise(60, 80), (0, 0), 3), MASKS[1]
    data = make(format=kind, **BARE)(table([image], [values(mask)]))["inpainted"][0].as_py()
    assert data.startswith(start)
    away = np.abs(opened(data).astype(int) - image)[~mask]
    assert away.max() == 0 if lossless else 0 < away.mean() < 3


def test_unpainted_frames_are_null_or_kept():
    image = noise(60, 80)
    for keep in (False, True):
        stage = make(keep_unpainted=keep)
        first, second, third = stage(table([image] * 3, [[], None, values(MASKS[0])])).to_pylist()
        assert first == second and first["inpainted_share"] == 0
        assert (opened(first["inpainted"]) == image).all() if keep else first["inpainted"] is None
        assert third["inpainted_share"] > 0


def test_no_rows_give_no_rows():
    stage = make()
    answer = stage(table([], []))
    assert answer.num_rows == 0 and answer.schema.equals(stage.outputs, check_metadata=True)


def test_settings_shape_the_declarations():
    assert Inpaint().inputs == ("frame", "masks")
    assert Inpaint().weights == ("big-lama",)
    stage = pickle.loads(pickle.dumps(Inpaint(Inpaint.Config(region="faces"))))
    assert stage.inputs == ("frame", "faces")
    assert stage.outputs.types == [pa.large_binary(), pa.float32()]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"region": "category"}, "needs categories"),
        ({"region": "column"}, "needs column"),
        ({"region": "files"}, "needs mask_folder"),
        ({"dilate": -1}, "dilate must be at least 0"),
        ({"margin": float("nan")}, "margin must be at least 0"),
        ({"feather": 9}, "at most dilate"),
        ({"max_side": 100}, "a multiple of 64"),
        ({"max_side": 0}, "a multiple of 64"),
        ({"min_probability": 2}, "min_probability"),
        ({"min_share": 0.5, "max_share": 0.4}, "in this order"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Inpaint.Config(**wrong)


def test_the_caption_says_how_much():
    drawing = make().preview({"inpainted": b"png", "inpainted_share": 0.123})
    assert (drawing.caption, drawing.after) == ("12.3% painted over", b"png")
    assert make().preview({"inpainted": None, "inpainted_share": 0.0}) is None
    assert make().preview({}) is None


@pytest.mark.slow
def test_the_engine_writes_what_the_stage_says(framemill, tmp_path, monkeypatch):
    """A pipeline file of its own, from the command line, at full architecture with random weights."""
    for name in ("in", "masks"):
        (tmp_path / name).mkdir()
    for seed, name in enumerate(("a", "b", "c")):
        cv2.imwrite(str(tmp_path / "in" / f"{name}.png"), noise(64, 80, seed))
        if name != "c":
            cv2.imwrite(
                str(tmp_path / "masks" / f"{name}.png"), rectangle(64, 80, 9, 30, 20, 50).astype(np.uint8) * 255
            )
    config = {"region": "files", "mask_folder": str(tmp_path / "masks")}
    steps = {"steps": {"inpaint": {"use": "stages.inpaint:Inpaint", "with": config}}}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(steps))
    places = ("--pipeline", tmp_path / "pipeline.yaml", "--input", tmp_path / "in", "--output", tmp_path / "out")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FRAMEMILL_WEIGHTS", str(tmp_path))
    framemill("run", *places, "--missing-weights", "dummy")
    written = pq.read_table(tmp_path / "out" / "frames").sort_by("media_id").to_pylist()
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stage = Inpaint(Inpaint.Config(**config))
    stage.setup({}, Placement())
    listed = list_media(str(tmp_path / "in"))
    units = cover(Store(str(tmp_path / "units")), listed, listed, slots=1)
    rows = pa.concat_tables([p.rows for u in units for p in decode(u, ("frame",), 0, DecodeConfig())]).sort_by(
        "media_id"
    )
    direct = stage(rows.select(list(stage.inputs))).to_pylist()
    torch.set_num_threads(threads)
    assert [row["media_id"] for row in written] == ["a.png", "b.png", "c.png"]
    for found, expected in zip(written, direct, strict=True):
        assert found["inpainted_share"] == expected["inpainted_share"]
        path = found["inpainted"]
        assert (None if path is None else (tmp_path / "out" / path).read_bytes()) == expected["inpainted"]
    assert [row["inpainted"] is None for row in written] == [False, False, True]
