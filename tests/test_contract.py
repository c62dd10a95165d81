"""The contract, once, run over every step of the shipped pipeline: a new stage is taken up by itself."""

from __future__ import annotations

import builtins
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.calls import Caller
from pipeline.cutting import clip_bounds, take_slices
from pipeline.ledger import cover
from pipeline.machines import ROOMY
from pipeline.manifest import ProfileFile, read_pipeline
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.packet import HALO, packet_schema
from pipeline.plan import Choices, make_plan
from pipeline.readiness import set_up
from pipeline.stage import Scope
from pipeline.storage import Store
from stages.nets.ffc import Sizes
from tests.clip_factory import TINY as CLIP
from tests.material import ROOT
from tests.sam_weights import TOY as SAM

SMALL = (
    "categorize.model=clip-vit-b32",
    "instances.model=clip-vit-b32",
    "segment.model=sam2.1-hiera-tiny",
    "segment.points_per_side=2",
    "segment.pred_iou_thresh=0",
    "segment.stability_score_thresh=0",
    "inpaint.max_side=128",
    "mouth.model=face_landmarker_testdata",
)
"""Settings of the shipped steps by which each has something to say in little time."""

CHOICES = Choices(
    settings=SMALL, missing_weights="dummy", weights_dir=WEIGHTS if (WEIGHTS := ROOT / "weights").is_dir() else None
)
PLAN = make_plan(read_pipeline(None), ProfileFile(), CHOICES, [ROOMY])
STEPS = {step.name: step for step in PLAN.steps}
FIRST = {step.name: step for step in PLAN.first}
SECOND = {step.name: step for step in PLAN.second}
HEAVY = {"segment": 3, "instances": 3, "inpaint": 3}
"""Steps that take longest even so, and how many frames of the clip are enough."""

LAMA = Sizes(width=8, blocks=2)
ASKED = (*PLAN.decode.columns,)
KEYS = ["media_id", "frame_index"]


@pytest.fixture(scope="module")
def ready():
    """Every stage, set up once; large networks with fewer layers than they were published with, and random weights."""
    with pytest.MonkeyPatch.context() as patch:
        for owner in ("stages.nets.clip", "stages.categorize"):
            patch.setattr(f"{owner}.MODELS", CLIP)
        for owner in ("stages.nets.sam2", "stages.segment"):
            patch.setattr(f"{owner}.MODELS", {"sam2.1-hiera-tiny": SAM})
        patch.setattr("stages.nets.ffc.Sizes", lambda: LAMA)
        for step in PLAN.steps:
            set_up(step)
        yield STEPS


def decoded(folder, store, **config) -> list[pa.Table]:
    """Rows of every packet of the collection, halo included."""
    media = list_media(str(folder))
    units = cover(store, media, media, slots=1)
    rule = replace(PLAN.decode.config, **config)
    return [p.rows for unit in units for p in decode(unit, ASKED, PLAN.decode.halo, rule) if p.rows.num_rows]


def outputs(step, tables) -> dict[tuple[str, int], dict]:
    """What a step says of each frame."""
    found = {}
    for rows in tables:
        columns = Caller(step).run(rows, np.zeros(rows.num_rows, bool))
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
    found = decoded(collection, Store(str(tmp_path_factory.mktemp("units"))))
    assert sum(rows.num_rows for rows in found) == 14, "two photos and twelve frames"
    return found


def calls(step, tables):
    """Real batches for a step: one clip each, or all rows."""
    for rows in tables:
        if step.stage.scope is Scope.CLIP:
            yield from (rows.slice(a, b - a).select(step.stage.inputs) for a, b in clip_bounds(rows))
        else:
            yield rows.filter(pa.compute.invert(rows[HALO])).select(step.stage.inputs)


