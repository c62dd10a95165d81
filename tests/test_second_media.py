"""A second-pass stage that reads media sees the frames that its rows are of; one with a model sets it up once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.errors import MediaError, ResourceError
from pipeline.machines import Node
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.media.config import DecodeConfig
from pipeline.media.listing import list_media
from pipeline.media.reader import Reader
from pipeline.plan import Choices, make_plan
from tests.media_factory import decoded, film, numbered


def reader(path, **rule) -> Reader:
    (item,) = list_media(str(path))
    return Reader(media=item, config=DecodeConfig(**rule))


@pytest.mark.parametrize("rule", [{}, {"every_nth": 3}, {"every_nth": 2, "max_frames": 5}, {"max_frames": 1}])
@pytest.mark.parametrize("pixels", ["frame", "frame_8"])
def test_frames_are_those_of_the_first_pass(tmp_path, rule, pixels):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(20)])
    rows, failures = decoded(path, (pixels,), **rule)
    found = list(reader(path, **rule).frames(pixels))
    assert failures == [] and rows
    assert [number for number, _ in found] == [row["frame_index"] for row in rows]
    assert all(np.array_equal(image, row[pixels]) for (_, image), row in zip(found, rows, strict=True))


def test_a_damaged_file_gives_the_frames_that_the_first_pass_had(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(40)])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    rows, failures = decoded(path, ("frame",))
    assert failures and 0 < len(rows) < 40
    assert [number for number, _ in reader(path).frames("frame")] == [row["frame_index"] for row in rows]


def test_frames_are_decoded_as_they_are_read_and_again_at_each_call(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(20)])
    source = reader(path)
    first = source.frames("frame")
    assert [next(first)[0] for _ in range(3)] == [0, 1, 2]
    assert [number for number, _ in source.frames("frame")] == list(range(20))
    assert next(first)[0] == 3


def test_a_file_that_has_gone_is_told(tmp_path):
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(3)])
    source = reader(path)
    path.unlink()
    with pytest.raises(MediaError):
        list(source.frames("frame"))


WATCHES = PipelineFile.model_validate({"steps": {"watch": {"use": "tests.toys:Watches"}}})


def test_a_later_model_needs_a_place_of_its_own_but_not_beside_the_first_pass():
    profile = ProfileFile.model_validate({"steps": {"watch": {"device": "cuda", "gpus": 1, "workers": 2}}})
    one, two = (Node(name="n", cpus=4, gpus=count) for count in (1, 2))
    assert make_plan(WATCHES, profile, Choices(), [two]).second[0].keeps_model_later
    with pytest.raises(ResourceError, match="watch"):
        make_plan(WATCHES, profile, Choices(), [one])
    assert not make_plan(WATCHES, ProfileFile(), Choices(), [one]).second[0].keeps_model_later


@pytest.mark.slow
@pytest.mark.parametrize("model", ["", "pose_landmarker_heavy"])
def test_the_engine_hands_media_over_and_sets_a_model_up_once_in_each_process(machines, tmp_path, model):
    from pipeline.job import Job
    from pipeline.order import Order

    (tmp_path / "in").mkdir()
    for i in range(6):
        film(tmp_path / "in" / f"{i}.mkv", [numbered(i * 20 + j) for j in range(12)])
    note = tmp_path / "set-ups"
    steps = {"watch": {"use": "tests.toys:Watches", "with": {"note": str(note), "model": model}}}
    order = Order(
        input=str(tmp_path / "in"),
        output=str(tmp_path / "out"),
        pipeline=PipelineFile.model_validate({"steps": steps, "decode": {"every_nth": 2}}),
        profile=ProfileFile.model_validate({"steps": {"watch": {"workers": 2}}}),
        profile_name="none",
        choices=Choices(missing_weights="dummy"),
    )
    job = Job(order)
    result = job.run()
    assert not result.errors
    names = job.store.names("watched")
    rows = pa.concat_tables([job.store.read_table(f"watched/{name}") for name in names]).to_pylist()
    assert {row["media_id"]: (row["rows"], row["greys"]) for row in rows} == {
        f"{i}.mkv": (6, [i * 20 + j for j in range(0, 12, 2)]) for i in range(6)
    }
    processes = note.read_text().split()
    if model:
        assert len(set(processes)) == len(processes) == 2, "not once in each process"
