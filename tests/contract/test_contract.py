"""The contract, once, run over every step of the shipped pipeline: a new stage is taken up by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.contract import output_names
from framekiln.contract.packet import HALO, Packet
from framekiln.contract.stage import Scope
from framekiln.contract.testing import check_stage, nearly_equal
from framekiln.job import Job
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.output.object_store import Store
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller, clip_bounds
from framekiln_stages.nets.lama.network import Sizes
from tests.support.media.clip_factory import TINY as CLIP
from tests.support.media.material import ROOT
from tests.support.runs.engine_factory import request
from tests.support.runs.serial_engine import without_ray
from tests.support.runs.units import ensure_units
from tests.support.stages.sam.weights import TOY as SAM

SMALL = (
    "categorize.model=clip-vit-b32",
    "instances.model=clip-vit-b32",
    "segment.model=sam2.1-hiera-tiny",
    "segment.points_per_side=2",
    "segment.pred_iou_thresh=0",
    "segment.stability_score_thresh=0",
    "inpaint.max_side=128",
    "pose.tile=0",
    "mouth.model=face_landmarker_testdata",
)
"""Settings of the shipped steps by which each has something to say in little time."""

CHOICES = PlanOptions(
    settings=SMALL, missing_weights="dummy", weights_dir=WEIGHTS if (WEIGHTS := ROOT / "weights").is_dir() else None
)
PLAN = make_plan(read_pipeline(None), ProfileFile(), CHOICES, [ROOMY])
STEPS = {step.name: step for step in PLAN.steps}
FIRST = {step.name: step for step in PLAN.first}
SECOND = {step.name: step for step in PLAN.second}
FRAMES = 6  # of the clip: it is cut in many ways, and half a minute is saved
HEAVY = {"segment": 3, "instances": 3, "inpaint": 3, "pose": 3, "mouth": 3}
"""Steps that take longest even so, and how many frames of the clip are enough."""

ASKED = (*PLAN.decode.columns,)
KEYS = ["media_id", "frame_index"]


@dataclass(frozen=True, kw_only=True)
class SmallSizes(Sizes):
    """LaMa's in little time; a class, since modules that are imported later name it in annotations."""

    width: int = 8
    blocks: int = 2


@pytest.fixture(scope="module")
def ready():
    """Every stage, set up once; large networks with fewer layers than they were published with, and random weights."""
    with pytest.MonkeyPatch.context() as patch:
        for owner in ("framekiln_stages.nets.clip.architectures", "framekiln_stages.categorize.stage"):
            patch.setattr(f"{owner}.MODELS", CLIP)
        for owner in ("framekiln_stages.nets.sam2.image", "framekiln_stages.segment.stage"):
            patch.setattr(f"{owner}.MODELS", {"sam2.1-hiera-tiny": SAM})
        patch.setattr("framekiln_stages.nets.lama.network.Sizes", SmallSizes)
        for step in PLAN.steps:
            set_up(step)
        yield STEPS


def decoded(folder, store, **config) -> list[pa.Table]:
    """Rows of every packet of the collection, halo included."""
    media = list_media(str(folder))
    units = ensure_units(store, media, media, slots=1)
    rule = replace(PLAN.decode.config, **config)
    return [p.rows for unit in units for p in decode(unit, ASKED, PLAN.decode.halo, rule) if p.rows.num_rows]


def outputs(step, tables) -> dict[tuple[str, int], dict]:
    """What a step says of each frame."""
    found = {}
    for rows in tables:
        columns = PacketCaller(step).run(rows, np.zeros(rows.num_rows, bool))
        assert columns.failures == []
        own = rows.select(KEYS).filter(pa.compute.invert(rows[HALO])).to_pylist()
        for key, value in zip(own, columns.columns.to_pylist(), strict=True):
            found[key["media_id"], key["frame_index"]] = value
    return found


@pytest.fixture(scope="module")
def said(ready, tables):
    """What each first-pass step says of each frame, once: a step reads what those before it have said."""
    found = {}
    for step in PLAN.first:
        found[step.name] = outputs(step, derived(tables, found, step.name))
    return found


def derived(tables, said, until) -> list[pa.Table]:
    """Rows with the columns of all steps before one, as a packet would carry them."""
    result = []
    for rows in tables:
        keys = [tuple(key.values()) for key in rows.select(KEYS).to_pylist()]
        for step in PLAN.first:
            if step.name == until:
                break
            values = [
                None if halo else said[step.name][key] for key, halo in zip(keys, rows[HALO].to_pylist(), strict=True)
            ]
            for item in step.stage.outputs:
                column = pa.array([value and value[item.name] for value in values], item.type)
                rows = rows.append_column(item.name, column)
        result.append(rows)
    return result


