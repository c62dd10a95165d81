"""Weights that come by themselves: whole and right or not at all, whatever the network does meanwhile."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import socket
import zipfile
from importlib import import_module

import pytest

from pipeline.cli import main
from pipeline.errors import WeightsError
from pipeline.weights import Bundle, Entry, Local, Url, cache_folder, default_lock, digest, locate, refuse_unaccepted
from pipeline.weights.bundle import assemble
from pipeline.weights.fetch import carry, fetch, verify
from tests.range_server import serving

CONTENT = random.Random(3).randbytes(1_500_000)
OTHER = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


@pytest.fixture(autouse=True)
def fresh_machine(tmp_path, monkeypatch):
    """No weights anywhere, and no proxy between the test and its server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FRAMEMILL_WEIGHTS", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def site():
    with serving() as found:
        found.files["/toy.bin"] = CONTENT
        yield found


def sha(content):
    return hashlib.sha256(content).hexdigest()


def entry(*sources, content=CONTENT, **changes):
    facts = {"bytes": len(content), "sha256": sha(content), "licence": "MIT", "licence_note": "", "format": "bytes"}
    checked = Entry(name="toy", file="toy.bin", sources=(Local(kind="local", note="x"),), **facts | changes)
    return checked.model_copy(update={"sources": sources})  # unchecked: the lockfile takes no plain http


def link(site, path="/toy.bin"):
    return Url.model_construct(kind="url", url=site.url + path)


def nobody():
    """An address where nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Url.model_construct(kind="url", url=f"http://127.0.0.1:{free.getsockname()[1]}/toy.bin")


def partial(toy):
    return cache_folder() / ".partial" / "toy" / f"{toy.sha256[:16]}.part"


def begin(toy, content):
    partial(toy).parent.mkdir(parents=True)
    partial(toy).write_bytes(content)


# One source


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


# Several sources


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


def test_what_is_published_nowhere_is_told_with_where_it_is_and_where_it_goes():
    with pytest.raises(WeightsError) as error:
        fetch(entry(Local(kind="local", note="toy.bin in https://example.org/toys.zip")))
    said = str(error.value)
    assert "https://example.org/toys.zip" in said and f"put it into {cache_folder()}" in said and "\n" not in said
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "toy.bin").write_bytes(CONTENT)
    assert fetch(entry(Local(kind="local", note="x"))) == cache_folder() / "toy.bin"


# Several processes


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


# Carrying and checking


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


# The command


@pytest.fixture
def lock(site, monkeypatch):
    """A lockfile of two entries, one of which wants its licence accepted, in place of the one that ships."""
    free = entry(link(site))
    bound = {"name": "bound", "file": "bound.bin", "ask": True, "licence_note": "research only"}
    asking = entry(link(site, "/bound.bin"), content=OTHER).model_copy(update=bound)
    site.files["/bound.bin"] = OTHER
    owner = import_module("pipeline.weights.locate")  # by attribute, it is the function of that name
    monkeypatch.setattr(owner, "load_lock", lambda _: {"toy": free, "bound": asking})
    default_lock.cache_clear()
    yield
    default_lock.cache_clear()


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line in this process: exit code, output, errors."""
    monkeypatch.setenv("COLUMNS", "200")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        "steps:\n  seeded: {use: 'tests.toys:Seeded', with: {model: toy}}\n"
        "  bound: {use: 'tests.toys:Seeded', with: {model: bound, column: other}}\n"
    )

    def call(command, *words):
        with pytest.raises(SystemExit) as done:
            main([command, "--pipeline", str(pipeline), *map(str, words)])
        said = capsys.readouterr()
        return done.value.code or 0, said.out, said.err

    return call


def test_fetching_by_stage_by_name_and_to_a_folder(lock, run, site, tmp_path):
    code, out, _ = run("fetch", "--stages", "seeded")
    assert code == 0 and f"toy: {cache_folder() / 'toy.bin'}" in out and len(site.asked) == 1
    code, out, _ = run("fetch", "toy", "--to", tmp_path / "usb")
    assert code == 0 and (tmp_path / "usb" / "toy.bin").read_bytes() == CONTENT and len(site.asked) == 1
    code, _, err = run("fetch", "tou")
    assert code == 2 and "Did you mean 'toy'" in err


def test_settings_decide_what_is_fetched(lock, run, site, tmp_path):
    code, out, _ = run("fetch", "--stages", "bound", "--set", "bound.model=toy")
    assert code == 0 and "toy:" in out and [path for path, _ in site.asked] == ["/toy.bin"]
    (tmp_path / "mine.yaml").write_text("defaults: {device: cpu}\n")
    assert run("fetch", "--stages", "seeded", "--profile", tmp_path / "mine.yaml")[0] == 0
    code, _, err = run("fetch", "--profile", "cpu-olny")
    assert code == 2 and "Did you mean 'cpu-only'" in err


def test_a_profile_decides_what_is_fetched(lock, run, site, tmp_path):
    (tmp_path / "silent.yaml").write_text("steps: {any: {use: 'tests.toys:Seeded'}}\n")
    (tmp_path / "mine.yaml").write_text("steps: {any: {with: {model: toy}}}\n")
    code, out, _ = run("fetch", "--pipeline", tmp_path / "silent.yaml", "--profile", tmp_path / "mine.yaml")
    assert code == 0 and "toy:" in out and [path for path, _ in site.asked] == ["/toy.bin"]


def test_a_licence_is_to_be_accepted_by_fetch_and_by_run(lock, run, site, tmp_path):
    code, _, err = run("fetch")
    assert code == 2 and site.asked == [] and len(err.strip().splitlines()) == 1
    assert "bound (MIT: research only); add --accept-license" in err
    assert run("fetch", "--all", "--accept-license")[0] == 0
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no photo")
    words = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    code, _, err = run("run", *words)
    assert code == 2 and "add --accept-license" in err and not (tmp_path / "out").exists()
    code, out, _ = run("run", *words, "--accept-license", "--dry-run")
    assert code == 0 and "at hand" in out


def test_refusing_names_only_what_asks():
    refuse_unaccepted([entry()], accepted=False)
    refuse_unaccepted([entry(ask=True)], accepted=True)
    with pytest.raises(WeightsError, match="--accept-license"):
        refuse_unaccepted([entry(), entry(ask=True)], accepted=False)


def test_the_list_and_the_check(lock, run):
    code, out, _ = run("fetch", "--list")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert code == 0 and "seeded" in lines["toy"] and "1.5 MB" in lines["toy"] and "missing" in lines["toy"]
    assert "to be accepted" in lines["bound"] and "127.0.0.1" in lines["bound"]
    run("fetch", "toy")
    lines = {line.split()[0]: line for line in run("fetch", "--list")[1].splitlines() if line.strip()}
    assert "at hand" in lines["toy"] and "missing" in lines["bound"]
    code, out, _ = run("fetch", "--verify")
    assert code == 0 and "1 verified, 0 wrong, 1 not at hand." in out
    (cache_folder() / "toy.bin").write_bytes(OTHER[::-1])
    code, out, err = run("fetch", "--verify")
    assert code == 2 and "0 verified, 1 wrong" in out and "is not toy" in err


def test_what_is_missing_is_told_with_the_command_that_gets_it(lock, run, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no photo")
    code, _, err = run("run", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 2 and "toy.bin (toy, 1.5 MB, licence MIT) is missing: download http://127.0.0.1" in err
    assert "To get them: framemill fetch toy bound --accept-license" in err
    assert "--missing-weights skip" in err and not (tmp_path / "out").exists()
