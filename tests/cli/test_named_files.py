"""Files and folders that a command names, in any state: one sentence with a code, and exit code 2."""

from __future__ import annotations

import re

import pytest

from tests.support.machine.command_line import command
from tests.support.machine.permissions import permissions_count

CONTENTS = {"bytes": b"a: \xff", "depth": b"[" * 10_000, "date": b"a: 2024-13-45", "number": b"a: " + b"9" * 5000}
FILES = {
    "pipeline": (["plan", "--pipeline", "{}"], "FK-NOT-YAML"),
    "profile": (["plan", "--profile", "{}"], "FK-NOT-YAML"),
    "gpus": (["predict", "out", "--for", "l4", "--gpus", "{}"], "FK-NOT-YAML"),
    "calibration": (["plan", "--calibration", "{}"], "FK-NOT-A-CALIBRATION"),
    "base": (["bench", "any", "--against", "{}"], "FK-BENCH-REPORT"),
}
PLACES = {
    "pipeline": (["plan", "--pipeline", "{}"], "FK-NO-SUCH-FILE"),
    "placement": (["plan", "--profile", "{}"], "FK-NO-SUCH-FILE"),
    "weights": (["plan", "--weights-dir", "{}"], "FK-WEIGHTS-FOLDER"),
    "known": (["plan", "--identities-from", "{}"], "FK-SETTING-NO-FILE"),
    "base": (["bench", "any", "--against", "{}"], "FK-BENCH-REPORT"),
    "bench": (["bench", "{}", "--against", "{}"], "FK-BENCH-REPORT"),
    "preview": (["plan", "--input", "{in}", "--output", "{}"], "FK-OUTPUT-ADDRESS"),
    "run": (["run", "--input", "{in}", "--output", "{}", "--stages", "lighting"], "FK-OUTPUT-ADDRESS"),
    **{name: ([name, "{}"], "FK-OUTPUT-ADDRESS") for name in ("report", "profile", "trace", "retry", "check")},
    "predict": (["predict", "{}", "--for", "l4"], "FK-OUTPUT-ADDRESS"),
    "compare": (["compare", "{}", "{in}"], "FK-OUTPUT-ADDRESS"),
    "page": (["compare", "no", "neither", "--html", "{}"], "FK-OUTPUT-MISSING"),
}


def assert_refused(words, code):
    with permissions_count():
        done = command(*words)
    assert (done.returncode, re.findall(r"\[(FK-.*)\]", done.stderr)) == (2, [code]), done
    assert len(done.stderr.strip().splitlines()) == 1, done


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_cannot_be_parsed(tmp_path, file, content):
    path, (words, code) = tmp_path / "given.yaml", FILES[file]
    path.write_bytes(CONTENTS[content])
    assert_refused([word.format(path) for word in words], code)


def test_a_value_that_cannot_be_parsed():
    assert_refused(["plan", "--set", "faces.model=2024-13-45"], "FK-NOT-YAML")


@pytest.mark.parametrize("place", ["long", "closed"])
@pytest.mark.parametrize("option", PLACES)
def test_a_place_that_the_system_refuses(tmp_path, small, option, place):
    words, code = PLACES[option]
    path = tmp_path / "closed" / ("x" * 300 if place == "long" else "x")
    path.parent.mkdir(mode=0o700 if place == "long" else 0)
    given = f"{path}.yaml"
    assert_refused([word.format(given, **{"in": small}) for word in words], code)


@pytest.mark.parametrize("option", ["pipeline", "placement"])
def test_a_file_that_this_user_may_not_read(tmp_path, option):
    words, code = PLACES[option]
    (tmp_path / "a.yaml").write_text("steps: {}")
    (tmp_path / "a.yaml").chmod(0)
    assert_refused([word.format(tmp_path / "a.yaml") for word in words], code)
