"""Weights: found by their content wherever they lie, refused when a byte differs, and put together from a wheel."""

from __future__ import annotations

import base64
import hashlib
import io
import multiprocessing
import tempfile
import zipfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError, WeightsError
from pipeline.weights import Bundle, cache_folder, default_lock, digest, fingerprint, load_lock, locate, resolve
from pipeline.weights.bundle import assemble, find_wheel
from tests.material import weights

REAL_CACHE = cache_folder()
CONTENT = bytes(range(256)) * 40
MEMBERS = {"toy/detector.bin": b"detector" * 11, "toy/marks.bin": b"landmarks" * 13}


@pytest.fixture(autouse=True)
def fresh_machine(tmp_path, monkeypatch):
    """No weights anywhere but where a test puts them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FRAMEMILL_WEIGHTS", raising=False)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def body(name="toy", content=CONTENT, **changes):
    source = {"kind": "url", "url": f"https://example.org/{name}.bin"}
    facts = {
        "file": f"{name}.bin",
        "bytes": len(content),
        "sha256": sha(content),
        "licence": "MIT",
        "licence_note": "",
        "format": "bytes",
    }
    return {"name": name} | facts | {"sources": [source]} | changes


def lock_of(*bodies):
    return load_lock(yaml.safe_dump({item.pop("name"): item for item in map(dict, bodies)}))


def bundle_source():
    parts = [
        {"name": Path(member).name, "member": member, "sha256": sha(content)} for member, content in MEMBERS.items()
    ]
    parts[1] |= {"patches": [{"at": 0, "hex": b"LAND".hex()}], "append": base64.b64encode(b"tail").decode()}
    return {"kind": "bundle", "package": "toymodels", "version": "1.2", "parts": parts}


def make_wheel(folder, members=MEMBERS):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toymodels-1.2-cp311-cp311-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    return path


@pytest.fixture
def bundled(tmp_path):
    """A lock with one entry that is to be put together, and its wheel."""
    wheel = make_wheel(tmp_path / "wheels")
    content = assemble(Bundle.model_validate(bundle_source()), wheel)
    return lock_of(body("toy", content, sources=[bundle_source()])), wheel


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


# The lockfile


def test_the_shipped_lockfile_is_sound():
    lock = default_lock()
    assert {
        "pose_landmarker_full_bundled",
        "pose_landmarker_lite",
        "pose_landmarker_full",
        "pose_landmarker_heavy",
    } <= set(lock)
    assert all(fingerprint(name) == entry.sha256 and entry.licence for name, entry in lock.items())
    assert len({entry.sha256 for entry in lock.values()}) == len(lock)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"license": "MIT"}, "unknown key 'license'. Did you mean 'licence'?"),
        ({"sha256": "abc"}, "toy.sha256"),
        ({"bytes": 0}, "toy.bytes"),
        ({"file": "../escape.bin"}, "toy.file"),
        ({"sources": []}, "toy.sources"),
        ({"sources": [{"kind": "url", "url": "http://plain.example.org"}]}, "url"),
        ({"sources": [bundle_source() | {"verison": "1"}]}, "Did you mean 'version'?"),
        ({"sources": [{"kind": "ftp"}]}, "'bundle'"),
    ],
)
def test_a_slip_in_the_lockfile_is_refused_with_its_place(change, said):
    with pytest.raises(WeightsError) as error:
        lock_of(body() | change)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "toy: 3", "toy: {}"])
def test_what_is_no_lockfile_is_refused(text):
    with pytest.raises(WeightsError):
        load_lock(text)


def test_two_entries_cannot_share_a_file():
    with pytest.raises(WeightsError, match="share the file name"):
        lock_of(body("one"), body("two", file="one.bin"))


def test_an_unknown_name_is_guessed_at():
    with pytest.raises(ConfigError, match="Did you mean 'pose_landmarker_lite'"):
        resolve(["pose_landmarker_lit"])


# Finding


def test_content_decides_not_the_name(tmp_path):
    there = tmp_path / "mine" / "deeper" / "whatever.pt"
    there.parent.mkdir(parents=True)
    there.write_bytes(CONTENT)
    assert resolve(["toy"], weights_dir=tmp_path / "mine", lock=lock_of(body())) == {"toy": there}


def test_the_environment_and_the_cache_are_looked_through(tmp_path, monkeypatch):
    entry = lock_of(body())["toy"]
    assert locate(entry) is None
    cache_folder().mkdir(parents=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert locate(entry) == cache_folder() / "toy.bin"
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "toy.bin").write_bytes(CONTENT)
    monkeypatch.setenv("FRAMEMILL_WEIGHTS", str(tmp_path / "shared"))
    assert locate(entry) == tmp_path / "shared" / "toy.bin"


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    entry = lock_of(body())["toy"]
    with pytest.raises(WeightsError, match="--weights-dir"):
        locate(entry, weights_dir=tmp_path / "nowhere")
    monkeypatch.setenv("FRAMEMILL_WEIGHTS", str(tmp_path / "nowhere"))
    with pytest.raises(WeightsError, match="FRAMEMILL_WEIGHTS"):
        locate(entry)


@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT[:-1] + b"\0", b""])
def test_a_wrong_file_is_refused_and_a_right_one_beside_it_taken(tmp_path, wrong):
    entry = lock_of(body())["toy"]
    (tmp_path / "toy.bin").write_bytes(wrong)
    with pytest.raises(WeightsError) as error:
        locate(entry, weights_dir=tmp_path)
    assert all(
        word in str(error.value) for word in (str(tmp_path / "toy.bin"), sha(wrong), entry.sha256, str(len(wrong)))
    )
    (tmp_path / "renamed.bin").write_bytes(CONTENT)
    assert locate(entry, weights_dir=tmp_path) == tmp_path / "renamed.bin"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=300), place=st.integers(0, 299), flip=st.integers(1, 255))
def test_one_wrong_byte_is_enough(content, place, flip):
    entry = lock_of(body("toy", content))["toy"]
    place %= len(content)
    spoilt = content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "any.bin")
        path.write_bytes(spoilt)
        assert locate(entry, weights_dir=Path(name)) is None
        path.write_bytes(content)
        assert locate(entry, weights_dir=Path(name)) == path


def test_one_message_tells_all_that_is_missing():
    lock = lock_of(
        body("one"),
        body("two", sources=[bundle_source()]),
        body("three", sources=[{"kind": "local", "note": "ask Ada"}]),
    )
    with pytest.raises(WeightsError) as error:
        resolve(["one", "two", "three", "one"], lock=lock)
    said = str(error.value)
    assert said.count("one.bin (") == 1
    for word in (
        "two.bin",
        "three.bin",
        "0.0 MB",
        "licence MIT",
        "https://example.org/one.bin",
        "toymodels==1.2",
        "ask Ada",
        str(cache_folder()),
    ):
        assert word in said


def test_a_file_of_another_entry_is_called_by_its_name():
    folder = weights("pose_landmarker_lite.task").parent
    found = resolve(["pose_landmarker_lite_zipped"], weights_dir=folder)
    assert found == {"pose_landmarker_lite_zipped": folder / "pose_landmarker_lite.task"}
    with pytest.raises(WeightsError, match="It is 'pose_landmarker_lite_zipped': use that name"):
        resolve(["pose_landmarker_lite"], weights_dir=folder)


# Hashes that are remembered


def test_a_settled_file_is_hashed_once_and_a_changed_one_again(tmp_path, monkeypatch):
    monkeypatch.setattr(digest, "SETTLED_SECONDS", 0.0)
    path, memory = tmp_path / "big.bin", tmp_path / "memory"
    path.write_bytes(CONTENT)
    assert digest.sha256(path, memory) == sha(CONTENT)
    remembered = memory / "hashes.json"
    remembered.write_text(remembered.read_text().replace(sha(CONTENT), "f" * 64))
    assert digest.sha256(path, memory) == "f" * 64  # so it was not read again
    path.write_bytes(CONTENT + b"more")
    assert digest.sha256(path, memory) == sha(CONTENT + b"more")
    remembered.write_text("not json")
    assert digest.sha256(path, memory) == sha(CONTENT + b"more")


def test_a_file_that_was_just_written_is_not_remembered(tmp_path):
    path = tmp_path / "new.bin"
    path.write_bytes(CONTENT)
    digest.sha256(path, tmp_path / "memory")
    assert not (tmp_path / "memory").exists()


# Bundles


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
