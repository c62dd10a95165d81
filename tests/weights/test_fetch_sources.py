"""Sources are tried in order, package registries included, and each failure is reported."""

from __future__ import annotations

import socket
import zipfile

import pytest

from framekiln.weights.fetch import fetch
from framekiln.weights.lockfile import Bundle, Local, Url
from framekiln.weights.resolver import cache_folder, read_from_wheel
from tests.support.errors import fails
from tests.support.machine.fetch_factory import CONTENT, OTHER, entry, link
from tests.support.runs.weights_factory import sha

pytestmark = pytest.mark.usefixtures("no_weights")


@pytest.fixture
def unreachable():
    """A source at an address without a server; the port is held, so that no other program gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield Url.model_construct(kind="url", url=f"http://127.0.0.1:{held.getsockname()[1]}/toy.bin")


def test_after_a_failure_the_next_source_is_tried(site):
    site.files["/wrong.bin"] = OTHER
    sources = [link(site, "/gone.bin"), link(site, "/wrong.bin"), link(site)]
    assert fetch(entry(*sources)).read_bytes() == CONTENT
    assert [path for path, _ in site.requests] == ["/gone.bin", "/wrong.bin", "/toy.bin"]


def test_all_failures_are_reported_in_one_sentence(site):
    toy = entry(link(site, "/gone.bin"), Local(kind="local", note="ask Ada"))
    with fails("FK-FETCH-FAILED", "404", "/gone.bin", "ask Ada"):
        fetch(toy)


def test_offline_the_message_names_the_way_without_network(unreachable):
    with fails("FK-FETCH-FAILED", "127.0.0.1", "framekiln fetch toy --to DIR", "--weights-dir DIR"):
        fetch(entry(unreachable))


def test_without_a_download_the_message_names_the_file_and_its_folder():
    with fails("FK-FETCH-FAILED", "https://example.org/toys.zip", str(cache_folder())):
        fetch(entry(Local(kind="local", note="toy.bin in https://example.org/toys.zip")))
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert fetch(entry(Local(kind="local", note="x"))) == cache_folder() / "toy.bin"


# A package registry


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A folder that serves pip as its registry, with a wheel for a bundle."""
    folder = tmp_path / "registry"
    folder.mkdir()
    wheel, about = folder / "toymodels-1.2-py3-none-any.whl", "toymodels-1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as target:
        target.writestr("toy/marks.bin", b"landmarks")
        target.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toymodels\nVersion: 1.2\n")
        target.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        target.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    part = {"name": "marks.bin", "member": "toy/marks.bin", "sha256": sha(b"landmarks")}
    source = Bundle.model_validate({"kind": "bundle", "package": "toymodels", "version": "1.2", "parts": [part]})
    return source, read_from_wheel(source, wheel), wheel


def test_a_bundle_is_built_from_the_registry(registry):
    source, content, wheel = registry
    path = fetch(entry(source, content=content))
    assert path.read_bytes() == content and (cache_folder() / wheel.name).exists()


def test_a_damaged_wheel_in_the_cache_is_downloaded_again(registry):
    source, content, wheel = registry
    cache_folder().mkdir(parents=True)
    (cache_folder() / wheel.name).write_bytes(wheel.read_bytes()[:100])
    assert fetch(entry(source, content=content)).read_bytes() == content


def test_without_a_registry_the_next_source_is_tried(registry, site):
    source, _, wheel = registry
    wheel.unlink()
    assert fetch(entry(source, link(site))).read_bytes() == CONTENT
    with fails("FK-FETCH-FAILED", "toymodels==1.2", "--weights-dir DIR"):
        fetch(entry(source, sha256="0" * 64))
