"""Second-pass stages that read media get the frames of their rows, and set a model up once per process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.errors import MediaError
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import Reader
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.placement import check_capacity
from framekiln.planning.processes.resources import Node
from tests.support.errors import fails
from tests.support.media.media_factory import decoded, film, numbered
from tests.support.runs.engine_factory import request


def reader(path, **rule) -> Reader:
    (item,) = list_media(str(path))
    return Reader(media=item, config=DecodeConfig(**rule))


@pytest.mark.parametrize("rule", [{}, {"every_nth": 3}, {"every_nth": 2, "max_frames": 5}, {"max_frames": 1}])
@pytest.mark.parametrize("pixels", ["frame", "frame_8"])
def test_frames_are_those_of_the_first_pass(tmp_path, rule, pixels):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(20)])
    rows, failures = decoded(path, (pixels,), **rule)
    frames = list(reader(path, **rule).frames(pixels))
    assert failures == [] and rows
    assert [number for number, _ in frames] == [row["frame_index"] for row in rows]
    assert all(np.array_equal(image, row[pixels]) for (_, image), row in zip(frames, rows, strict=True))


def test_a_damaged_file_gives_the_frames_that_the_first_pass_had(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(40)])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    rows, failures = decoded(path, ("frame",))
    assert failures and 0 < len(rows) < 40
    assert [number for number, _ in reader(path).frames("frame")] == [row["frame_index"] for row in rows]


def test_frames_are_decoded_on_demand_at_each_call(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(20)])
    source = reader(path)
    first = source.frames("frame")
    assert [next(first)[0] for _ in range(3)] == [0, 1, 2]
    assert [number for number, _ in source.frames("frame")] == list(range(20))
    assert next(first)[0] == 3


def test_a_removed_file_raises(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(3)])
    source = reader(path)
    path.unlink()
    with pytest.raises(MediaError):
        list(source.frames("frame"))


WATCHES = PipelineFile.model_validate({"steps": {"watch": {"use": "tests.toys:Watches"}}})


def test_a_second_pass_model_needs_its_own_resources_but_not_beside_the_first_pass():
    profile = ProfileFile.model_validate({"steps": {"watch": {"device": "cuda", "gpus": 1, "workers": 2}}})
    none, small, large = (Node(name="n", cpus=4, gpus=count) for count in (0, 1, 2))
    assert make_plan(WATCHES, profile, PlanOptions(), [large]).second[0].keeps_model_later
    assert make_plan(WATCHES, profile, PlanOptions(), [small]).second[0].placement.workers == 1
    with fails("FK-NO-GPU", "'watch'"):
        plan = make_plan(WATCHES, profile, PlanOptions(), [none])
        check_capacity(plan.waves, plan.second, [none])
    assert not make_plan(WATCHES, ProfileFile(), PlanOptions(), [small]).second[0].keeps_model_later


@pytest.mark.slow
@pytest.mark.parametrize("model", ["", pytest.param("pose_landmarker_heavy", marks=pytest.mark.heavy)])
def test_the_engine_passes_media_and_sets_a_model_up_once_per_process(machines, tmp_path, model):
    from framekiln.job import Job

    (tmp_path / "in").mkdir()
    for i in range(6):
        film(tmp_path / "in" / f"{i}.mkv", [numbered(i * 20 + j) for j in range(12)])
    note = tmp_path / "set-ups"
    steps = {"watch": {"use": "tests.toys:Watches", "with": {"note": str(note), "model": model}}}
    pipeline, profile = {"steps": steps, "decode": {"every_nth": 2}}, {"steps": {"watch": {"workers": 2}}}
    job = Job(request(tmp_path / "in", tmp_path / "out", pipeline, profile, missing_weights="dummy"))
    result = job.run()
    assert not result.errors
    names = job.store.names("watched")
    rows = pa.concat_tables([job.store.read_table(f"watched/{name}") for name in names]).to_pylist()
    assert {row["media_id"]: (row["rows"], row["greys"]) for row in rows} == {
        f"{i}.mkv": (6, [i * 20 + j for j in range(0, 12, 2)]) for i in range(6)
    }
    processes = note.read_text().split()
    if model:
        assert len(set(processes)) == len(processes) <= 2, "set up more than once in a process"  # one may take all
