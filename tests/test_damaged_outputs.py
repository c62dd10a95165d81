"""What commands say of an output that is none, or of which something is damaged: one sentence, and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.storage import Store
from pipeline.telemetry.records import to_table
from pipeline.telemetry.report import write_report
from tests.compare_factory import calls, line, make, pair
from tests.report_factory import call_records

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


def torn(root, name):
    """A file of records of which the end is missing."""
    path = Path(root) / "profile" / name
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("words", [["profile", "{}"], ["profile", "{}", "--run", "a1"], ["trace", "{}"]])
def test_damaged_records_are_named(make, capsys, words):
    root = make("a", calls(40))
    torn(root, "calls-a1.parquet")
    said = refused(capsys, *(word.format(root) for word in words))
    assert f"profile/calls-a1.parquet in the output '{root}' is damaged (" in said and "delete it" in said
    assert not list(Path(root).glob("trace*"))


@pytest.mark.parametrize("command", ["profile", "trace"])
def test_one_damaged_file_leaves_other_runs_alone(make, capsys, command):
    root = make("a")
    for run in ("a1", "b2"):
        lines = [line | {"run": run} for line in call_records({"h:1": ["decode"], "h:2": ["marked"]})]
        Store(root).write_table(f"profile/calls-{run}.parquet", to_table(lines))
    torn(root, "calls-b2.parquet")
    for words, aside in ((["--run", "a1"], False), ([], True)):
        with pytest.raises(SystemExit) as end:
            main([command, root, *words])
        said = capsys.readouterr()
        assert end.value.code == 0, said.err
        assert "a1" in said.out and ("A run is left out: profile/calls-b2.parquet" in said.err) is aside
    assert "is damaged" in refused(capsys, command, root, "--run", "b2")


def test_compare_and_the_report_say_that_records_are_damaged(make):
    a, b = make("a", calls(40)), make("b", calls(40))
    assert line(pair(a, b), "marked", "rate").interval
    torn(b, "calls-a1.parquet")
    assert line(pair(a, b), "marked", "rate").why_unknown == "B's records of calls are damaged"
    assert "No time line: profile/calls-a1.parquet" in Path(write_report(Store(b))).read_text()
