"""`framekiln.run`: what it takes, what it gives back, and that it is the command."""

from __future__ import annotations

import inspect
import json
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer

import framekiln
from framekiln.api.options import Instruments
from framekiln.cli.app import app
from framekiln.contract.errors import BudgetError
from tests.support.errors import fails
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import frame
from tests.support.runs.engine_factory import table
from tests.toys import Checksum, Reads
from tests.toys.functions import brightness

STEPS = {"steps": {"crc": {"use": "tests.toys:Checksum"}, "count": {"use": "tests.toys:Count"}}}


def test_stages_are_names_classes_settings_and_functions(media, tmp_path, serial):
    stages = [
        "crc",
        brightness,
        {"length": Reads(Reads.Config(column="brightness"))},
        framekiln.stage(inputs="crc", outputs={"odd": pa.bool_()})(_odd),
    ]
    out = framekiln.run(media, tmp_path / "out", pipeline=STEPS, stages=stages)
    rows = out.table("frames").to_table().to_pylist()
    assert len(rows) == 36 and all(row["odd"] == bool(row["crc"] % 2) for row in rows)
    seeds = {"zz.png": 100} | {f"photo{number}.png": number for number in range(6)}
    for row in rows:
        assert row["brightness"] == pytest.approx(frame(seeds[row["media_id"]], row["frame_index"]).mean())
    assert out.record["steps"].keys() == {"crc", "brightness", "length", "_odd"}
    assert out.record["steps"]["length"]["settings"] == {"column": "brightness", "folder": ""}
    assert out.record["call"].startswith(f"framekiln.run({str(media)!r}, ")
    assert "{'length': Reads(Reads.Config(column='brightness', folder=''))}, _odd]" in out.record["call"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "stages=[&#39;crc&#39;, brightness, " in page and "brightness 1" in page


def _odd(crc):
    return crc % 2 == 1


def _make_locked():
    lock = threading.Lock()

    def locked(crc):
        return lock.locked()

    return framekiln.stage(inputs="crc", outputs={"locked": pa.bool_()})(locked)


def test_inputs_and_settings_may_be_of_pandas_and_numpy(media, tmp_path):
    files = pd.Series(sorted(map(str, media.iterdir())))
    settings = {"crc": {"column": np.str_("frame_90")}, "decode": {"every_nth": np.int64(4)}}
    plan = framekiln.plan(files, tmp_path / "out", pipeline=STEPS, stages="crc", settings=settings)
    assert plan.to_do["crc"] == len(files)
    assert plan.planned.decode.config.every_nth == 4


def test_a_run_is_the_command(media, tmp_path, serial, capfd):
    (tmp_path / "pipeline.yaml").write_text(json.dumps(STEPS))
    words = ["--input", media, "--output", tmp_path / "by-command", "--pipeline", tmp_path / "pipeline.yaml"]
    done = command("run", *words, "--set", "crc.column=frame_90", "--limit", "5", "--max-errors", "1%")
    assert done.returncode == 0, done.stderr
    capfd.readouterr()
    settings = {"crc": {"column": "frame_90"}}
    out = framekiln.run(
        media, tmp_path / "by-api", pipeline=STEPS, settings=settings, limit=5, max_errors="1%", progress=False
    )
    assert capfd.readouterr() == ("", ""), "nothing is printed"
    ours, theirs = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("by-api", "by-command"))
    measured = {"started", "seconds", "written", "run", "figures", "throughput", "output", "arguments", "sha256"}
    assert ours.keys() - theirs.keys() == {"call"} and theirs.keys() <= ours.keys()
    assert {key: ours[key] for key in theirs.keys() - measured} == {
        key: theirs[key] for key in theirs.keys() - measured
    }
    for name in ("frames", "counts"):
        assert out.table(name).to_table().num_rows in (5, 5)
    assert table(tmp_path / "by-api", "frames").equals(table(tmp_path / "by-command", "frames"))
    names = [{path.name for path in (tmp_path / name).iterdir()} for name in ("by-api", "by-command")]
    assert names[0] == names[1]


def test_every_option_of_the_command_has_its_name_here():
    ours = set(inspect.signature(framekiln.run).parameters)
    run, plan = ({item.name for item in typer.main.get_group(app).commands[name].params} for name in ("run", "plan"))
    theirs = run - {"paths", "dry_run", "quiet", "json_", "price_per_hour"}  # of what is printed
    assert ours - theirs == {"progress"} and theirs <= ours
    assert set(inspect.signature(framekiln.plan).parameters) == theirs - set(Instruments.__annotations__) | {"like"}
    assert plan - {"paths", "json_", "price_per_hour"} == theirs - set(Instruments.__annotations__) | {"like"}


