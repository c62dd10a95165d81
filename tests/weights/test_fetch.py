"""A download is complete and verified or absent, also if the network or the disk fails."""

from __future__ import annotations

import multiprocessing
from importlib import import_module

import pytest

from framekiln.weights import checksums
from framekiln.weights.fetch import fetch
from framekiln.weights.resolver import cache_folder, locate
from tests.support.errors import fails
from tests.support.machine.fetch_factory import CONTENT, OTHER, entry, link, partial
from tests.support.runs.weights_factory import sha

pytestmark = pytest.mark.usefixtures("no_weights")


def begin(toy, content):
    partial(toy).parent.mkdir(parents=True)
    partial(toy).write_bytes(content)


def test_a_file_is_downloaded_once_with_progress(site):
    seen = []
    path = fetch(entry(link(site)), on_progress=lambda *event: seen.append(event))
    assert path == cache_folder() / "toy.bin" and path.read_bytes() == CONTENT
    assert seen[0] == ("toy", 0, len(CONTENT)) and seen[-1] == ("toy", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert fetch(entry(link(site))) == path and site.requests == [("/toy.bin", 0)]


def test_an_interrupted_connection_is_resumed(site):
    site.cuts = [600_000, 500_000]
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    starts = [start for _, start in site.requests]
    assert len(starts) == 3 and starts[0] == 0 and 500_000 < starts[1] <= 600_000 and 900_000 < starts[2] <= 1_100_000


def test_a_server_that_interrupts_every_response_is_given_up(site):
    site.cuts = [10] * 100
    with fails("FK-FETCH-FAILED", "127.0.0.1"):
        fetch(entry(link(site)))
    assert len(site.requests) < 10


def test_a_partial_file_of_a_killed_process_is_resumed(site):
    toy = entry(link(site))
    begin(toy, CONTENT[:700_000])
    assert locate(toy) is None
    assert fetch(toy).read_bytes() == CONTENT
    assert site.requests == [("/toy.bin", 700_000)] and not partial(toy).exists()


def test_a_server_without_ranges_sends_the_whole_file_again(site):
    site.ranges, site.cuts = False, [600_000]
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    assert site.requests == [("/toy.bin", 0), ("/toy.bin", 0)]


def test_a_wrong_partial_file_is_discarded(site):
    toy = entry(link(site))
    begin(toy, bytes(700_000))
    assert fetch(toy).read_bytes() == CONTENT
    assert site.requests == [("/toy.bin", 700_000), ("/toy.bin", 0)]


def test_a_busy_server_is_retried(site):
    site.busy = 2
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    assert len(site.requests) == 3


@pytest.mark.parametrize("content", [OTHER, CONTENT[:-1], CONTENT + b"x", b"<html>Please log in</html>", b""])
def test_another_file_is_rejected_and_removed(site, content):
    site.files["/toy.bin"] = content
    toy = entry(link(site))
    with fails("FK-FETCH-FAILED", "127.0.0.1", toy.sha256 if len(content) == toy.bytes else str(toy.bytes)):
        fetch(toy)
    assert locate(toy) is None and not partial(toy).exists() and not (cache_folder() / "toy.bin").exists()


def test_a_wrong_file_in_the_cache_is_replaced(site):
    cache_folder().mkdir(parents=True)
    (cache_folder() / "toy.bin").write_bytes(OTHER)
    assert fetch(entry(link(site))).read_bytes() == CONTENT


def _fetch_at_once(toy, barrier, digests):
    barrier.wait()
    digests.put(sha(fetch(toy).read_bytes()))


def test_concurrent_processes_download_once(site):
    context = multiprocessing.get_context("spawn")
    barrier, digests = context.Barrier(3), context.Queue()
    toy = entry(link(site))
    workers = [context.Process(target=_fetch_at_once, args=(toy, barrier, digests)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert [digests.get(timeout=60) for _ in workers] == [toy.sha256] * 3
    for worker in workers:
        worker.join()
    assert site.requests == [("/toy.bin", 0)]


# Failures of this machine


def test_a_full_disk_is_reported_and_leaves_no_file(site):
    toy = entry(link(site))
    partial(toy).parent.mkdir(parents=True)
    partial(toy).symlink_to("/dev/full")
    with fails("FK-FETCH-FAILED", "No space left on device"):
        fetch(toy)
    assert locate(toy) is None
    partial(toy).unlink()
    assert fetch(toy).read_bytes() == CONTENT


@pytest.mark.parametrize("blocked", ["lock", "target", "cache"])
def test_an_unwritable_cache_is_reported_in_one_sentence(site, blocked):
    """Folders in place of files and a file in place of a folder; root ignores permissions."""
    toy = entry(link(site))
    if blocked == "lock":
        (partial(toy).parent / "lock").mkdir(parents=True)
    elif blocked == "target":
        (cache_folder() / "toy.bin" / "x").mkdir(parents=True)
    else:
        cache_folder().parent.mkdir(parents=True)
        cache_folder().write_bytes(b"")
    with fails("FK-FETCH-FAILED" if blocked == "target" else "FK-CACHE-NOT-WRITABLE", str(cache_folder())):
        fetch(toy)


def test_an_unreadable_file_is_skipped(site, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "toy.bin").write_bytes(CONTENT)
    real = checksums.sha256

    def guarded(path, *rest, **options):
        if path.parent == mine:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(import_module("framekiln.weights.resolver"), "sha256", guarded)
    with fails("FK-WEIGHTS-UNREADABLE", str(mine / "toy.bin")):
        locate(entry(link(site)), weights_dir=mine)
    assert fetch(entry(link(site)), weights_dir=mine) == cache_folder() / "toy.bin"
