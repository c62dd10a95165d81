"""The test material's lockfile and its download."""

from __future__ import annotations

import pytest

from framekiln.weights.lockfile import Local, Url
from tests.support.machine.fetch_factory import CONTENT, OTHER, entry, link
from tests.support.media.material_download import bring, load_material

NAME = "media/toys/toy.bin"


def lock(*sources, name=NAME):
    return {name: entry(*sources)}


def test_the_lockfile_pins_a_commit_of_each_published_file():
    entries = load_material()
    urls = [source.url for entry in entries.values() for source in entry.sources if isinstance(source, Url)]
    assert all(any(len(part) == 40 for part in url.split("/")) for url in urls)
    assert len(urls) + 3 == len(entries)  # three are made from published files
    assert {name.split("/")[0] for name in entries} == {"media", "weights"}
    assert all(name.endswith(f"/{entry.file}") and ".." not in name for name, entry in entries.items())


def test_a_second_download_brings_what_is_missing(site, tmp_path):
    lines = []
    assert bring(lock(link(site)), tmp_path, lines.append) == 0
    assert (tmp_path / NAME).read_bytes() == CONTENT and lines == [f"{NAME}: downloaded"]
    assert bring(lock(link(site)), tmp_path, lines.append) == 0
    assert len(site.requests) == len(lines) == 1
    (tmp_path / NAME).write_bytes(OTHER)
    assert bring(lock(link(site)), tmp_path, lines.append) == 0
    assert (tmp_path / NAME).read_bytes() == CONTENT and len(site.requests) == 2


def test_a_cut_download_is_continued(site, tmp_path):
    site.cuts = [600_000]
    assert bring(lock(link(site)), tmp_path, lambda _: None) == 0
    assert [start > 0 for _, start in site.requests] == [False, True]
    assert [path.name for path in (tmp_path / NAME).parent.iterdir()] == ["toy.bin"]


def test_the_next_source_is_tried(site, tmp_path):
    site.files["/other.bin"] = OTHER
    assert bring(lock(link(site, "/other.bin"), link(site)), tmp_path, lambda _: None) == 0
    assert (tmp_path / NAME).read_bytes() == CONTENT


def test_what_cannot_be_had_is_counted_and_does_not_end_the_download(site, tmp_path):
    lines = []
    local = lock(Local(kind="local", note="by hand"), name="media/local/toy.bin")
    entries = lock(link(site, "/none"), name="media/none/toy.bin") | local | lock(link(site))
    assert bring(entries, tmp_path, lines.append) == 1  # the local one is not published
    assert "404" in lines[0] and "by hand" in lines[1] and lines[2] == f"{NAME}: downloaded"


@pytest.mark.parametrize("name", ["../toy.bin", "/toy.bin", "media/../../toy.bin"])
def test_no_entry_leaves_the_folder(site, tmp_path, name):
    with pytest.raises(ValueError, match="below the folder"):
        bring(lock(link(site), name=name), tmp_path)
