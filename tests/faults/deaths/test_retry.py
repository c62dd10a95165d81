"""`retry` computes failed rows and rows that depend on them, and no others; the result equals a good run's."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import COLUMNS, ERRORS, FRAMES
from framekiln.job import Job
from framekiln.media.config import DecodeConfig
from framekiln.output.object_store import Store
from framekiln.planning.plan import make_plan
from framekiln.planning.processes.resources import ROOMY
from framekiln.reporting.html.summary import command
from framekiln.runtime.run.record import read_run_record, stored_request
from framekiln.runtime.run.retry import FailureFilter
from tests.faults.deaths.test_dying_processes import order
from tests.support.media.collections_factory import clip, photo
from tests.support.media.segmented_films import damage, sample_film
from tests.support.runs.engine_factory import rows, table

pytestmark = pytest.mark.slow

TOYS = "tests.toys"
REFUSED = (3, 5, 17)


@pytest.fixture(params=["serial", pytest.param("on_ray", marks=pytest.mark.heavy)])
def somewhere(request):
    """Runs of this process, and on Ray: marks and parts are a worker's, wherever it runs."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def wanted(tmp_path, machines):
    for i in range(5):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "clip.png", 100, 30)
    (tmp_path / "mood").mkdir()
    moody = {"refuse": REFUSED, "mood": str(tmp_path / "mood"), "log": str(tmp_path / "log")}
    request = order(tmp_path / "in", tmp_path / "out", {"crc": ("Moody", moody)})
    steps = {
        name: {"use": f"{TOYS}:{kind}"}
        for name, kind in (("twice", "Double"), ("count", "Count"), ("all", "Everything"))
    }
    entries = request.pipeline.model_dump(by_alias=True)["steps"] | steps | {"near": {"use": f"{TOYS}:Neighbours"}}
    return replace(request, pipeline=type(request.pipeline).model_validate({"steps": entries}))


def shown(tmp_path):
    """Rows that the moody stage was shown since the last time."""
    log = tmp_path / "log"
    seen = [int(line) for line in log.read_text().split()] if log.exists() else []
    log.unlink(missing_ok=True)
    return seen


def times(out):
    return {p.relative_to(out): p.stat().st_mtime_ns for p in (out / COLUMNS).rglob("*.parquet")}


def test_failed_rows_are_computed_again_and_all_that_hangs_on_them(somewhere, wanted, tmp_path):
    out = tmp_path / "out"
    Job(wanted).run()
    assert table(out, ERRORS).num_rows == 3
    shown(tmp_path)
    before = times(out)
    (tmp_path / "mood" / "good").touch()
    Job(replace(wanted, retry=FailureFilter(kind="ValueError"))).run()
    assert shown(tmp_path) == [2]  # rows 3 and 17 in one call
    frames = table(out, FRAMES)
    assert frames["crc"].to_pylist()[:30] == [None if n == 5 else n + 1 for n in range(30)]
    assert frames["twice"].to_pylist()[:30] == [None if n == 5 else 2 * n + 2 for n in range(30)]
    (line,) = table(out, ERRORS).to_pylist()
    assert (line["frame_index"], line["kind"]) == (5, "KeyError")
    changed = {path.parts[1].split("-")[0] for path, time in times(out).items() if before.get(path) != time}
    assert changed <= {"crc", "twice", "decode"}
    Job(replace(wanted, retry=FailureFilter())).run()
    assert shown(tmp_path) == [1] and not list((out / ERRORS).glob("*"))
    good = replace(wanted, output=str(tmp_path / "good"))
    Job(good).run()
    assert table(out, FRAMES).equals(table(tmp_path / "good", FRAMES))
    assert rows(out, "counts").equals(rows(tmp_path / "good", "counts"))
    assert not list(out.rglob("*.again.parquet"))
    assert not Job(wanted).run().work.left


@pytest.mark.heavy
def test_a_retry_that_was_cut_short_is_finished_by_any_run(serial, wanted, tmp_path):
    Job(wanted).run()
    (tmp_path / "mood" / "good").touch()
    job = Job(replace(wanted, retry=FailureFilter(step="crc")))
    job._open = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # the moment after the marks were written
    with pytest.raises(KeyboardInterrupt):
        job.run()
    Job(wanted).run()
    assert table(tmp_path / "out", FRAMES)["twice"].null_count == 0 and not list((tmp_path / "out" / ERRORS).glob("*"))


@pytest.mark.chaos
def test_files_that_could_not_be_read_are_read_again_and_no_others(engine, wanted, tmp_path):
    path = tmp_path / "in" / "photo3.png"
    good, when = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(b"\0" * len(good))  # as a disk gives it that is about to fail
    os.utime(path, ns=(when, when))
    (tmp_path / "mood" / "good").touch()
    Job(wanted).run()
    assert [row["media_id"] for row in table(tmp_path / "out", ERRORS).to_pylist()] == ["photo3.png"]
    shown(tmp_path)
    path.write_bytes(good)
    os.utime(path, ns=(when, when))
    Job(replace(wanted, retry=FailureFilter(step="decode"))).run()
    assert shown(tmp_path) == [1]
    assert not list((tmp_path / "out" / ERRORS).glob("*"))
    Job(replace(wanted, output=str(tmp_path / "good"))).run()
    assert table(tmp_path / "out", FRAMES).equals(table(tmp_path / "good", FRAMES))
    assert not Job(wanted).run().work.left
    path.write_bytes(good[:-20] + b"\0" * 20)
    os.utime(path, ns=(when, when))
    Job(replace(wanted, retry=FailureFilter())).run()  # nothing failed, so nothing is read
    assert table(tmp_path / "out", FRAMES).equals(table(tmp_path / "good", FRAMES))


