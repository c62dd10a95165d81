"""The work of a row follows what a run found: faces, masks, crops, and none of them."""

from __future__ import annotations

import pytest

from framekiln.contract.output_names import PROFILE
from framekiln.lab.predict.source_run import read_source
from framekiln.lab.predict.work import WorkCounter
from framekiln.output.object_store import Store
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.profiling.records import PACKET, Record
from tests.lab.gpu_law import EPOCH, RUN, output


def on_a_gpu(**steps):
    return make_plan(
        PipelineFile(steps=steps),
        ProfileFile(),
        PlanOptions(device="cuda", missing_weights="dummy", accept_license=True),
        [Node(name="n", cpus=8, gpus=1)],
        check_weights=False,
        refuse_idle=False,
    )


def test_a_kind_of_which_a_run_found_none_is_read_as_none(tmp_path):
    store = Store(str(output(tmp_path))).of_run(RUN)
    packet = Record(kind=PACKET, step="big", started=EPOCH + 1e3, seconds=1.0, unit="u", rows=8, items={"faces": 0})
    store.append(f"{PROFILE}/calls-{RUN}-a-big.jsonl", packet.line(RUN, "a:big"))
    (step,) = read_source(str(tmp_path)).gpu_steps
    assert step.sample.items == {"faces": 0}


@pytest.mark.heavy
def test_the_detector_is_counted_where_no_face_was_found_and_one_that_cannot_be_is_named():
    plans = {name: on_a_gpu(faces={"use": "faces", "with": {"detector": name}}) for name in ("yunet", "scrfd")}
    for items, faces in (({"faces": {"faces": 0.0}}, 0), ({"faces": {}}, 0), ({}, 4), ({"faces": {"faces": 0.5}}, 0.5)):
        known, unknown = WorkCounter(1.0, items).count(plans["yunet"])
        assert not unknown
        large, small, recognition = known["faces"].networks
        assert (large.rows, small.rows, recognition.rows) == (1, 1, faces)
        assert known["faces"].items == {"faces": faces}
    assert large.eager and small.eager and not recognition.eager
    assert large.call.kernels != small.call.kernels
    known, unknown = WorkCounter(1.0, {}).count(plans["scrfd"])
    assert not known and list(unknown) == ["faces"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("instances", "crops", "rows"),
    [({}, {"crops": 0.0}, (0, 0)), ({"instances": 100.0}, {"crops": 0.4}, (200, 0.4)), (None, None, (12, 1))],
)
def test_crops_of_masks_are_as_many_as_the_run_had(instances, crops, rows):
    small = {"model": "sam2.1-hiera-tiny", "points_per_side": 4}
    plan = on_a_gpu(
        segment={"use": "segment", "with": small},
        instances={"use": "categorize", "with": {"of": "instances", "model": "clip-vit-b32"}},
        inpaint={"use": "inpaint"},
    )
    told = {"segment": {"views": 1.0, "prompts": 64.0}, "instances": instances, "inpaint": crops}
    counter = WorkCounter(0.1, {name: items for name, items in told.items() if items is not None})
    works, unknown = counter.count(plan)
    assert not unknown and {"instances", "crops", "prompts"} <= counter.kinds
    assert tuple(sum(each.rows for each in works[name].networks) for name in ("instances", "inpaint")) == rows
    encoder, decoder = works["segment"].networks  # as many as its own settings have it, whatever the run's had
    assert (encoder.rows, decoder.rows) == (1, 1)
