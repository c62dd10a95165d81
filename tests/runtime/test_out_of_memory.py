"""Out-of-memory: the batch and then the chunks are halved; a row that never fits is a line in errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import SetupError
from framekiln.contract.packet import HALO
from framekiln.contract.placement import Placement
from framekiln.device import is_broken_gpu, is_out_of_memory
from framekiln.runtime.stage_setup import set_up_stage
from framekiln.runtime.step_results import PacketCaller
from tests.support.runs.plan_factory import plan, toy
from tests.toys import Checksum


def run(rows, chunk=8, **settings):
    step = plan({"hungry": toy("Hungry", **settings)}, {"steps": {"hungry": {"batch": rows}}}).first[0]
    step.stage.chunk_sizes["items"] = chunk
    values = {"frame_index": range(rows), "clip_index": [0] * rows, "media_id": ["a.mp4"] * rows}
    columns = [pa.array(values.get(item.name, [None] * rows), item.type) for item in SOURCE]
    table = pa.table([*columns, [False] * rows], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))
    return PacketCaller(step).run(table, np.zeros(rows, bool)), step.stage


@pytest.mark.parametrize("gpu", [False, True])
def test_batches_are_halved_until_they_fit_and_every_row_is_answered(gpu):
    outcome, _ = run(7, chunk=1, gpu=gpu)
    assert outcome.failures == []
    assert outcome.columns["rows_at_once"].to_pylist() == [2, 2, 2, 2, 2, 2, 1]


@pytest.mark.parametrize("gpu", [False, True])
def test_chunks_are_halved_once_a_row_is_alone_and_stay_so(gpu):
    outcome, stage = run(4, gpu=gpu)
    assert outcome.failures == []
    assert stage.chunk_sizes == {"items": 2}
    assert outcome.columns["items_at_once"].to_pylist() == [2] * 4


def test_what_never_fits_is_told_with_a_fix_and_where_it_was_asked_for():
    outcome, _ = run(4, never=2)
    (failure,) = outcome.failures
    assert (failure.frame_index, failure.kind, "MemoryError" in failure.traceback) == (2, "OutOfMemory", True)
    assert failure.message.startswith("the machine's memory does not hold this alone in step 'hungry'")
    assert outcome.columns["rows_at_once"].null_count == 1


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    torch.AcceleratorError("CUDA error: out of memory"),  # page-locked buffers
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
]
LOST = [
    torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
]
NEITHER = [RuntimeError("out of memory, says a text"), ValueError("CUDA error: no")]


@pytest.mark.parametrize("error", [*FULL, *LOST, *NEITHER], ids=str)
def test_what_torch_and_its_libraries_say_is_told_apart(error):
    assert (is_out_of_memory(error), is_broken_gpu(error)) == (error in FULL, error in LOST)


@pytest.mark.parametrize("lost", [True, False])
def test_a_gpu_in_use_is_asked_whether_it_is_lost(monkeypatch, lost):
    def synchronize():
        if lost:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.synchronize", synchronize)
    assert is_broken_gpu(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")) == lost
    assert is_broken_gpu(RuntimeError("CUDA error: invalid configuration argument")) == lost


@pytest.mark.parametrize(
    ("device", "vram", "code"),
    [
        ("cuda", 1.5, "FK-SETUP-GPU-MEMORY"),
        ("cuda", 0.0, "FK-SETUP-GPU-MEMORY"),
        ("cpu", 0.0, "FK-SETUP-OUT-OF-MEMORY"),
    ],
)
def test_a_model_that_does_not_fit_names_its_step_and_its_share(device, vram, code):
    class Large(Checksum):
        def setup(self, weights, placement):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(SetupError) as error:
        set_up_stage(Large(), "large", {}, Placement(device=device, vram_gb=vram))
    assert error.value.code == code
    assert "'large'" in str(error.value) and ("1.5 GB" in str(error.value)) == bool(vram)
