"""One collection, one pipeline and one undisturbed run, for all tests of disturbed ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from framekiln.cli.app import main
from tests.faults import chaos


@dataclass(frozen=True)
class Undisturbed:
    """A run's input and pipeline, and what comes out when nothing happens."""

    source: Path
    pipeline: Path
    out: Path

    def words(self, out: Path, *more: object) -> list[object]:
        """The command that gives the same into another output."""
        return ["--pipeline", self.pipeline, "--input", self.source, "--output", out, *more]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Undisturbed(chaos.collection(folder / "in"), chaos.pipeline(folder / "pipeline.yaml"), folder / "out")
    with pytest.raises(SystemExit) as end:
        main(["run", *map(str, run.words(run.out, "--engine", "local"))])  # both engines give the same tables
    assert not end.value.code
    return run