def test_an_edited_function_is_computed_again_and_nothing_else(media, tmp_path, serial):
    def measure(add):
        @framekiln.stage(inputs="time_s", outputs={"moment": pa.float64()})
        def moment(time_s):
            return None if time_s is None else time_s + add

        return ["crc", moment]

    def to_do(add):
        return framekiln.plan(media, tmp_path / "out", pipeline=STEPS, stages=measure(add)).to_do

    framekiln.run(media, tmp_path / "out", pipeline=STEPS, stages=measure(1))
    assert to_do(1) == {"decode": 0, "crc": 0, "moment": 0}
    assert to_do(2) == {"decode": 0, "crc": 0, "moment": 7}
    out = framekiln.run(media, tmp_path / "out", pipeline=STEPS, stages=measure(2))
    assert min(filter(None, out.table("frames").to_table()["moment"].to_pylist())) == 2
    assert command("check", tmp_path / "out").returncode == 0, "its column is known to this script alone"


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"every_nht": 2}, "FK-UNKNOWN-OPTION", "Did you mean 'every_nth'"),
        ({"stagess": ["crc"]}, "FK-UNKNOWN-OPTION", "Did you mean 'stages'"),
        ({"stages": []}, "FK-UNKNOWN-STEP", "stages is empty"),
        ({"settings": "crc.colum=frame"}, "FK-UNKNOWN-SETTING", "Did you mean 'column'"),
        ({"profile": 5}, "FK-INVALID-SETTING", "profile: 5"),
        ({"limit": 0}, "FK-INVALID-SETTING", "'limit'"),
        ({"missing_weights": "skp"}, "FK-INVALID-SETTING", "'missing_weights'"),
        ({"shard": (3, 2)}, "FK-BAD-SHARD", "'3/2'"),
        ({"stages": ["crk"]}, "FK-UNKNOWN-STEP", "Did you mean 'crc'"),
        ({"stages": [_odd]}, "FK-NOT-A-STAGE", "_odd"),
        ({"stages": [_make_locked()]}, "FK-STAGE-PICKLE", "locked"),
        ({"settings": {"crc.column": "frame"}}, "FK-INVALID-SETTING", "'crc.column'"),
        ({"settings": {"crc": {"column": object()}}}, "FK-INVALID-SETTING", "crc.column"),
        ({"rows": pa.table({})}, "FK-INVALID-SETTING", "to_parquet"),
        ({"stages": [{"crc": brightness}]}, "FK-STEP-TWICE", "'my_crc': brightness"),
        ({"stages": [{"a": Checksum}, {"a": brightness}]}, "FK-STEP-TWICE", "'a'"),
        ({"settings": {"crc": {"colum": "frame"}}}, "FK-UNKNOWN-SETTING", "Did you mean 'column'"),
        ({"settings": {"crk": {"column": "frame"}}}, "FK-UNKNOWN-STEP", "Did you mean 'crc'"),
        ({"pipeline": {"stepz": {}}}, "FK-UNKNOWN-KEY", "pipeline: unknown key 'stepz'"),
        ({"profile": {"precisionn": "fp32"}}, "FK-UNKNOWN-KEY", "profile: unknown key 'precisionn'"),
        ({"profile": "cpu"}, "FK-UNKNOWN-PROFILE", "'cpu'"),
        ({"tensorboard": "s3://bucket/x"}, "FK-TENSORBOARD-URL", "s3://bucket/x"),
    ],
)
def test_a_mistake_is_raised(media, tmp_path, serial, options, code, value, capfd):
    with fails(code, value):
        framekiln.run(media, tmp_path / "out", **{"pipeline": STEPS, **options})
    assert capfd.readouterr() == ("", "") and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("places", "code"), [((), "FK-NO-INPUT"), (("gone", "out"), "FK-INPUT-MISSING")])
def test_places_are_checked(places, code, tmp_path, serial, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails(code):
        framekiln.run(*places, pipeline=STEPS)


def test_what_is_no_path_is_said():
    with fails("FK-INVALID-SETTING", "input: 5"):
        framekiln.run(5, "out", pipeline=STEPS)


def test_a_class_that_the_pipeline_file_names_keeps_the_files_settings(media, tmp_path, local):
    steps = {"checksum": {"use": "tests.toys.columns:Checksum", "with": {"column": "frame_90"}}}
    assert _settings(steps, Checksum) == {"column": "frame_90"}
    assert _settings(steps, Checksum(Checksum.Config(column="frame"))) == {"column": "frame"}


def _settings(steps, stage):
    plan = framekiln.plan(pipeline={"steps": steps}, stages=stage)
    return vars(plan.planned.first[0].stage.config)


def test_a_stage_that_fails_too_often_raises(media, tmp_path, local, capfd):
    @framekiln.stage(inputs="frame_index", outputs={"third": pa.float32()})
    def third(frame_index):
        return 1 / (frame_index % 3)

    with pytest.raises(BudgetError) as error:
        framekiln.run(media, tmp_path / "out", pipeline=STEPS, stages=third, max_errors="1%", progress=False)
    assert error.value.code == "FK-TOO-MANY-ERRORS" and "division by zero" in str(error.value)
    out = framekiln.run(media, tmp_path / "out", pipeline=STEPS, stages=third)
    assert out.summary.errors == {"ZeroDivisionError": 16} and out.errors.count_rows() == 16
    assert capfd.readouterr() == ("", "")
