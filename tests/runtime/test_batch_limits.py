"""Batch limits: halved on out-of-memory, kept for the next run, and raised again after some time."""

from __future__ import annotations

import gc
import json
import os
import weakref
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.columns import SOURCE, field
from framekiln.contract.errors import ConfigError
from framekiln.contract.packet import HALO
from framekiln.contract.stage import Stage
from framekiln.planning.gpu.calibration_file import PATIENCE, Calibration, read_calibration, write_calibration
from framekiln.runtime.recovery.batch_limits import BatchLimits, bucket_of
from framekiln.runtime.step_results import PacketCaller
from tests.support.runs.plan_factory import plan, toy


def packet(rows, pixels=(10, 10)):
    values = {"frame_index": range(rows), "clip_index": [0] * rows, "media_id": ["a.mp4"] * rows}
    values |= {"height": [pixels[0]] * rows, "width": [pixels[1]] * rows}
    columns = [pa.array(values.get(item.name, [None] * rows), item.type) for item in SOURCE]
    return pa.table([*columns, [False] * rows], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))


def step(batch=8, **said):
    return plan({"hungry": toy("Hungry", **{"items": 8} | said)}, {"steps": {"hungry": {"batch": batch}}}).first[0]


def sizes(caller, rows=8, pixels=(10, 10)):
    outcome = caller.run(packet(rows, pixels), np.zeros(rows, bool))
    assert outcome.failures == []
    return outcome.columns["rows_at_once"].to_pylist()


def test_a_limit_is_kept_for_the_rest_of_the_run_and_for_the_next_one(tmp_path):
    first = step()
    assert sizes(PacketCaller(first, BatchLimits.load(first, tmp_path))) == [2] * 8
    reloaded = BatchLimits.load(first, tmp_path)
    assert {limit.rows for limit in reloaded.rows.values()} == {2}
    other = step(rows=5)  # another setting may need another amount of memory
    assert BatchLimits.load(other, tmp_path).rows == {}


def test_pictures_of_another_size_have_a_limit_of_their_own(tmp_path):
    hungry = step(rows=4)
    caller = PacketCaller(hungry, BatchLimits.load(hungry, tmp_path))
    sizes(caller)
    sizes(caller, pixels=(1000, 1000))
    learned = BatchLimits.load(hungry, tmp_path).rows
    assert set(learned) == {bucket_of(100), bucket_of(1_000_000)}


def test_larger_calls_are_tried_again_ever_more_rarely():
    limits = BatchLimits()
    limits.lower(7, 8)
    assert limits.allowed(7, 16) == 4
    for _ in range(PATIENCE):
        limits.confirm(7, 4)
    assert limits.allowed(7, 16) == 8
    limits.lower(7, 8)
    for _ in range(PATIENCE):
        limits.confirm(7, 4)
    assert limits.allowed(7, 16) == 4  # twice as patient now
    for _ in range(PATIENCE):
        limits.confirm(7, 4)
    assert limits.allowed(7, 16) == 8
    limits.confirm(7, 8)
    assert limits.rows[7].rows == 8 and limits.allowed(7, 6) == 6


STRANGE = ("", "[]", "{", "[" * 100_000, '{"device": "cpu", "kind": "cpu", "steps": {"a": 1}}')
WRONG = ({"rows": {"a": 1}}, {"chunks": 3}, {"chunks": {"crops": -4}}, {"rows": {"7": {"rows": "x"}}}, {"runs": -1})
WRONG += tuple({"rows": {"7": {"rows": rows, "calm": calm}}} for rows, calm in ((float("inf"), 0), (0, 0), (2, -1)))


@pytest.mark.parametrize("text", [*STRANGE, *WRONG], ids=lambda text: str(text)[:50])
def test_a_file_that_nobody_wrote_so_is_passed_over_with_a_warning(tmp_path, text, caplog):
    hungry = step()
    PacketCaller(hungry, BatchLimits.load(hungry, tmp_path)).run(packet(4), np.zeros(4, bool))
    (path,) = tmp_path.glob("*.json")
    if isinstance(text, dict):
        known = json.loads(path.read_text())
        (name,) = known["learned"]
        text = json.dumps(known | {"learned": {name: text}})
    path.write_text(text)
    limits = BatchLimits.load(hungry, tmp_path)
    assert (limits.rows, limits.chunks) == ({}, {})
    assert [record.levelname for record in caplog.records] == ["WARNING"] and str(path) in caplog.text
    limits.lower(7, 8)
    assert BatchLimits.load(hungry, tmp_path).rows[7].rows == 4, "a new one takes its place"


@pytest.mark.parametrize("name", ["cpu.json", ".lock"])
def test_a_named_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    limits = BatchLimits.load(step(), tmp_path)
    assert limits.rows == {}
    limits.lower(7, 8)


