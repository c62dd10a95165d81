"""Copies for other machines are complete, and local files can be verified again."""

from __future__ import annotations

import json
import shutil

import pytest

from framekiln.weights import checksums
from framekiln.weights.fetch import copy_to, fetch, verify
from framekiln.weights.lockfile import Local
from framekiln.weights.resolver import cache_folder, locate
from tests.support.errors import fails
from tests.support.machine.fetch_factory import CONTENT, OTHER, entry, link
from tests.support.runs.weights_factory import sha

pytestmark = pytest.mark.usefixtures("no_weights")


def test_copies_are_used_on_another_machine(site, tmp_path, monkeypatch):
    toy = entry(link(site))
    copy = copy_to(toy, fetch(toy), tmp_path / "usb" / "weights")
    assert copy.read_bytes() == CONTENT and [path.name for path in copy.parent.iterdir()] == ["toy.bin"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert fetch(toy, weights_dir=copy.parent) == copy and len(site.requests) == 1


def test_an_interrupted_copy_leaves_nothing(site, tmp_path, monkeypatch):
    toy, usb = entry(link(site)), tmp_path / "usb"
    path = fetch(toy)

    def cut(source, target):
        target.write_bytes(CONTENT[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", cut)
        with pytest.raises(KeyboardInterrupt):
            copy_to(toy, path, usb)
    assert list(usb.iterdir()) == []
    assert copy_to(toy, path, usb).read_bytes() == CONTENT


def test_an_existing_copy_stays_and_another_file_of_its_name_is_replaced(site, tmp_path):
    toy, usb = entry(link(site)), tmp_path / "usb"
    copy = copy_to(toy, fetch(toy), usb)
    before = copy.stat()
    assert copy_to(toy, fetch(toy), usb) == copy and copy.stat().st_ino == before.st_ino
    assert copy_to(toy, copy, usb) == copy, "also from where it goes"
    copy.write_bytes(OTHER)
    assert copy_to(toy, fetch(toy), usb).read_bytes() == CONTENT


def test_an_unwritable_folder_is_reported(site, tmp_path):
    toy = entry(link(site))
    (tmp_path / "file").write_bytes(b"")
    with fails("FK-FOLDER-NOT-WRITABLE", str(tmp_path / "file" / "usb")):
        copy_to(toy, fetch(toy), tmp_path / "file" / "usb")


def test_verify_ignores_cached_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "SETTLED_SECONDS", 0.0)
    toy = entry(Local(kind="local", note="x"))
    (tmp_path / "toy.bin").write_bytes(OTHER)
    checksums.sha256(tmp_path / "toy.bin", cache_folder())
    hashes = cache_folder() / "hashes.json"
    (key,) = json.loads(hashes.read_text())
    hashes.write_text(json.dumps({key: checksums._sign(key, toy.sha256)}))  # as after bit rot of the file
    assert locate(toy, weights_dir=tmp_path) == tmp_path / "toy.bin"
    with fails("FK-WEIGHTS-MISMATCH", sha(OTHER)):
        verify(toy, tmp_path)
    with fails("FK-WEIGHTS-MISMATCH"):  # the cache has the right hash now
        locate(toy, weights_dir=tmp_path)
    (tmp_path / "toy.bin").write_bytes(CONTENT)
    assert verify(toy, tmp_path) == tmp_path / "toy.bin"