@pytest.mark.heavy
def test_an_order_is_known_from_the_output_and_one_that_gives_other_results_is_refused(serial, wanted, tmp_path):
    Job(wanted).run()
    repeated = stored_request(Store(str(tmp_path / "out")))
    assert replace(repeated, pipeline=wanted.pipeline, engine=wanted.engine) == wanted

    def outlook(request):
        return Job(request).preview(make_plan(request.pipeline, request.profile, request.options, [ROOMY]))[1]

    assert outlook(repeated) == outlook(wanted)
    other = replace(wanted, options=replace(wanted.options, settings=("crc.refuse=[1]",)), retry=FailureFilter())
    with pytest.raises(ConfigError) as error:
        Job(other).run()
    assert error.value.code == "FK-RETRY-CHANGED" and all(step in str(error.value) for step in ("crc", "twice"))


@pytest.mark.heavy
def test_the_command_that_is_worth_giving_again_stays_that_of_the_run(serial, wanted, tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ["run", "-i", str(tmp_path / "in"), "-o", str(out), "--pipeline", "mine.yaml", "--set", "crc.refuse=[3]"]
    Job(replace(wanted, arguments=tuple(words))).run()
    folder = str(Path.cwd())
    (tmp_path / "mood" / "good").touch()
    monkeypatch.chdir(tmp_path)
    again = ("retry", "out", "--profile", "cpu-only")
    repeated = replace(stored_request(Store(str(out))), output="out", retry=FailureFilter(), arguments=again)
    Job(repeated).run()
    record = read_run_record(Store(str(out)))
    assert record["errors"] != {"ValueError": 2, "KeyError": 1}, "it is the record of the run that tried again"
    assert command(record) == f"cd {shlex.quote(folder)} && {shlex.join(['framekiln', *words])}"


@pytest.fixture
def film(wanted, tmp_path, monkeypatch):
    """A film that is read in six segments, in place of the clip."""
    (tmp_path / "in" / "clip.png").unlink()
    path = tmp_path / "in" / "film.mov"
    path.write_bytes(sample_film("b-frames").read_bytes())
    cut = {"segment_frames": 20, "segment_pixels": 1, "task_bytes": 1000, "packet_rows": 8, "clip_frames": 5}
    monkeypatch.setattr(DecodeConfig.__init__, "__kwdefaults__", DecodeConfig.__init__.__kwdefaults__ | cut)
    return path


@pytest.mark.chaos
def test_rows_of_a_film_in_segments_are_computed_again(engine, film, wanted, tmp_path):
    Job(wanted).run()
    assert [row["frame_index"] for row in table(tmp_path / "out", ERRORS).to_pylist()] == list(REFUSED)
    shown(tmp_path)
    before = times(tmp_path / "out")
    (tmp_path / "mood" / "good").touch()
    Job(replace(wanted, retry=FailureFilter())).run()
    assert sum(shown(tmp_path)) == len(REFUSED) and not list((tmp_path / "out" / ERRORS).glob("*"))
    Job(replace(wanted, output=str(tmp_path / "good"))).run()
    assert table(tmp_path / "out", FRAMES).equals(table(tmp_path / "good", FRAMES))
    assert len({path.name for path in times(tmp_path / "out") if path.parts[1].startswith("crc-")}) > 6
    repeated = {path for path, time in times(tmp_path / "out").items() if before.get(path) != time}
    assert {path.name.split(".")[1] for path in repeated if path.parts[1].startswith("crc-")} <= {
        path.name.split(".")[1] for path in before if int(path.name.split(".")[1].split("-")[0]) <= max(REFUSED)
    }
    assert not Job(wanted).run().work.left


@pytest.mark.chaos
def test_a_film_with_a_damaged_segment_is_read_again_whole(engine, film, wanted, tmp_path):
    good, when = film.read_bytes(), film.stat().st_mtime_ns
    damage(sample_film("b-frames"), film, 20, 42)
    os.utime(film, ns=(when, when))
    (tmp_path / "mood" / "good").touch()
    Job(wanted).run()
    lost = table(tmp_path / "out", ERRORS).to_pylist()
    assert lost and {row["media_id"] for row in lost} == {"film.mov"}
    film.write_bytes(good)
    os.utime(film, ns=(when, when))
    Job(replace(wanted, retry=FailureFilter(step="decode"))).run()
    assert not list((tmp_path / "out" / ERRORS).glob("*"))
    Job(replace(wanted, output=str(tmp_path / "good"))).run()
    assert table(tmp_path / "out", FRAMES).equals(table(tmp_path / "good", FRAMES))
    assert not Job(wanted).run().work.left
