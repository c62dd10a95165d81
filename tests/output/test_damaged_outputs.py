"""Commands on a wrong or damaged output: one sentence and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framekiln.cli.app import main
from framekiln.output.object_store import Store
from framekiln.profiling.records import to_table
from framekiln.reporting.html import write_report
from framekiln.runtime.run.record import sealed
from tests.support.runs.compare_factory import calls, line, make, pair
from tests.support.runs.report_factory import call_records

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


def error_of(capsys, *words):
    """Return the error message of a command that fails."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    message = capsys.readouterr().err
    assert end.value.code == 2 and message.startswith("Error: ") and len(message.strip().splitlines()) == 1, message
    return message


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize("command", [*READING, "plan", "run"])
def test_a_file_in_place_of_an_output(make, capsys, command, prefix):
    root, other = make("a", calls(40)), make("b", calls(40))
    words = READING.get(command, [command, "-i", str(make.folder), "-o", "{}", "--stages", "lighting"])
    message = error_of(capsys, *(word.format(f"{prefix}{root}/run.json", other=other) for word in words))
    assert "[FK-OUTPUT-IS-FILE]" in message
    assert f"'{prefix}{root}/run.json'" in message and f"'{prefix}{root}'" in message


DAMAGED = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "list": lambda _: "[]",
    "foreign": lambda _: '{"name": "x"}',
    "steps": lambda text: json.dumps(json.loads(text) | {"steps": ["marked"], "figures": {"marked": 1}, "choices": 3}),
    "digit": lambda text: text.replace('"frames": ', '"frames": 1'),
}


CASES = [(name, how) for name in READING if name != "trace" for how in DAMAGED]


@pytest.mark.parametrize(("command", "how"), CASES)
def test_a_damaged_run_json(make, capsys, command, how):
    root, other = make("a", calls(40)), make("b", calls(40))
    path = Path(root) / "run.json"
    path.write_text(DAMAGED[how](path.read_text()))
    message = error_of(capsys, *(word.format(root, other=other) for word in READING[command]))
    assert f"[{'FK-NOT-OURS' if how in ('list', 'foreign') else 'FK-RUN-RECORD-DAMAGED'}]" in message


def test_a_run_json_without_the_keys_of_the_report(make, capsys):
    root = make("a")
    path = Path(root) / "run.json"
    path.write_text(json.dumps(sealed({"steps": {}, "figures": {}})))
    assert "[FK-OTHER-VERSION]" in error_of(capsys, "report", root)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", *(pytest.param(how, marks=pytest.mark.heavy) for how in ("list", "steps"))])
def test_a_run_resumes_from_its_parts_and_replaces_a_damaged_run_json(serial, framekiln, make, tmp_path, how):
    words = ["run", "-i", make.folder, "-o", tmp_path / "out", "--stages", "lighting"]
    framekiln(*words)
    path = tmp_path / "out" / "run.json"
    path.write_text(DAMAGED[how](path.read_text()))
    assert "Nothing is left to do" in framekiln(*words)
    assert json.loads(path.read_text())["frames"] == 2
    assert "Report: " in framekiln("report", tmp_path / "out")


def truncate(root, name):
    """Remove the end of a file of records."""
    path = Path(root) / "profile" / name
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("words", [["profile", "{}"], ["profile", "{}", "--run", "a1"], ["trace", "{}"]])
def test_damaged_records_are_named(make, capsys, words):
    root = make("a", calls(40))
    truncate(root, "calls-a1.parquet")
    message = error_of(capsys, *(word.format(root) for word in words))
    assert f"profile/calls-a1.parquet in the output '{root}' is damaged (" in message and "delete it" in message
    assert not list(Path(root).glob("trace*"))


@pytest.mark.parametrize("command", ["profile", "trace"])
def test_a_damaged_file_affects_only_its_run(make, capsys, command):
    root = make("a")
    for run in ("a1", "b2"):
        lines = [line | {"run": run} for line in call_records({"h:1": ["decode"], "h:2": ["marked"]})]
        Store(root).write_table(f"profile/calls-{run}.parquet", to_table(lines))
    truncate(root, "calls-b2.parquet")
    for words, aside in ((["--run", "a1"], False), ([], True)):
        with pytest.raises(SystemExit) as end:
            main([command, root, *words])
        output = capsys.readouterr()
        assert end.value.code == 0, output.err
        assert "a1" in output.out and ("Skipped a run: profile/calls-b2.parquet" in output.err) is aside
    assert "is damaged" in error_of(capsys, command, root, "--run", "b2")


def test_compare_and_the_report_name_damaged_records(make):
    a, b = make("a", calls(40)), make("b", calls(40))
    assert line(pair(a, b), "marked", "rate").interval
    truncate(b, "calls-a1.parquet")
    assert line(pair(a, b), "marked", "rate").why_unknown == "B's records of calls are damaged"
    assert "No timeline: profile/calls-a1.parquet" in Path(write_report(Store(b))).read_text()
