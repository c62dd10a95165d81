"""Whatever a stage raises is a line in errors."""

from __future__ import annotations

import signal
from asyncio import CancelledError

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import SOURCE
from framekiln.contract.packet import HALO
from framekiln.contract.row_errors import to_table
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller, nulls
from tests.support.runs.plan_factory import plan, toy


class MuteError(RuntimeError):
    """Its message cannot be made."""

    def __str__(self):
        raise KeyError("no message")


class QuittingError(Exception):
    def __str__(self):
        raise SystemExit(0)


class UndecodableError(ValueError):
    """Its message has a byte of a path that is not UTF-8."""

    def __init__(self):
        super().__init__("cannot read caf\udce9.jpg")


def four_rows() -> pa.Table:
    values = {"frame_index": range(4), "clip_index": [0] * 4, "media_id": ["a.mp4"] * 4}
    columns = [pa.array(values.get(item.name, [None] * 4), item.type) for item in SOURCE]
    return pa.table([*columns, [False] * 4], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (MuteError, "its message raised KeyError"),
        (QuittingError, "its message raised SystemExit"),
        (UndecodableError, "cannot read caf\\udce9.jpg"),
        (SystemExit, ""),
        (KeyboardInterrupt, ""),
        (CancelledError, ""),
    ],
)
def test_whatever_a_call_raises_is_the_failure_of_its_row(raised, message, monkeypatch):
    step = plan({"toy": toy("Seeded")}, missing_weights="dummy").first[0]
    set_up(step)

    def call(_, batch):
        if 2 in batch["frame_index"].to_pylist():
            raise raised
        return nulls(step.stage.outputs, batch.num_rows)

    monkeypatch.setattr(type(step.stage), "__call__", call)
    (failure,) = PacketCaller(step).run(four_rows(), np.zeros(4, bool)).failures
    assert (failure.frame_index, failure.kind, failure.message) == (2, raised.__name__, message)
    assert to_table([failure]).num_rows == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["__call__", "setup"])
def test_a_process_that_is_told_to_end_blames_neither_row_nor_set_up(where, number, monkeypatch):
    def end(*_):
        raise SystemExit(1)  # as the handler of Ray's workers does, in whatever code they are

    step = plan({"toy": toy("Seeded")}, missing_weights="dummy").first[0]
    monkeypatch.setattr(type(step.stage), where, lambda *_: signal.raise_signal(number))
    handlers = {signal.SIGTERM: end, signal.SIGINT: signal.default_int_handler}
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            set_up(step) if where == "setup" else PacketCaller(step).run(four_rows(), np.zeros(4, bool))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
