"""The command `fetch`: stages, settings, profiles and names select weights; restricted licences need acceptance."""

from __future__ import annotations

from importlib import import_module

import pytest

from framekiln.cli.app import main
from framekiln.weights.resolver import cache_folder, default_lock
from tests.support.machine.fetch_factory import CONTENT, OTHER, entry, link


@pytest.fixture
def lock(site, monkeypatch):
    """A lockfile of two entries, one with a restricted licence, in place of the shipped one."""
    free = entry(link(site))
    bound = {"name": "bound", "file": "bound.bin", "ask": True, "licence_note": "research only"}
    asking = entry(link(site, "/bound.bin"), content=OTHER).model_copy(update=bound)
    site.files["/bound.bin"] = OTHER
    owner = import_module("framekiln.weights.lockfile")
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
        output = capsys.readouterr()
        return done.value.code or 0, output.out, output.err

    return call


def test_fetching_by_stage_by_name_and_to_a_folder(lock, run, site, tmp_path):
    code, out, _ = run("fetch", "--stages", "seeded")
    assert code == 0 and f"toy: {cache_folder() / 'toy.bin'}" in out and len(site.requests) == 1
    code, out, _ = run("fetch", "toy", "--to", tmp_path / "usb")
    assert code == 0 and (tmp_path / "usb" / "toy.bin").read_bytes() == CONTENT and len(site.requests) == 1
    code, _, err = run("fetch", "tou")
    assert code == 2 and "[FK-UNKNOWN-WEIGHTS]" in err and "'toy'" in err


def test_settings_decide_what_is_fetched(lock, run, site, tmp_path):
    code, out, _ = run("fetch", "--stages", "bound", "--set", "bound.model=toy")
    assert code == 0 and "toy:" in out and [path for path, _ in site.requests] == ["/toy.bin"]
    (tmp_path / "mine.yaml").write_text("defaults: {device: cpu}\n")
    assert run("fetch", "--stages", "seeded", "--profile", tmp_path / "mine.yaml")[0] == 0
    code, _, err = run("fetch", "--profile", "cpu-olny")
    assert code == 2 and "[FK-UNKNOWN-PROFILE]" in err and "'cpu-only'" in err


def test_a_profile_decides_what_is_fetched(lock, run, site, tmp_path):
    (tmp_path / "silent.yaml").write_text("steps: {any: {use: 'tests.toys:Seeded'}}\n")
    (tmp_path / "mine.yaml").write_text("steps: {any: {with: {model: toy}}}\n")
    code, out, _ = run("fetch", "--pipeline", tmp_path / "silent.yaml", "--profile", tmp_path / "mine.yaml")
    assert code == 0 and "toy:" in out and [path for path, _ in site.requests] == ["/toy.bin"]
    listed = run("fetch", "--list", "--pipeline", tmp_path / "silent.yaml", "--profile", tmp_path / "mine.yaml")[1]
    assert "toy" in listed and "bound" not in listed


def test_fetch_and_run_need_an_accepted_licence(lock, run, site, tmp_path):
    code, _, err = run("fetch")
    assert code == 2 and site.requests == [] and len(err.strip().splitlines()) == 1
    assert "[FK-LICENCE-NOT-ACCEPTED]" in err and "bound (MIT: research only)" in err
    assert run("fetch", "--all", "--accept-license")[0] == 0
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no photo")
    words = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    code, _, err = run("run", *words)
    assert code == 2 and "[FK-LICENCE-NOT-ACCEPTED]" in err and not (tmp_path / "out").exists()
    code, out, _ = run("run", *words, "--accept-license", "--dry-run")
    assert code == 0 and "present" in out


def test_the_list_and_the_check(lock, run):
    code, out, _ = run("fetch", "--list")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert code == 0 and "seeded" in lines["toy"] and "1.5 MB" in lines["toy"] and "missing" in lines["toy"]
    assert "to be accepted" in lines["bound"] and "127.0.0.1" in lines["bound"]
    run("fetch", "toy")
    lines = {line.split()[0]: line for line in run("fetch", "--list")[1].splitlines() if line.strip()}
    assert "present" in lines["toy"] and "missing" in lines["bound"]
    code, out, _ = run("fetch", "--verify")
    assert code == 0 and "1 verified, 0 wrong, 1 missing." in out
    (cache_folder() / "toy.bin").write_bytes(OTHER[::-1])
    code, out, err = run("fetch", "--verify")
    assert code == 2 and "0 verified, 1 wrong" in out and "[FK-WEIGHTS-MISMATCH]" in err
    assert str(cache_folder() / "toy.bin") in err


def test_each_failure_keeps_its_code(lock, run, site, tmp_path):
    (tmp_path / "file").touch()
    del site.files["/bound.bin"]
    code, _, err = run("fetch", "toy", "bound", "--accept-license", "--to", tmp_path / "file" / "usb")
    codes = [line.rpartition(" ")[2] for line in err.strip().splitlines()]
    assert (code, codes) == (2, ["[FK-FOLDER-NOT-WRITABLE]", "[FK-FETCH-FAILED]"])


def test_all_that_cannot_be_downloaded_is_one_sentence(lock, run, site):
    site.files.clear()
    code, _, err = run("fetch", "toy", "bound", "--accept-license")
    assert code == 2 and len(err.strip().splitlines()) == 1 and err.count("[FK-FETCH-FAILED]") == 1
    assert "toy (127.0.0.1 returned 404" in err and "bound (127.0.0.1 returned 404" in err


def test_missing_weights_are_listed_with_their_command(lock, run, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no photo")
    code, _, err = run("run", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (
        code == 2
        and "[FK-WEIGHTS-MISSING]" in err
        and all(value in err for value in ("toy.bin", "1.5 MB", "MIT", "framekiln fetch"))
    )
    assert "framekiln fetch toy bound --accept-license" in err
    assert "--missing-weights skip" in err and not (tmp_path / "out").exists()
