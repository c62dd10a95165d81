"""What commands say of an output that is none, or of which something is damaged: one sentence, and exit code 2."""

from __future__ import annotations

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