def alike(a, b) -> bool:
    """Equal, numbers to float32's last digits: a batch of another size may be summed in another order."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-4, atol=1e-5))
    return bool(a == b)


@pytest.mark.parametrize("name", STEPS)
def test_construction_is_cheap_and_touches_no_file(name, monkeypatch):
    opened = []
    real = builtins.open
    monkeypatch.setattr(builtins, "open", lambda *a, **k: (opened.append(a), real(*a, **k))[1])
    stage = type(STEPS[name].stage)()
    _ = stage.inputs, stage.outputs, stage.tables, stage.weights
    assert opened == []


@pytest.mark.parametrize("name", STEPS)
def test_declarations_are_whole(name):
    stage = STEPS[name].stage
    assert stage.inputs, "it reads nothing"
    schemas = [stage.outputs] if stage.scope.first_pass else [table.schema for table in stage.tables.values()]
    assert schemas and all(len(schema) for schema in schemas)
    for item in (item for schema in schemas for item in schema):
        assert item.metadata and item.metadata.get(b"description"), f"{item.name} has no description"
    for table in stage.tables.values():
        assert table.description and set(table.keys) <= set(table.schema.names)


@pytest.mark.parametrize("name", STEPS)
def test_a_stage_travels_to_its_worker(name):
    stage = type(STEPS[name].stage)(STEPS[name].stage.config)
    again = pickle.loads(pickle.dumps(stage))
    assert (again.config, again.inputs, again.outputs) == (stage.config, stage.inputs, stage.outputs)


@pytest.mark.parametrize("name", FIRST)
def test_real_rows_keep_the_schema_and_repeat_exactly(name, ready, tables, said):
    step = ready[name]
    for batch in calls(step, derived(tables, said, name)):
        batch = batch.slice(0, HEAVY.get(name))
        first = step.stage(batch)
        assert first.num_rows == batch.num_rows
        assert (first.schema.names, first.schema.types) == (step.stage.outputs.names, step.stage.outputs.types)
        assert step.stage(batch).equals(first)


@pytest.mark.parametrize("name", FIRST)
def test_an_empty_batch_is_answered(name, ready):
    stage = ready[name].stage
    made = {item.name: item.type for step in PLAN.first for item in step.stage.outputs}
    known = {item.name: item.type for item in packet_schema(ASKED)} | made
    empty = pa.table({column: pa.array([], known[column]) for column in stage.inputs})
    result = stage(empty)
    assert result.num_rows == 0 and (result.schema.names, result.schema.types) == (
        stage.outputs.names,
        stage.outputs.types,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, step in FIRST.items() if not step.stage.cut_matters])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(clip_frames=st.integers(1, 14), packet_rows=st.integers(1, 20), batch=st.integers(1, 7))
def test_results_do_not_depend_on_cutting_or_packing(
    name, ready, said, collection, tmp_path_factory, clip_frames, packet_rows, batch
):
    step = ready[name]
    other = decoded(
        collection,
        Store(str(tmp_path_factory.mktemp("units"))),
        clip_frames=clip_frames,
        packet_rows=packet_rows,
        max_frames=HEAVY.get(name),
    )
    smaller = replace(step, placement=replace(step.placement, batch_rows=batch))
    expected, found = said[name], outputs(smaller, derived(other, said, name))
    assert found.keys() == expected.keys() or (name in HEAVY and found.keys() < expected.keys())
    assert {key for key in found if not alike(expected[key], found[key])} == set()


@pytest.mark.parametrize("name", SECOND)
def test_tables_of_the_second_pass(name, ready, tables, said):
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
    written = {table: other.stage for other in SECOND.values() for table in other.stage.tables}
    for whole in batches:
        batch = whole.select(step.stage.inputs)
        given = {table: written[table](whole.select(written[table].inputs))[table] for table in step.stage.reads}
        more = (given,) if given else ()
        made = step.stage(batch, *more)
        assert made.keys() == step.stage.tables.keys()
        for table_name, declared in step.stage.tables.items():
            table = made[table_name]
            assert (table.schema.names, table.schema.types) == (declared.schema.names, declared.schema.types)
            keys = table.select(list(declared.keys)).to_pylist()
            assert len({tuple(key.values()) for key in keys}) == len(keys)
        shuffled = take_slices(batch, np.arange(batch.num_rows)).take(
            pa.array(np.random.default_rng(0).permutation(batch.num_rows))
        )
        assert all(step.stage(shuffled, *more)[key].equals(made[key]) for key in made), "the order of rows matters"


@pytest.mark.parametrize("name", FIRST)
def test_previews_can_be_drawn(name, ready, said):
    step = ready[name]
    for row in said[name].values():
        drawing = step.stage.preview(row)
        if drawing is not None:
            places = [place for area in drawing.areas for ring in area.rings for place in ring]
            places += [(label.x, label.y) for label in drawing.labels]
            assert np.isfinite([value for group in (*drawing.lines, *drawing.points, *places) for value in group]).all()
