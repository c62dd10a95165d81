"""What tests of runs share: a small collection, an order for toys to go over it, and the tables that come of it."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.runtime.run.request import RunRequest
from tests.support.media.collections_factory import collection

ALL = {
    "crc": ("Checksum", {}),
    "near": ("Neighbours", {}),
    "twice": ("Double", {}),
    "count": ("Count", {}),
    "all": ("Everything", {}),
}


@pytest.fixture
def small(tmp_path):
    return collection(tmp_path / "in", 6, 30)


def order(folder, out, steps, **choices):
    entries = {name: {"use": f"tests.toys:{kind}", "with": settings} for name, (kind, settings) in steps.items()}
    return request(folder, out, {"steps": entries}, **choices)


def request(folder, out, pipeline, profile=None, **choices):
    """A run by the contents of a pipeline file and of a profile."""
    return RunRequest(
        inputs=(str(folder),),
        output=str(out),
        pipeline=PipelineFile.model_validate(pipeline),
        profile=ProfileFile.model_validate(profile or {}),
        profile_name="none",
        options=PlanOptions(**choices),
        engine=os.environ.get("FRAMEKILN_ENGINE", "auto"),
    )


def planned_rows(asked):
    """By step, the rows that `plan` says a run computes; None where a run finds them as it goes."""
    plan = make_plan(asked.pipeline, asked.profile, asked.options, [ROOMY], check_weights=False)
    return {one.step: one.rows for one in Job(asked).preview(plan)[1]}


def table(out, folder):
    return rows(out, folder).sort_by([("media_id", "ascending"), ("frame_index", "ascending")])


def rows(out, folder):
    store = Store(str(out))
    return pa.concat_tables([store.read_table(f"{folder}/{name}") for name in store.names(folder)])
