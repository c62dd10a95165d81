"""Files of an output that were lost, changed or damaged are computed again, in runs without Ray."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.outputs.sample_output import make_sample, tables
from tests.support.machine.command_line import command
from tests.support.machine.permissions import permissions_count
from tests.support.media.collections_factory import photo
from tests.support.runs.serial_engine import without_ray

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A finished output, to be damaged and mended by one test after the other."""
    return make_sample(tmp_path_factory.mktemp("mended") / "sample")


def run(sample) -> str:
    """Return what a run into the output prints."""
    with without_ray():
        done = command(*sample.run())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def images(sample) -> dict[str, bytes]:
    """Return the images of the output."""
    paths = sorted(path for path in (sample.out / "images").rglob("*") if path.is_file())
    return {str(path.relative_to(sample.out)): path.read_bytes() for path in paths}


def flipped(data: bytes) -> bytes:
    """Invert one bit of each 200 bytes, but none of the magic number at the start."""
    chance, changed = random.Random(len(data)), bytearray(data)
    for start in range(4, len(changed), 200):
        changed[chance.randrange(start, min(start + 200, len(changed)))] ^= 1 << chance.randrange(8)
    return bytes(changed)


DAMAGE = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "flipped": flipped,
    "foreign": lambda _: b'{"a": [1]}',
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(
    "folders",
    [("columns/*", "frames", "facts"), ("frames", "counts"), ("units", "row_sets"), ("profile",)],
    ids=",".join,
)
def test_damaged_files_are_computed_again(sample, how, folders):
    rows = tables(sample.out)
    for place in [path for folder in folders for path in sample.out.glob(folder) if path.is_dir()]:
        target = min(path for path in place.iterdir() if path.is_file())
        target.write_bytes(DAMAGE[how](target.read_bytes()))
    assert command("check", sample.out).returncode == 1
    text = run(sample)
    assert tables(sample.out) == rows
    assert "columns/*" not in folders or "Damaged files of the output are removed" in text
    assert "nothing is damaged" in command("check", sample.out).stdout
    assert "Nothing is left to do" in run(sample)


LOSSES = {
    "missing": lambda folder: next(folder.rglob("0*.png")).unlink(),
    "empty": lambda folder: next(folder.rglob("0*.png")).write_bytes(b""),
    "folder": lambda folder: shutil.rmtree(next(folder.rglob("0*.png")).parent),
    "all": shutil.rmtree,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_finds_lost_images_by_itself(sample, loss):
    before, rows = images(sample), tables(sample.out)
    LOSSES[loss](sample.out / "images")
    assert images(sample) != before
    assert "computed again: columns/portraits-" in run(sample)
    assert images(sample) == before and tables(sample.out) == rows
    assert "Nothing is left to do" in run(sample)


IMAGE_DAMAGE = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "last byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "forbidden": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("how", IMAGE_DAMAGE)
def test_a_check_finds_images_that_were_cut_or_that_this_user_may_not_read(sample, how):
    before = images(sample)
    IMAGE_DAMAGE[how](next((sample.out / "images").rglob("0*.png")))
    with permissions_count():
        assert command("check", sample.out).returncode == 1
        run(sample)
        assert command("check", sample.out).returncode == 0
    assert images(sample) == before


@pytest.mark.parametrize(
    ("whole", "cut"),
    [
        (b"RIFF\x08\0\0\0WEBPVP8L", b"RIFF\x08\0\0\0WEBPVP"),
        (b"\xff\xd8 a JPEG \xff\xd9", b"\xff\xd8 a JPEG"),
        (b"any other file", b""),
    ],
)
def test_the_end_of_an_image_is_known_by_its_format(sample, whole, cut):
    path = next((sample.out / "images").rglob("0*.png"))
    before = path.read_bytes()
    for data, code in ((whole, 0), (cut, 1), (before, 0)):
        path.write_bytes(data)
        assert command("check", sample.out).returncode == code


CHANGES = {
    "type": lambda table: table.set_column(1, "uri", pa.nulls(table.num_rows, pa.int8())),
    "absent": lambda table: table.drop_columns("uri"),
    "foreign": lambda table: table.append_column("uri2", table["uri"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_columns_of_the_table_of_frames_are_checked(sample, change):
    rows, path = tables(sample.out), next((sample.out / "frames").glob("*.parquet"))
    pq.write_table(CHANGES[change](pq.read_table(path)), path)
    found = command("check", sample.out)
    assert found.returncode == 1 and f"frames/{path.name}: damaged" in found.stdout
    run(sample)
    assert tables(sample.out) == rows and not command("check", sample.out).returncode


def test_a_kept_table_with_rows_of_another_step_is_computed_again(sample):
    rows = tables(sample.out)
    identities, guests = (next((sample.out / name).glob("*.parquet")) for name in ("identities", "guests"))
    shutil.copyfile(identities, guests)
    found = command("check", sample.out)
    assert found.returncode == 1 and f"guests/{guests.name}: damaged" in found.stdout
    run(sample)
    assert tables(sample.out) == rows and not command("check", sample.out).returncode


def test_a_copy_of_a_table_of_units_doubles_nothing(sample):
    rows, (path, *_) = tables(sample.out), sorted((sample.out / "units").glob("*.parquet"))
    copy = shutil.copyfile(path, path.with_name(f"copy of {path.name}"))
    frames = next((sample.out / "frames").glob("*.parquet"))
    for folder in ("frames", "columns"):
        shutil.rmtree(sample.out / folder)
    run(sample)
    assert tables(sample.out) == rows and frames.exists()
    copy.unlink()
    assert "Nothing is left to do" in run(sample)


def described(path) -> None:
    """Give a column of a table a description that is no text, as one flipped bit of the footer does."""
    table = pq.read_table(path)
    changed = table.schema.set(0, table.schema.field(0).with_metadata({"description": b"a \xac"}))
    pq.write_table(table.cast(changed), path)


def named(path) -> None:
    """Give a column of a table a name that is no text."""
    name = pq.read_schema(path).names[0].encode()
    path.write_bytes(path.read_bytes().replace(name, b"\xac" + name[1:]))


@pytest.mark.parametrize("change", [described, named])
@pytest.mark.parametrize("folder", ["frames", "columns", "errors", "counts"])
def test_a_schema_that_is_no_text_is_computed_again(sample, folder, change):
    rows, path = tables(sample.out), min((sample.out / folder).rglob("*.parquet"))
    change(path)
    for words in (["check", str(sample.out)], ["report", str(sample.out)]):
        assert command(*words).returncode in (0, 1, 2)  # an exception would be raised here
    run(sample)
    assert tables(sample.out) == rows
    assert command("check", str(sample.out)).returncode == 0


def test_a_check_finds_nothing_in_an_output_whose_input_changed(tmp_path):
    sample = make_sample(tmp_path / "changed")
    photos = sample.folder / "in"
    photo(photos / "photo0.png", 7)
    (photos / "photo1.png").unlink()
    (photos / "empty.png").touch()
    for words in (sample.run("--limit", 2), sample.run()):
        with without_ray():
            assert command(*words).returncode == 0
        assert "nothing is damaged" in command("check", sample.out).stdout
        photo(photos / "broken.jpg", 8)
        (photos / "clip.png").unlink(missing_ok=True)
