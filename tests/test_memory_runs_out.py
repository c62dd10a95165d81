"""A call that does not fit into memory is made smaller; what never fits is a line in errors, in one sentence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.calls import Caller
from pipeline.columns import SOURCE
from pipeline.packet import HALO
from tests.plan_factory import plan, toy


def run(rows, chunk=8, **settings):
    step = plan({"hungry": toy("Hungry", **settings)}, {"steps": {"hungry": {"batch": rows}}}).first[0]
    step.stage.chunk_rows["items"] = chunk
    values = {"frame_index": range(rows), "clip_index": [0] * rows, "media_id": ["a.mp4"] * rows}
    columns = [pa.array(values.get(item.name, [None] * rows), item.type) for item in SOURCE]
    table = pa.table([*columns, [False] * rows], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))
    return Caller(step).run(table, np.zeros(rows, bool)), step.stage


@pytest.mark.parametrize("gpu", [False, True])
def test_batches_are_halved_until_they_fit_and_every_row_is_answered(gpu):
    outcome, _ = run(7, chunk=1, gpu=gpu)
    assert outcome.failures == []
    assert outcome.columns["rows_at_once"].to_pylist() == [2, 2, 2, 2, 2, 2, 1]


@pytest.mark.parametrize("gpu", [False, True])
def test_chunks_are_halved_once_a_row_is_alone_and_stay_so(gpu):
    outcome, stage = run(4, gpu=gpu)
    assert outcome.failures == []
    assert stage.chunk_rows == {"items": 2}
    assert outcome.columns["items_at_once"].to_pylist() == [2] * 4


def test_what_never_fits_is_told_in_one_sentence_without_a_traceback():
    outcome, _ = run(4, never=2)
    (failure,) = outcome.failures
    assert (failure.frame_index, failure.kind, failure.traceback) == (2, "OutOfMemory", "")
    assert failure.message.startswith("the machine's memory does not hold this alone in step 'hungry'")
    assert outcome.columns["rows_at_once"].null_count == 1


def test_a_gpu_that_runs_out_of_memory_is_told_by_its_own_error():
    torch = pytest.importorskip("torch")
    from pipeline.device import is_out_of_memory

    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("out of memory, says a text"))
