"""What a stage returned is checked before it is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import ContractError
from framekiln.contract.packet import HALO
from framekiln.runtime.step_results import PacketCaller
from tests.support.runs.plan_factory import plan, toy

RETURNS = {
    "no table": ("FK-NOT-A-TABLE", lambda result: result.to_pylist()),
    "a row too few": ("FK-ROW-COUNT", lambda result: result.slice(1)),
    "a row too many": ("FK-ROW-COUNT", lambda result: pa.concat_tables([result, result.slice(0, 1)])),
    "another type": (
        "FK-UNDECLARED-COLUMNS",
        lambda result: pa.table(dict.fromkeys(result.column_names, pa.nulls(len(result), pa.null()))),
    ),
    "another name": ("FK-UNDECLARED-COLUMNS", lambda result: result.rename_columns(["a", "b"])),
}


@pytest.mark.parametrize("case", RETURNS)
def test_other_results_than_declared_stop_the_run_by_a_code(case, monkeypatch):
    code, change = RETURNS[case]
    (step,) = plan({"hungry": toy("Hungry")}, {}).first
    step.stage.chunk_sizes["items"] = 8
    compute = type(step.stage).__call__
    monkeypatch.setattr(type(step.stage), "__call__", lambda stage, batch: change(compute(stage, batch)))
    values = {"frame_index": range(2), "clip_index": [0, 0], "media_id": ["a.mp4"] * 2}
    columns = [pa.array(values.get(item.name, [None] * 2), item.type) for item in SOURCE]
    rows = pa.table([*columns, [False, False]], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))
    with pytest.raises(ContractError) as error:
        PacketCaller(step).run(rows, np.zeros(2, bool))
    assert error.value.code == code