def test_a_folder_or_a_sparse_giant_in_place_of_the_file_costs_nothing(tmp_path):
    for name in ("cpu.json", ".lock"):
        (tmp_path / "of" / name / name).mkdir(parents=True)
        limits = BatchLimits.load(step(), tmp_path / "of" / name)
        limits.lower(7, 8)
        assert limits.allowed(7, 8) == 4
    with (tmp_path / "cpu.json").open("wb") as file:
        file.truncate(1 << 40)
    assert BatchLimits.load(step(), tmp_path).rows == {}
    with pytest.raises(ConfigError, match="more than"):
        read_calibration(tmp_path / "cpu.json")


@pytest.mark.parametrize(
    "values", [{"vram_gb": float("inf")}, {"decode_rows_per_s": -3.0}, {"context_gb": float("nan")}]
)
def test_a_calibration_with_impossible_figures_is_refused(tmp_path, values):
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"device": "cpu", "kind": "cpu", "steps": {}} | values))
    with pytest.raises(ConfigError):
        read_calibration(path)


def test_a_calibration_and_what_runs_learned_share_the_file_of_a_device(tmp_path):
    hungry = step()
    sizes(PacketCaller(hungry, BatchLimits.load(hungry, tmp_path)))
    write_calibration(Calibration(device="cpu", kind="cpu", made="2026", decode_rows_per_s=3.0), tmp_path)
    limits = BatchLimits.load(hungry, tmp_path)
    assert {limit.rows for limit in limits.rows.values()} == {2}, "a calibration keeps what was learned"
    limits.lower(3, 8)
    (path,) = tmp_path.glob("*.json")
    known = read_calibration(path)
    assert (known.made, known.decode_rows_per_s) == ("2026", 3.0) and len(known.learned) == 1


class Clinging(Stage):
    """Fills the memory on more than two rows, and asks whether what filled it is still there when called again."""

    kept: ClassVar[list[weakref.ref]] = []

    inputs = ("frame_index",)
    outputs = pa.schema([field("held", pa.int64(), "large things of earlier calls that are still in memory")])

    def __call__(self, batch):
        held = sum(ref() is not None for ref in self.kept)
        large = np.zeros(1_000_000)
        self.kept.append(weakref.ref(large))
        if batch.num_rows > 2:
            try:
                self._deeper(large)
            except MemoryError as error:
                raise MemoryError("no room") from error
        return pa.table([[held] * batch.num_rows], names=["held"])

    def _deeper(self, large):
        copy = large * 2
        self.kept.append(weakref.ref(copy))
        raise MemoryError


def test_a_call_that_is_tried_again_does_not_find_the_last_one_in_memory():
    Clinging.kept.clear()
    made = plan(
        {"clinging": {"use": "tests.runtime.test_batch_limits:Clinging"}}, {"steps": {"clinging": {"batch": 8}}}
    ).first[0]
    gc.disable()
    try:
        outcome = PacketCaller(made).run(packet(8), np.zeros(8, bool))
    finally:
        gc.enable()
    assert outcome.failures == [] and outcome.columns["held"].to_pylist() == [0] * 8
    assert len(Clinging.kept) > 4


class OnlyOnCpu(Stage):
    """Has room for two rows on a GPU, for frame 5 on the CPU alone, for frame 7 nowhere."""

    devices = ("cpu", "cuda")

    inputs = ("frame_index",)
    outputs = pa.schema([field("device", pa.string(), "where it ran")])

    def setup(self, weights, placement):
        self._device = placement.device

    def __call__(self, batch):
        if 7 in batch["frame_index"].to_pylist():
            raise MemoryError
        if self._device == "cuda" and (batch.num_rows > 2 or 5 in batch["frame_index"].to_pylist()):
            raise MemoryError
        return pa.table([[self._device] * batch.num_rows], names=["device"])


@pytest.mark.parametrize("word", ["cpu", "set_aside"])
def test_what_a_gpu_does_not_hold_alone_goes_to_the_cpu_where_the_profile_says_so(word):
    entry = {"batch": 8, "device": "cuda", "gpus": 0.0, "too_large": word}
    made = plan({"large": {"use": "tests.runtime.test_batch_limits:OnlyOnCpu"}}, {"steps": {"large": entry}}).first[0]
    made.stage.setup({}, made.placement)
    outcome = PacketCaller(made).run(packet(8), np.zeros(8, bool))
    alone = "cpu" if word == "cpu" else None
    assert outcome.columns["device"].to_pylist() == [{5: alone, 7: None}.get(n, "cuda") for n in range(8)]
    lost = [7] if alone else [5, 7]
    assert [(failure.frame_index, failure.kind) for failure in outcome.failures] == [(n, "OutOfMemory") for n in lost]


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 40), batch=st.integers(1, 16), fits=st.integers(1, 9), items=st.integers(1, 9))
def test_every_row_is_answered_in_its_place_whatever_fits(rows, batch, fits, items):
    caller = PacketCaller(step(batch, rows=fits, items=items))
    outcome = caller.run(packet(rows), np.zeros(rows, bool))
    assert outcome.failures == [] and outcome.columns.num_rows == rows
    assert max(outcome.columns["rows_at_once"].to_pylist()) <= min(batch, fits, rows)