@pytest.fixture(scope="module")
def tables(collection, tmp_path_factory):
    found = decoded(collection, Store(str(tmp_path_factory.mktemp("units"))), max_frames=FRAMES)
    assert sum(rows.num_rows for rows in found) == 8, "two photos and six frames"
    return found


@pytest.fixture(scope="module")
def cut(collection, tmp_path_factory):
    """The rows cut in other ways, each once: all steps get the same examples."""

    @cache
    def cut(**ways):
        return decoded(collection, Store(str(tmp_path_factory.mktemp("units"))), **ways)

    return cut


def calls(step, tables):
    """Real batches for a step: one clip each, or all rows."""
    for rows in tables:
        if step.stage.scope is Scope.CLIP:
            yield from (rows.slice(a, b - a).select(step.stage.inputs) for a, b in clip_bounds(rows))
        else:
            yield rows.filter(pa.compute.invert(rows[HALO])).select(step.stage.inputs)


LONG = {"segment", "categorize", "instances", "inpaint"}  # half a minute each; their own tests call them too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.heavy] if name in LONG else []) for name in FIRST]
)
def test_a_first_pass_stage_keeps_the_contract(name, ready, tables, said):
    step = ready[name]
    for batch in calls(step, derived(tables, said, name)):
        check_stage(step.stage, rows=batch.slice(0, HEAVY.get(name)), is_set_up=True)
    assert step.stage.thread_safe  # else its packets would wait for each other


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name, step in FIRST.items() if not step.stage.cut_dependence])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(clip_frames=st.integers(1, 14), packet_rows=st.integers(1, 20), batch=st.integers(1, 7))
def test_results_do_not_depend_on_cutting_or_packing(name, ready, said, cut, clip_frames, packet_rows, batch):
    step = ready[name]
    other = cut(clip_frames=clip_frames, packet_rows=packet_rows, max_frames=HEAVY.get(name, FRAMES))
    smaller = replace(step, placement=replace(step.placement, batch=batch))
    expected, found = said[name], outputs(smaller, derived(other, said, name))
    assert found.keys() == expected.keys() or (name in HEAVY and found.keys() < expected.keys())
    assert {key for key in found if not nearly_equal(expected[key], found[key])} == set()


def test_columns_survive_packets_and_parquet(tables, said, tmp_path):
    names = [name for step in PLAN.first for name in step.stage.outputs.names]
    for rows in derived(tables, said, None):
        packet = Packet(unit="u", start=0, stop=rows.num_rows - pa.compute.sum(rows[HALO]).as_py(), rows=rows)
        assert Packet.open(packet.seal()).rows.select(names).equals(rows.select(names))
        pq.write_table(rows.select(names), tmp_path / "part.parquet")
        assert pq.read_table(tmp_path / "part.parquet").equals(rows.select(names))


def test_a_run_writes_what_the_stages_return(said, collection, tmp_path):
    options = replace(CHOICES, decode={"max_frames": FRAMES})
    with without_ray():
        Job(request(collection, tmp_path, read_pipeline(None), **vars(options))).run()
    frames = pq.read_table(tmp_path / output_names.FRAMES).to_pylist()
    assert len(frames) == 8 and not (tmp_path / output_names.ERRORS).exists()
    for row in frames:
        row["inpainted"] = row["inpainted"] and (tmp_path / row["inpainted"]).read_bytes()
        for step in PLAN.first:
            expected = said[step.name][row["media_id"], row["frame_index"]]
            assert nearly_equal(expected, {name: row[name] for name in expected}), step.name
    for step in PLAN.second:
        for name, table in step.stage.tables.items():
            assert pq.read_schema(next((tmp_path / name).iterdir())).equals(table.schema)


@pytest.mark.parametrize("name", SECOND)
def test_a_second_pass_stage_keeps_the_contract(name, ready, tables, said):
    step = ready[name]
    rows = pa.concat_tables(derived(tables, said, None), promote_options="none").filter(
        pa.compute.invert(pa.concat_tables(tables)[HALO])
    )
    names = rows["media_id"].unique().to_pylist()
    batches = (
        [rows]
        if step.stage.scope is Scope.DATASET
        else [rows.filter(pa.compute.equal(rows["media_id"], n)) for n in names]
    )
    makers = {table: other.stage for other in SECOND.values() for table in other.stage.tables}
    for batch in batches:
        inputs = {table: makers[table](batch.select(makers[table].inputs))[table] for table in step.stage.input_tables}
        check_stage(step.stage, rows=batch, tables=inputs, is_set_up=True)
