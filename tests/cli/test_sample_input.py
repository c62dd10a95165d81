"""A run without an input takes the sample collection; the environment names paths where the command line does not."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from framekiln.cli.commands.run import with_samples
from framekiln.cli.options import RunArguments, read_request
from tests.support.machine.object_server import Objects, served

WORDS = ("run", "--stages", "lighting", "--every-nth", "25")


def times(folder):
    files = [*(folder / "framekiln-out-samples").rglob("*.*"), *(folder / "framekiln-out" / "columns").rglob("*.*")]
    return {path: path.stat().st_mtime_ns for path in files}


def test_a_run_without_any_path_computes_the_samples(serial, framekiln, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "framekiln-out-samples" in framekiln(*WORDS)
    record = json.loads((tmp_path / "framekiln-out" / "run.json").read_text())
    assert record["errors"] == {} and record["choices"]["missing_weights"] == "skip"
    media = set(pq.read_table(tmp_path / "framekiln-out" / "frames")["media_id"].to_pylist())
    assert len(media) == 6 and "photos/china.jpg" in media
    before = times(tmp_path)
    framekiln(*WORDS)
    assert times(tmp_path) == before  # nothing is made or computed again


def test_samples_lie_beside_a_named_output(tmp_path):
    output = str(tmp_path / "mine")
    request = with_samples(read_request(RunArguments(output=output)), Console(quiet=True))
    assert (tmp_path / "mine-samples" / "clips" / "cut.mp4").exists()
    assert (request.inputs, request.output) == ((f"{output}-samples",), output)


def test_samples_lie_beside_an_output_in_a_bucket():
    with served(Objects()) as bucket:
        output = bucket.url.format("out/mine")
        request = with_samples(read_request(RunArguments(output=output)), Console(quiet=True))
        assert request.inputs == (bucket.url.format("out/mine-samples"),)
        assert "out/mine-samples/clips/cut.mp4" in bucket.files


@pytest.mark.parametrize(("option", "variable"), [("input", "FRAMEKILN_INPUT"), ("output", "FRAMEKILN_OUTPUT")])
def test_the_environment_names_a_path_unless_the_command_line_does(monkeypatch, option, variable):
    def path(**given):
        request = read_request(RunArguments(**given))
        return request.output if option == "output" else "".join(request.inputs)

    monkeypatch.setenv(variable, "from/environment")
    assert path() == "from/environment"
    assert path(**{"input": {"input": ["mine"]}, "output": {"output": "mine"}}[option]) == "mine"
    monkeypatch.setenv(variable, "")
    assert path() == ""
