"""A failing row or file is a line in errors and costs no other; a faulty stage ends the run."""

from __future__ import annotations

import psutil
import pytest

from framekiln.contract.errors import ContractError, SetupError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.planning.step import DUMMY
from tests.support.runs.engine_factory import ALL, order, small, table

__all__ = ["small"]

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(engine, monkeypatch):
    """Both engines; the local one with one process, which all of these need."""
    monkeypatch.setattr("framekiln.engine.local.engine.usable_cores", lambda: 1)
    return engine


def test_a_row_that_makes_a_stage_raise_is_alone_to_blame(small, tmp_path, machines, engine):
    out = tmp_path / "out"
    result = Job(order(small, out, {"crc": ("Picky", {"refuse": (3, 17)}), "twice": ("Double", {})})).run()
    frames = table(out, FRAMES)
    expected = [None if i in (3, 17) else i for i in range(30)]
    assert frames["crc"].to_pylist()[:30] == expected
    assert frames["twice"].to_pylist()[:30] == [None if i is None else 2 * i for i in expected]
    errors = table(out, ERRORS).to_pylist()
    assert [(e["media_id"], e["frame_index"], e["step"], e["kind"]) for e in errors] == [
        ("clip.png", i, "crc", "ValueError") for i in (3, 17)
    ]
    assert "not to my taste" in errors[0]["message"] and "faulty.py" in errors[0]["traceback"]
    assert result.errors == {"ValueError": 2}


def test_bad_files_are_lines_in_errors(small, tmp_path, machines, engine):
    (small / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    (small / "empty.jpg").write_bytes(b"")  # the only one of its unit
    result = Job(order(small, tmp_path / "out", ALL)).run()
    assert not Job(order(small, tmp_path / "out", ALL)).run().work.left
    errors = table(tmp_path / "out", ERRORS).to_pylist()
    assert {e["media_id"] for e in errors} == {"broken.png", "empty.jpg"} and all(e["step"] == "decode" for e in errors)
    assert result.frames == 36


@pytest.mark.heavy
def test_errors_beside_random_weights_are_marked_too(small, tmp_path, local):
    steps = {"picky": ("Picky", {"refuse": (3,)}), "seeded": ("Seeded", {})}
    Job(order(small, tmp_path / "out", steps, missing_weights="dummy")).run()
    store = Store(str(tmp_path / "out"))
    tables = [store.read_table(f"{ERRORS}/{name}") for name in store.names(ERRORS)]
    assert tables and all(one.schema.metadata[DUMMY.encode()] == b"seeded" for one in tables)


def test_a_stage_that_lies_stops_the_run(small, tmp_path, machines, engine):
    with pytest.raises(ContractError) as error:
        Job(order(small, tmp_path / "out", {"liar": ("Liar", {})})).run()
    assert error.value.code == "FK-UNDECLARED-COLUMNS"
    for value in ("'liar'", "promised int64", "delivered int32"):
        assert value in str(error.value)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.heavy), "cuda"])  # a task, a process
def test_a_stage_that_cannot_be_set_up_stops_the_run_in_one_sentence(small, tmp_path, machines, engine, device, capfd):
    wanted = order(small, tmp_path / "out", {"odd": ("Unready", {})}, device=device, settings=("odd.gpus=0",))
    with pytest.raises(SetupError) as error:
        Job(wanted).run()
    assert error.value.code == "FK-STAGE-SETUP"
    assert "'odd'" in str(error.value) and "RuntimeError: the model is upside down" in str(error.value)
    assert "Traceback" not in capfd.readouterr().err
    left = [process for process in psutil.process_iter(["name"]) if "MapBatches(odd)" in (process.info["name"] or "")]
    assert not psutil.wait_procs(left, timeout=60)[1]  # else it keeps its share of the machine from the next run
