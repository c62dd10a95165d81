"""Weights that are carried to another machine are whole there, and what is at hand can be read again."""

from __future__ import annotations

import os
import shutil

import pytest

from pipeline.errors import WeightsError
from pipeline.weights import Local, cache_folder, digest, locate
from pipeline.weights.fetch import carry, fetch, verify
from tests.fetch_factory import CONTENT, OTHER, entry, link, sha

pytestmark = pytest.mark.usefixtures("no_weights")


def test_carried_files_are_found_elsewhere(site, tmp_path, monkeypatch):
    toy = entry(link(site))
    copy = carry(toy, fetch(toy), tmp_path / "usb" / "weights")
    assert copy.read_bytes() == CONTENT and [path.name for path in copy.parent.iterdir()] == ["toy.bin"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert fetch(toy, weights_dir=copy.parent) == copy and len(site.asked) == 1


def test_an_interrupted_copy_leaves_nothing_and_a_killed_one_is_swept(site, tmp_path, monkeypatch):
    toy, usb = entry(link(site)), tmp_path / "usb"
    path = fetch(toy)

    def cut(source, target):
        target.write_bytes(CONTENT[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", cut)
        with pytest.raises(KeyboardInterrupt):
            carry(toy, path, usb)
    assert list(usb.iterdir()) == []
    old, young = usb / ".toy.bin.killed", usb / ".toy.bin.under-way"
    for left in (old, young):
        left.write_bytes(CONTENT[:1000])
    os.utime(old, (0, 0))
    assert carry(toy, path, usb).read_bytes() == CONTENT
    assert {left.name for left in usb.iterdir()} == {"toy.bin", young.name}


def test_a_copy_that_is_there_stays_and_another_file_of_its_name_is_replaced(site, tmp_path):
    toy, usb = entry(link(site)), tmp_path / "usb"
    copy = carry(toy, fetch(toy), usb)
    before = copy.stat()
    assert carry(toy, fetch(toy), usb) == copy and copy.stat().st_ino == before.st_ino
    assert carry(toy, copy, usb) == copy, "also from where it goes"
    copy.write_bytes(OTHER)
    assert carry(toy, fetch(toy), usb).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_told(site, tmp_path):
    toy = entry(link(site))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WeightsError, match="choose another with --to"):
        carry(toy, fetch(toy), tmp_path / "file" / "usb")


def test_verify_reads_again_what_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(digest, "SETTLED_SECONDS", 0.0)
    toy = entry(Local(kind="local", note="x"))
    (tmp_path / "toy.bin").write_bytes(OTHER)
    digest.sha256(tmp_path / "toy.bin", cache_folder())
    memory = cache_folder() / "hashes.json"
    memory.write_text(memory.read_text().replace(sha(OTHER), toy.sha256))  # as a disk that rots leaves it
    assert locate(toy, weights_dir=tmp_path) == tmp_path / "toy.bin"
    with pytest.raises(WeightsError, match="has changed"):
        verify(toy, tmp_path)
    with pytest.raises(WeightsError, match="is not toy"):  # and it is remembered now
        locate(toy, weights_dir=tmp_path)
    (tmp_path / "toy.bin").write_bytes(CONTENT)
    assert verify(toy, tmp_path) == tmp_path / "toy.bin"
