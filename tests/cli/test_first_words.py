"""What people type first: help, the version, paths without options, a command with a typing error."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from framekiln.cli.app import app, main
from framekiln.cli.options import named_paths, read_request
from framekiln.contract.errors import ConfigError
from tests.support.machine.command_line import command

COMMANDS = sorted({item.name or item.callback.__name__ for item in app.registered_commands})


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_in_three_forms(name):
    shown = [command(*words) for words in ((name, "-h"), (name, "--help"), ("help", name))]
    assert [done.returncode for done in shown] == [0, 0, 0]
    assert f"Usage: framekiln {name}" in shown[0].stdout
    assert shown[0].stdout == shown[1].stdout == shown[2].stdout


def test_help_alone_lists_the_commands():
    done = command("help")
    assert done.returncode == 0 and all(f" {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version(word):
    done = command(word)
    assert (done.returncode, done.stdout) == (0, f"framekiln {version('framekiln')}\n")


@pytest.mark.parametrize("words", [["plna", "photos", "out"], ["help", "plna"]])
def test_an_unknown_command_is_one_sentence_with_the_nearest_name(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and len(said.splitlines()) == 1
    assert "[FK-UNKNOWN-COMMAND]" in said and "'plan'" in said


def test_options_without_an_effect_are_mistakes(capsys):
    wrong = ("columns flow --all", "fetch --verify --to x", "plan --like x", "run in out --price-per-hour 3")
    for words, code in (*((words, "IDLE-OPTION") for words in wrong), ("plan --device tpu", "WRONG-OPTION")):
        with pytest.raises(SystemExit) as end:
            main(words.split())
        assert end.value.code == 2 and f"[FK-{code}]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "inputs", "output", "expected"),
    [
        ([], None, None, (None, None)),
        ([], ["a", "b"], "out", (["a", "b"], "out")),
        (["a"], None, None, (["a"], None)),
        (["a", "out"], None, None, (["a"], "out")),
        (["a", "b", "out"], None, None, (["a", "b"], "out")),
        (["a", "b"], None, "out", (["a", "b"], "out")),
    ],
)
def test_paths_are_inputs_and_then_the_output(words, inputs, output, expected):
    assert named_paths(words, inputs, output) == expected


@pytest.mark.parametrize("output", [None, "out"])
def test_paths_beside_an_input_are_refused(output):
    with pytest.raises(ConfigError) as refused:
        named_paths(["b"], ["a"], output)
    assert refused.value.code == "FK-PATHS-TWICE"


def test_plain_paths_come_before_the_environment(monkeypatch):
    monkeypatch.setenv("FRAMEKILN_INPUT", "theirs")
    monkeypatch.setenv("FRAMEKILN_OUTPUT", "theirs-out")
    request = read_request({}, ["a", "b", "out"])
    assert (request.inputs, request.output) == (("a", "b"), "out")
    request = read_request({}, ["a"])
    assert (request.inputs, request.output) == (("a",), "theirs-out")


def test_a_plan_by_plain_paths_is_the_plan_by_options(small, pipeline, tmp_path):
    plain = command("plan", small, tmp_path / "out", "--pipeline", pipeline)
    named = command("plan", "--input", small, "--output", tmp_path / "out", "--pipeline", pipeline)
    assert plain.returncode == 0 and plain.stdout == named.stdout and "7 new files" in plain.stdout


def test_names_of_a_repeated_option_add_up(small, tmp_path):
    words = "--stages", "lighting", "--stages=quality,flow", "--stages", "metadata"
    plan = json.loads(command("plan", small, tmp_path / "out", *words, "--json").stdout)
    assert [step["name"] for step in plan["steps"]] == ["decode", "metadata", "quality", "lighting", "flow"]


def test_paths_in_two_ways_are_one_sentence(small, tmp_path):
    done = command("run", small, tmp_path / "out", "--input", small)
    assert done.returncode == 2 and "[FK-PATHS-TWICE]" in done.stderr and len(done.stderr.splitlines()) == 1
    alone = command("run", small)
    assert alone.returncode == 2 and "[FK-NO-OUTPUT]" in alone.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "--lmit", "3"], "FK-UNKNOWN-OPTION", "'--limit'"),
        (["run", "--only", "lighting"], "FK-UNKNOWN-OPTION", "'--stages'"),
        (["profile", "--only", "faces"], "FK-UNKNOWN-OPTION", "'--only'"),
        (["run", "--limit", "x"], "FK-WRONG-OPTION", "'--limit'"),
        (["run", "--limit", "0"], "FK-WRONG-OPTION", "'--limit'"),
        (["run", "photos", "out", "--engine", "loc"], "FK-WRONG-OPTION", "'local'"),
        (["run", "photos", "--every-nth"], "FK-WRONG-OPTION", "'--every-nth'"),
        (["bench", "--device", "gpu"], "FK-WRONG-OPTION", "'cuda'"),
        (["report"], "FK-WRONG-OPTION", "'output'"),
    ],
)
def test_a_wrong_option_is_one_sentence_with_a_code(words, code, told, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and len(said.splitlines()) == 1
    assert f"[{code}]" in said and told in said


def test_no_words_are_help(capsys):
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 0 and "Usage: framekiln" in capsys.readouterr().out


def test_ctrl_c_while_the_command_line_is_loaded_ends_without_a_traceback():
    code = """
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "framekiln.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from framekiln.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
