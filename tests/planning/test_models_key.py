"""Weights of a pipeline file's own, under `models:`."""

from __future__ import annotations

import pickle

import pytest
import yaml

from framekiln.planning.manifest import PipelineFile, ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.runtime.stage_setup import set_up
from framekiln.weights.resolver import cache_folder, merged_lock
from tests.support.errors import fails
from tests.support.runs.weights_factory import CONTENT, body, sha


def manifest(folder, **changes):
    """Return a pipeline file with one step, which needs weights named `mine`."""
    entry = body("mine", **changes)
    name = entry.pop("name")
    steps = {"mine": {"use": "tests.toys.weighted:Bound", "with": {"model": name}}}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"steps": steps, "models": {name: entry}}))
    return str(path)


def planned(path, **choices):
    return make_plan(read_pipeline(path), ProfileFile(), PlanOptions(**choices), [ROOMY]).steps[0]


def test_weights_are_found_by_content_and_decide_the_fingerprint(no_weights, tmp_path):
    (tmp_path / "anything.bin").write_bytes(CONTENT)
    step = planned(manifest(tmp_path), weights_dir=tmp_path)
    assert step.weights == {"mine": tmp_path / "anything.bin"}
    assert step.facts["weights"] == [sha(CONTENT)]


def test_missing_weights_come_with_the_command_that_fetches_them(no_weights, tmp_path):
    path = manifest(tmp_path)
    with fails("FK-WEIGHTS-MISSING", f"framekiln fetch --pipeline {path} mine"):
        planned(path)


def test_a_worker_elsewhere_finds_them_by_the_entry_of_its_step(no_weights, tmp_path):
    (tmp_path / "mine.bin").write_bytes(CONTENT)
    step = pickle.loads(pickle.dumps(planned(manifest(tmp_path), weights_dir=tmp_path)))
    cache_folder().mkdir(parents=True)
    (tmp_path / "mine.bin").rename(cache_folder() / "here.bin")
    set_up(step)
    assert step.stage._byte == CONTENT[0]


def test_an_output_keeps_the_entries_for_retry_and_report(tmp_path):
    pipeline = read_pipeline(manifest(tmp_path))
    assert PipelineFile.model_validate(pipeline.model_dump(mode="json", by_alias=True)) == pipeline


def test_a_name_that_ships_is_refused(tmp_path):
    entry = read_pipeline(manifest(tmp_path)).models["mine"]
    with fails("FK-WEIGHTS-NAME-TAKEN"):
        merged_lock({"big-lama": entry.model_copy(update={"name": "big-lama"})})


def test_a_file_name_that_ships_is_refused(tmp_path):
    with fails("FK-LOCKFILE-INVALID", "'big-lama.pt'"):
        merged_lock(read_pipeline(manifest(tmp_path, file="big-lama.pt")).models)


@pytest.mark.parametrize("changes", [{"sha256": "abc"}, {"sha": "abc"}, {"file": "../x"}])
def test_an_entry_is_as_strict_as_the_lockfile(tmp_path, changes):
    with fails("FK-INVALID-VALUE", "models.mine"):
        read_pipeline(manifest(tmp_path, **changes))
