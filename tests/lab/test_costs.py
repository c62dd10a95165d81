"""The cost of a run from a preview: rows and bytes beside those of the whole run, seconds of a known law."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import framekiln
from framekiln.api.request import make_request
from framekiln.contract.row_errors import DECODE
from framekiln.lab.predict.costs import PlannedRun, estimate_costs
from framekiln.lab.predict.measured import MeasuredFiles, estimate_rows
from framekiln.lab.predict.source_run import PacketTimes, read_source
from framekiln.media.discovery.listing import list_media
from framekiln.media.discovery.spread import spread_over
from framekiln.media.files import MediaFile
from framekiln.media.samples import tone, write_clip
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from framekiln.planning.plan import make_plan
from framekiln.planning.processes.resources import ROOMY
from tests.support.errors import fails
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import photo
from tests.support.runs.serial_engine import without_ray

pytestmark = pytest.mark.usefixtures("serial")

STEPS = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}
PHOTO_S, FRAME_S = 0.5, 0.02  # seconds a row


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """Forty photos and eight films of 6 to 20 frames of noise, so that bytes follow frames."""
    folder = tmp_path_factory.mktemp("costs") / "in"
    for number in range(40):
        photo(folder / f"photo{number}.png", number)
    chance = np.random.default_rng(0)
    for number in range(8):
        frames = chance.integers(0, 255, (6 + 2 * number, 32, 32, 3), np.uint8)
        write_clip(folder / f"film{number}.mp4", frames, tone(0.2, 440))
    return folder


@pytest.fixture(scope="module")
def previewed(media, tmp_path_factory):
    out = tmp_path_factory.mktemp("preview") / "out"
    with without_ray():
        framekiln.run(media, out, pipeline=STEPS, preview=20, engine="local")
    return out


def made(media, out, **changes):
    """The estimate for all files, from a run whose photos and films took known seconds."""
    source, store = read_source(str(out)), Store(str(out))
    kinds = {unit.name: [item.media_id for item in unit.media] for unit in read_units(store)}
    units, rows, seconds = [], [], []
    for name in store.names("frames"):
        ids = store.read_table(f"frames/{name}", ["media_id"])["media_id"].to_pylist()
        unit = next(unit for unit in kinds if unit in name)
        for place, media_id in enumerate(ids):
            units.append((unit, place))
            rows.append(1)
            seconds.append(FRAME_S if media_id.endswith(".mp4") else PHOTO_S)
    packets = PacketTimes(
        units=tuple(unit for unit, _ in units),
        starts=np.array([place for _, place in units]),
        rows=np.array(rows),
        seconds=np.array(seconds),
    )
    steps = tuple(replace(step, packets=packets) for step in source.steps)
    request = make_request(str(media), str(out), pipeline=STEPS)
    plan = make_plan(request.pipeline, request.profile, request.options, [ROOMY])
    return estimate_costs(
        PlannedRun(plan=plan, files=list_media(str(media)), **changes), replace(source, steps=steps), store
    )


def test_the_rows_of_a_preview_hold_those_of_the_whole_run(media, previewed, tmp_path):
    costs = made(media, previewed)
    whole = framekiln.run(media, tmp_path / "whole", pipeline=STEPS, engine="local")
    rows = whole.table("frames").count_rows()
    assert costs.rows.low <= rows <= costs.rows.high and costs.rows.central == pytest.approx(rows, rel=0.1)
    photos, frames = 40, rows - 40
    step = next(step for step in costs.steps if step.step == "crc")
    assert step.row_s == pytest.approx((photos * PHOTO_S + frames * FRAME_S) / rows, rel=0.15)
    size = sum(path.stat().st_size for path in (tmp_path / "whole" / "columns").glob("crc-*/*"))
    assert step.gb.central * 1e9 == pytest.approx(size, rel=0.6)  # parts of few rows are mostly their footers


def test_processes_share_the_seconds_and_the_whole_is_what_they_take_together(media, previewed):
    costs = made(media, previewed, local=True)
    by_name = {step.step: step for step in costs.steps}
    alone = by_name["decode"].hours.central + by_name["crc"].hours.central
    assert costs.hours.central == pytest.approx(alone) and costs.limit == "decode+crc"  # one process after the other
    assert costs.to_dict(2.0)["money"]["central"] == pytest.approx(2 * costs.hours.central)


def test_what_is_left_is_what_the_preview_did_not_compute(media, previewed):
    plan = framekiln.plan(media, previewed, pipeline=STEPS, engine="local")
    done = framekiln.open(previewed).table("frames").count_rows()
    left = 40 + 8 - 20
    assert plan.to_do == {DECODE: left, "crc": left}
    assert plan.costs.rows.central == pytest.approx(made(media, previewed).rows.central - done, abs=1)
    assert "Estimate" in str(plan) and "whole" in plan._repr_html_()


def test_steps_that_read_a_conditioned_one_cost_what_it_chooses(media, previewed, tmp_path):
    """Both where parts show the rows, and where the share of an earlier run is all there is."""
    steps = {
        "crc": {"use": "tests.toys:Checksum"},
        "twice": {"use": "tests.toys:Double"},
        "count": {"use": "tests.toys:Count"},
    }
    framekiln.run(media, tmp_path / "out", pipeline={"steps": {"small": {"use": "tests.toys:Small"}}}, engine="local")
    narrow = steps | {"crc": {**steps["crc"], "on": {"every": 4}}}
    plan = framekiln.plan(media, tmp_path / "out", pipeline={"steps": narrow}, engine="local")
    rows = {step.step: step.rows.central for step in plan.costs.steps}
    out = framekiln.run(media, tmp_path / "out", pipeline={"steps": narrow}, engine="local")
    part, whole = out.record["chosen"]["crc"]
    assert 0 < part < whole / 1.5 and {rows[name] for name in steps} == {part}
    again = framekiln.plan(media, tmp_path / "new", pipeline={"steps": narrow}, engine="local", like=tmp_path / "out")
    by_name = {step.step: step.rows.central / again.costs.rows.central for step in again.costs.steps}
    assert [by_name[name] for name in steps] == pytest.approx([part / whole] * 3, rel=0.1)


def test_the_command_says_money_and_the_same_as_json(media, previewed):
    (previewed.parent / "p.json").write_text(json.dumps(STEPS))
    words = ["plan", media, previewed, "--pipeline", previewed.parent / "p.json", "--engine", "local"]
    facts = json.loads(command(*words, "--price-per-hour", "3600", "--json").stdout)["costs"]
    assert facts["money"]["central"] == pytest.approx(3600 * facts["hours"]["central"])
    assert "money" in command(*words, "--price-per-hour", "1").stdout


def test_the_end_of_a_preview_names_its_page(media, previewed):
    (previewed.parent / "p.json").write_text(json.dumps(STEPS))
    words = ["run", media, previewed, "--pipeline", previewed.parent / "p.json", "--engine", "local", "--preview", 20]
    (line,) = [line for line in command(*words).stdout.splitlines() if line.startswith("To choose")]
    assert line.endswith(str(previewed / "preview.html")) and (previewed / "preview.html").exists()


def test_another_output_tells_too_and_none_is_said(media, previewed, tmp_path):
    unknown = framekiln.plan(media, tmp_path / "new", pipeline=STEPS, engine="local")
    assert unknown.costs.hours is None and "--preview" in str(unknown)
    like = framekiln.plan(media, tmp_path / "new", pipeline=STEPS, engine="local", like=previewed)
    assert like.costs.hours.central > 0 and not (tmp_path / "new").exists()


@pytest.mark.heavy
def test_a_run_that_added_little_leaves_the_estimate_to_the_ones_that_did_more(media, tmp_path):
    few, out = tmp_path / "few", tmp_path / "out"
    few.mkdir()
    photo(few / "first.png", 1)
    steps = {"steps": STEPS["steps"] | {"small": {"use": "tests.toys:Small"}}}
    framekiln.run([media, few], out, pipeline=steps, engine="local")
    photo(few / "second.png", 2)
    (out / "preview.html").write_text("of fewer files")
    for pipeline in (STEPS, STEPS, steps):  # one photo of one step; nothing; one row of the other step
        framekiln.run([media, few], out, pipeline=pipeline, engine="local")
        source = read_source(str(out), finished=False, earlier=True)
        assert min(step.packets.rows.sum() for step in source.steps) > 30
        assert {step.name for step in source.steps} == {DECODE, "crc", "small"}
        costs = framekiln.plan(media, tmp_path / "new", pipeline=pipeline, engine="local", like=out).costs
        assert costs.hours.central > 0 and not costs.unknown
    assert not (out / "preview.html").exists()


def test_rows_of_films_have_an_interval_though_one_was_measured():
    seen = MeasuredFiles(files={"a.mp4": (1000, 50)})
    rows, (note,) = estimate_rows([MediaFile(media_id="b.mp4", path="", size=2000, mtime_ns=0)], seen)
    low, high = np.quantile(rows[".mp4"][1:], (0.05, 0.95))
    assert rows[".mp4"][0] == 100 and low < 50 and high > 200 and "1 video," in note


def test_films_of_a_web_server_have_the_mean_rows_of_measured_ones():
    """Their sizes are unknown (0), in a list and in the units of a preview of that list."""
    films = [MediaFile(media_id=f"{n}.mp4", path=f"https://a.org/{n}.mp4", size=0, mtime_ns=0) for n in range(100)]
    lost = MediaFile(media_id="lost.mp4", path="/lost.mp4", size=0, mtime_ns=0)
    for size in (1000, 0):
        seen = MeasuredFiles(files={f"p{n}.mp4": (size, 40 + 10 * n) for n in range(6)})
        rows, (note,) = estimate_rows([*films, lost] if size else films, seen)
        assert rows[".mp4"][0] == pytest.approx(100 * 65) and "unknown size" in note
        low, high = np.quantile(rows[".mp4"][1:], (0.05, 0.95))
        assert low < 6400 and high > 6600
    some = MeasuredFiles(files={"a.mp4": (1000, 50), "b.mp4": (0, 70)})
    sized = MediaFile(media_id="c.mp4", path="c.mp4", size=2000, mtime_ns=0)
    assert estimate_rows([sized, *films], some)[0][".mp4"][0] == pytest.approx(100 + 100 * 60)


@pytest.mark.parametrize(("size", "told"), [(1400, False), (4000, True), (200, True), (0, False)])
def test_photos_of_another_size_than_the_measured_ones_are_named(size, told):
    seen = MeasuredFiles(files={f"p{n}.jpg": (1000, 1) for n in range(9)})
    files = [MediaFile(media_id=f"{n}.jpg", path="https://a/b.jpg", size=size, mtime_ns=0) for n in range(9)]
    rows, notes = estimate_rows(files, seen)
    assert rows[".jpg"][0] == 9 and bool(notes) == told


def test_a_preview_never_touches_an_output_of_other_files(media, previewed):
    with fails("FK-PREVIEW-OUTPUT"):
        framekiln.run(media, previewed, pipeline=STEPS, preview=5, engine="local")


def test_a_preview_is_spread_and_a_larger_one_holds_it():
    files = [
        MediaFile(media_id=f"{folder}/{number:03}.jpg", path="", size=1000 + number, mtime_ns=0)
        for folder in "abcd"
        for number in range(100)
    ] + [MediaFile(media_id=f"films/{number}.MP4", path="", size=10**6, mtime_ns=0) for number in range(3)]
    chosen = [{media.media_id for media in spread_over(files, most)} for most in (8, 20, 100, 403)]
    assert [len(each) for each in chosen] == [8, 20, 100, 403]
    assert all(small < large for small, large in pairwise(chosen))
    assert {name.split("/")[0] for name in chosen[1]} == {"a", "b", "c", "d", "films"}
    photos = sorted(int(name[2:5]) for name in chosen[2] if name.endswith(".jpg"))
    assert np.mean(photos) == pytest.approx(49.5, abs=3)  # small and large ones alike
