"""The command `fetch`: stages, settings, profiles and names say what is brought, and a licence is to be accepted."""

from __future__ import annotations

from importlib import import_module

import pytest

from pipeline.cli import main
from pipeline.errors import WeightsError
from pipeline.weights import cache_folder, default_lock, refuse_unaccepted
from tests.fetch_factory import CONTENT, OTHER, entry, link


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
