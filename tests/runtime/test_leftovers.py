"""`framekiln prune` leaves what the tables use, and nothing of files that are gone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.job import Job
from framekiln.output.object_store import Store
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import request
from tests.support.runs.serial_engine import without_ray


def run(source, out, steps=("crc", "count"), **settings):
    """Run two toys, and return how many rows each computed."""
    toys = {"crc": {"use": "tests.toys:Checksum", "with": settings}, "count": {"use": "tests.toys:Count"}}
    chosen = {name: toys[name] for name in steps}
    with without_ray():
        result = Job(request(source, out, {"steps": chosen}, {"decode": {"workers": 1}})).run()
    return {name: totals.rows for name, totals in result.figures.steps.items() if totals.rows}


def make_output_without_p03(folder):
    """An input of 24 photos less one, and the output that was made with it."""
    source, out = folder / "in", folder / "out"
    for number in range(24):
        photo(source / f"p{number:02}.png", number)
    run(source, out)
    (source / "p03.png").unlink()
    return source, out


def holders(out, name):
    """The tables with a value of media_id or path that ends with a name."""
    found = set()
    for path in out.rglob("*.parquet"):
        columns = [column.cast(pa.binary()) for column in pq.read_table(path).columns if column.type in TEXTS]
        if any(value and value.endswith(name) for column in columns for value in column.to_pylist()):
            found.add(path.relative_to(out).parts[0])
    return found - {"profile"}


TEXTS = (pa.string(), pa.binary())


def test_prune_leaves_what_the_tables_use_and_nothing_of_files_that_are_gone(tmp_path):
    source, out = make_output_without_p03(tmp_path)
    assert run(source, out) == {}
    (out / "selections").mkdir()
    pq.write_table(pa.table({"media_id": ["p03.png", "p04.png"]}), out / "selections" / "mine.parquet")
    tables = {
        path: (out / path).read_bytes() for folder in ("frames", "counts") for path in Store(str(out)).sizes(folder)
    }
    assert holders(out, b"p03.png") == {"columns", "units", "selections"}
    dry = command("prune", out, "--dry-run")
    assert (dry.returncode, holders(out, b"p03.png")) == (0, {"columns", "units", "selections"})
    assert command("prune", out).returncode == 0 and holders(out, b"p03.png") == set()
    assert {path: (out / path).read_bytes() for path in tables} == tables
    assert pq.read_table(out / "selections" / "mine.parquet")["media_id"].to_pylist() == ["p04.png"]
    assert run(source, out) == {} and command("check", out).returncode == 0


def test_prune_takes_results_of_earlier_settings_only_where_it_is_asked(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    for number in range(3):
        photo(source / f"p{number}.png", number)
    run(source, out)
    run(source, out, column="frame_224")
    folders = set(Store(str(out)).folders("columns"))
    assert command("prune", out).returncode == 0 and set(Store(str(out)).folders("columns")) == folders
    assert command("prune", out, "--earlier-settings").returncode == 0
    assert run(source, out, column="frame_224") == {}
    assert run(source, out)["crc"] == 3


def test_prune_takes_tables_of_left_out_steps_that_name_files_that_are_gone(tmp_path):
    source, out = make_output_without_p03(tmp_path)
    run(source, out, steps=("crc",))
    assert holders(out, b"p03.png") == {"columns", "units", "counts"} and holders(out, b"p20.png") >= {"counts"}
    assert command("prune", out).returncode == 0
    assert holders(out, b"p03.png") == set() and holders(out, b"p20.png") >= {"counts"}
    assert b"p03.png" not in (out / "report.html").read_bytes()
    assert run(source, out)["count"] and command("check", out).returncode == 0
    run(source, out, steps=("crc",), column="frame_224")
    assert command("prune", out, "--earlier-settings").returncode == 0
    assert holders(out, b"p20.png") == {"columns", "frames", "units"}
