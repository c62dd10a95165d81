"""What commands say of an output that is none, or of which something is damaged: one sentence, and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.compare_factory import calls, make

__all__ = ["make"]
READING = {
    "profile": ["profile", "{}"],
    "trace": ["trace", "{}"],
    "report": ["report", "{}"],
    "retry": ["retry", "{}"],
    "predict": ["predict", "{}", "--for", "l4"],
    "compare": ["compare", "{other}", "{}", "--html", ""],
    "gate": ["compare", "--baseline", "{}", "{other}", "--fail-if", "rate<-5%", "--html", ""],
}


def refused(capsys, *words):
    """The sentence with which a command is refused."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.startswith("Error: ") and len(said.strip().splitlines()) == 1, said
    return said


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize("command", [*READING, "plan", "run"])
def test_a_file_where_an_output_is_meant(make, capsys, command, prefix):
    root, other = make("a", calls(40)), make("b", calls(40))
    words = READING.get(command, [command, "-i", str(make.folder), "-o", "{}", "--stages", "lighting"])
    said = refused(capsys, *(word.format(f"{prefix}{root}/run.json", other=other) for word in words))
    assert f"'{prefix}{root}/run.json' is a file" in said and f"the folder that it lies in is '{prefix}{root}'." in said


DAMAGED = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "list": lambda _: "[]",
    "foreign": lambda _: '{"name": "x"}',
    "steps": lambda text: json.dumps(json.loads(text) | {"steps": ["marked"], "figures": {"marked": 1}, "choices": 3}),
    "profile": lambda text: json.dumps(json.loads(text) | {"profile": "cpu-only"}),
}


CASES = [(name, how) for name in READING if name != "trace" for how in DAMAGED]
LEFT_OUT = [(name, how) for name in ("compare", "gate") for how in ("steps", "profile")]  # which compare does with them


@pytest.mark.parametrize(("command", "how"), [case for case in CASES if case not in LEFT_OUT])
def test_a_damaged_run_json(make, capsys, command, how):
    root, other = make("a", calls(40)), make("b", calls(40))
    path = Path(root) / "run.json"
    path.write_text(DAMAGED[how](path.read_text()))
    said = refused(capsys, *(word.format(root, other=other) for word in READING[command]))
    assert ("none of Framemill's" if how in ("list", "foreign") else "is damaged (") in said


def test_a_run_json_that_lacks_what_the_report_is_made_of(make, capsys):
    root = make("a")
    path = Path(root) / "run.json"
    path.write_text(json.dumps({"steps": {}, "figures": {}}))
    assert "written by another version of Framemill and lacks" in refused(capsys, "report", root)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "list", "steps"])
def test_a_run_goes_on_by_its_parts_and_writes_a_damaged_run_json_anew(framemill, make, tmp_path, how):
    words = ["run", "-i", make.folder, "-o", tmp_path / "out", "--stages", "lighting"]
    framemill(*words)
    path = tmp_path / "out" / "run.json"
    path.write_text(DAMAGED[how](path.read_text()))
    assert "Nothing is left to do" in framemill(*words)
    assert json.loads(path.read_text())["frames"] == 2
    assert "Report: " in framemill("report", tmp_path / "out")
