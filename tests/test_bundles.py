"""Weights inside a wheel: taken out or put together to the byte, by several processes at once, or refused."""

from __future__ import annotations

import io
import multiprocessing
import zipfile

import pytest
import yaml

from pipeline.errors import WeightsError
from pipeline.weights import Bundle, cache_folder, default_lock, fingerprint, load_lock, locate, resolve
from pipeline.weights.bundle import assemble, find_wheel
from tests.weights_factory import MEMBERS, body, bundle_source, lock_of, make_wheel, sha

pytestmark = pytest.mark.usefixtures("no_weights")

REAL_CACHE = cache_folder()


# One member


def member_entry(content=MEMBERS["toy/marks.bin"], member="toy/marks.bin"):
    source = {"kind": "member", "package": "toymodels", "version": "1.2", "member": member}
    return lock_of(body("marks", content, sources=[source]))


def test_a_file_is_taken_out_of_a_wheel_as_it_lies_there(tmp_path):
    lock = member_entry()
    make_wheel(tmp_path / "wheels")
    path = resolve(["marks"], weights_dir=tmp_path / "wheels", lock=lock)["marks"]
    assert path.read_bytes() == MEMBERS["toy/marks.bin"]
    assert resolve(["marks"], lock=lock)["marks"] == path, "afterwards it is in the cache"


def test_another_file_in_the_wheel_than_the_lockfile_says_is_not_used(tmp_path):
    make_wheel(tmp_path / "wheels")
    with pytest.raises(WeightsError, match="has sha256"):
        locate(member_entry(b"another")["marks"], weights_dir=tmp_path / "wheels")
    with pytest.raises(WeightsError, match="cannot be used"):
        locate(member_entry(member="toy/gone.bin")["marks"], weights_dir=tmp_path / "wheels")


def test_a_missing_file_of_a_wheel_comes_with_its_command():
    with pytest.raises(WeightsError, match=r"pip download .*toymodels==1\.2"):
        resolve(["marks"], lock=member_entry())


# Bundles


@pytest.fixture
def bundled(tmp_path):
    """A lock with one entry that is to be put together, and its wheel."""
    wheel = make_wheel(tmp_path / "wheels")
    content = assemble(Bundle.model_validate(bundle_source()), wheel)
    return lock_of(body("toy", content, sources=[bundle_source()])), wheel


def test_a_bundle_holds_the_changed_members_where_they_can_be_used_in_place(bundled):
    lock, wheel = bundled
    path = resolve(["toy"], weights_dir=wheel.parent, lock=lock)["toy"]
    assert path == cache_folder() / "toy.bin"
    data = path.read_bytes()
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        assert bundle.read("detector.bin") == MEMBERS["toy/detector.bin"]
        assert bundle.read("marks.bin") == b"LAND" + MEMBERS["toy/marks.bin"][4:] + b"tail"
        for info in bundle.infolist():
            start = data.index(bundle.read(info.filename))
            assert info.compress_type == zipfile.ZIP_STORED
            assert start % 16 == 0


def test_a_spoilt_bundle_is_put_together_again(bundled):
    lock, wheel = bundled
    path = resolve(["toy"], weights_dir=wheel.parent, lock=lock)["toy"]
    path.write_bytes(path.read_bytes()[:-1])
    assert sha(resolve(["toy"], weights_dir=wheel.parent, lock=lock)["toy"].read_bytes()) == lock["toy"].sha256


def test_a_wheel_with_another_member_is_refused(bundled):
    lock, wheel = bundled
    make_wheel(wheel.parent, MEMBERS | {"toy/marks.bin": b"other"})
    with pytest.raises(WeightsError, match=r"toy/marks\.bin in .* has sha256"):
        resolve(["toy"], weights_dir=wheel.parent, lock=lock)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data.replace(b"marks", b"sparm")]
)
def test_a_damaged_wheel_is_refused(bundled, spoil):
    lock, wheel = bundled
    wheel.write_bytes(spoil(wheel.read_bytes()))
    with pytest.raises(WeightsError, match="download it again"):
        resolve(["toy"], weights_dir=wheel.parent, lock=lock)


def _resolve_at_once(text, folder, barrier, answers):
    barrier.wait()
    path = resolve(["toy"], weights_dir=folder, lock=load_lock(text))["toy"]
    answers.put((str(path), sha(path.read_bytes())))


def test_processes_that_put_it_together_at_once_do_not_disturb_each_other(bundled):
    lock, wheel = bundled
    item = lock["toy"].model_dump(mode="json")
    text = yaml.safe_dump({item.pop("name"): item})
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_resolve_at_once, args=(text, wheel.parent, barrier, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    got = {answers.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    assert got == {(str(cache_folder() / "toy.bin"), lock["toy"].sha256)}
    assert [path.name for path in cache_folder().iterdir() if path.name.startswith(".")] == []


# The bundle that ships


def _buffers(model):
    """The constants of a TFLite graph: its weights and its metadata."""
    return [
        b"" if (one := model.Buffers(i)).DataIsNone() else one.DataAsNumpy().tobytes()
        for i in range(model.BuffersLength())
    ]


def test_the_pose_bundle_tells_how_its_input_is_normalised():
    """The literal bytes in the lockfile are what MediaPipe's own schema reads as mean 0, std 255."""
    from mediapipe.tasks.metadata import metadata_schema_py_generated as meta
    from mediapipe.tasks.metadata import schema_py_generated as schema

    source = default_lock()["pose_landmarker_full_bundled"].sources[0]
    wheel = find_wheel(source, [REAL_CACHE])
    if wheel is None:
        pytest.skip(f"no {source.wheels} in {REAL_CACHE}")
    content = assemble(source, wheel)
    assert sha(content) == fingerprint("pose_landmarker_full_bundled")
    with zipfile.ZipFile(wheel) as original, zipfile.ZipFile(io.BytesIO(content)) as bundle:
        before = schema.Model.GetRootAs(original.read(source.parts[1].member))
        after = schema.Model.GetRootAs(bundle.read(source.parts[1].name))
    entries = {after.Metadata(i).Name(): after.Metadata(i).Buffer() for i in range(after.MetadataLength())}
    place = entries[b"TFLITE_METADATA"]
    told = meta.ModelMetadataT.InitFromObj(meta.ModelMetadata.GetRootAs(_buffers(after)[place]))
    options = told.subgraphMetadata[0].inputTensorMetadata[0].processUnits[0].options
    assert (list(options.mean), list(options.std)) == ([0], [255])
    pairs = zip(_buffers(before), _buffers(after), strict=True)
    assert [i for i, (old, new) in enumerate(pairs) if old != new] == [place]  # no weight is touched
