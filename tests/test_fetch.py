"""A file of weights comes whole and right or not at all, whatever the network and the disk do meanwhile."""

from __future__ import annotations

import multiprocessing
from importlib import import_module

import pytest

from pipeline.errors import WeightsError
from pipeline.weights import cache_folder, digest, locate
from pipeline.weights.fetch import fetch
from tests.fetch_factory import CONTENT, OTHER, entry, link, partial, sha

pytestmark = pytest.mark.usefixtures("no_weights")


def begin(toy, content):
    partial(toy).parent.mkdir(parents=True)
    partial(toy).write_bytes(content)


def test_a_file_is_brought_once_and_watched(site):
    seen = []
    path = fetch(entry(link(site)), watch=lambda *told: seen.append(told))
    assert path == cache_folder() / "toy.bin" and path.read_bytes() == CONTENT
    assert seen[0] == ("toy", 0, len(CONTENT)) and seen[-1] == ("toy", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert fetch(entry(link(site))) == path and site.asked == [("/toy.bin", 0)]


def test_a_cut_connection_goes_on_where_it_stopped(site):
    site.cuts = [600_000, 500_000]
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    starts = [start for _, start in site.asked]
    assert len(starts) == 3 and starts[0] == 0 and 500_000 < starts[1] <= 600_000 and 900_000 < starts[2] <= 1_100_000


def test_a_server_that_cuts_every_answer_is_given_up(site):
    site.cuts = [10] * 100
    with pytest.raises(WeightsError, match="cuts its answers off"):
        fetch(entry(link(site)))
    assert len(site.asked) < 10


def test_what_a_killed_process_left_is_continued(site):
    toy = entry(link(site))
    begin(toy, CONTENT[:700_000])
    assert locate(toy) is None
    assert fetch(toy).read_bytes() == CONTENT
    assert site.asked == [("/toy.bin", 700_000)] and not partial(toy).exists()


def test_a_server_without_ranges_is_asked_for_all_of_it(site):
    site.ranges, site.cuts = False, [600_000]
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    assert site.asked == [("/toy.bin", 0), ("/toy.bin", 0)]


def test_a_beginning_that_was_wrong_is_given_up(site):
    toy = entry(link(site))
    begin(toy, bytes(700_000))
    assert fetch(toy).read_bytes() == CONTENT
    assert site.asked == [("/toy.bin", 700_000), ("/toy.bin", 0)]


def test_a_busy_server_is_asked_again(site):
    site.busy = 2
    assert fetch(entry(link(site))).read_bytes() == CONTENT
    assert len(site.asked) == 3


@pytest.mark.parametrize("content", [OTHER, CONTENT[:-1], CONTENT + b"x", b"<html>Please log in</html>", b""])
def test_another_file_is_refused_and_removed(site, content):
    site.files["/toy.bin"] = content
    toy = entry(link(site))
    with pytest.raises(
        WeightsError, match=r"toy could not be fetched: 127\.0\.0\.1 (sent|offers) .*lockfile says"
    ) as error:
        fetch(toy)
    assert "\n" not in str(error.value)
    assert locate(toy) is None and not partial(toy).exists() and not (cache_folder() / "toy.bin").exists()


def test_a_wrong_file_in_the_cache_is_replaced(site):
    cache_folder().mkdir(parents=True)
    (cache_folder() / "toy.bin").write_bytes(OTHER)
    assert fetch(entry(link(site))).read_bytes() == CONTENT


def _fetch_at_once(toy, barrier, answers):
    barrier.wait()
    answers.put(sha(fetch(toy).read_bytes()))


def test_processes_that_ask_at_once_download_once(site):
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(3), context.Queue()
    toy = entry(link(site))
    workers = [context.Process(target=_fetch_at_once, args=(toy, barrier, answers)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=60) for _ in workers] == [toy.sha256] * 3
    for worker in workers:
        worker.join()
    assert site.asked == [("/toy.bin", 0)]


# A machine that does not help


def test_a_full_disk_is_told_and_costs_no_earlier_file(site):
    toy = entry(link(site))
    partial(toy).parent.mkdir(parents=True)
    partial(toy).symlink_to("/dev/full")
    with pytest.raises(WeightsError, match="cannot be written .No space left on device"):
        fetch(toy)
    assert locate(toy) is None
    partial(toy).unlink()
    assert fetch(toy).read_bytes() == CONTENT


@pytest.mark.parametrize("blocked", ["lock", "target", "cache"])
def test_a_cache_that_cannot_be_written_is_told_in_one_sentence(site, blocked):
    """Folders where files should be, and a file where a folder should: permissions do not hold for root."""
    toy = entry(link(site))
    if blocked == "lock":
        (partial(toy).parent / "lock").mkdir(parents=True)
    elif blocked == "target":
        (cache_folder() / "toy.bin" / "x").mkdir(parents=True)
    else:
        cache_folder().parent.mkdir(parents=True)
        cache_folder().write_bytes(b"")
    with pytest.raises(WeightsError, match="cannot be written") as error:
        fetch(toy)
    assert "\n" not in str(error.value) and str(cache_folder()) in str(error.value)


def test_a_file_that_cannot_be_read_is_passed_over(site, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "toy.bin").write_bytes(CONTENT)
    real = digest.sha256

    def guarded(path, *rest, **options):
        if path.parent == mine:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(import_module("pipeline.weights.locate"), "sha256", guarded)
    with pytest.raises(WeightsError, match="mine/toy.bin cannot be read .Permission denied"):
        locate(entry(link(site)), weights_dir=mine)
    assert fetch(entry(link(site)), weights_dir=mine) == cache_folder() / "toy.bin"
