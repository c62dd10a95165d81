"""The watch over a GPU: what waits for it is limited wherever it waits, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from framekiln.device import streams
from framekiln.device.watchdog import GPU_STALL_S, TIMEOUT_MARK

HANGS = """
import contextlib, os, sys, threading, torch
from framekiln.device import Batches, model, streams
from framekiln.output.object_store import Store
from framekiln.runtime.worker import Worker
from tests.support.runs.plan_factory import plan, toy
from tests.toys import Meeting

class Card:  # its streams and events; it reaches no mark
    def __init__(self, *_, **__): pass
    def record(self, stream): pass
    def synchronize(self): never()

def never(*_):
    threading.Event().wait()

torch.cuda.Stream = torch.cuda.Event = torch.cuda.default_stream = Card
torch.cuda.stream = lambda _: contextlib.nullcontext()
streams.GPU_STALL_S = 0.5

def hang(kind, in_flight, folder):
    Meeting.setup = never if kind == "set-up" else lambda *_: None
    step = plan({"ten": toy("Meeting")}, missing_weights="dummy").first[0].placed(device="cuda", in_flight=in_flight)
    worker = Worker([step], Store(folder))
    if kind == "apart":
        Batches.calls.apart(never)
    with worker.packet():
        Batches(never, step.placement)(torch.ones(3, 1))

for case in ("set-up", 1), ("set-up", 2), ("apart", 2), ("call", 1):
    child = os.fork()
    if not child:
        hang(*case, sys.argv[1])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_a_gpu_that_hangs_ends_its_process_whatever_waits_for_it(tmp_path):
    command = [sys.executable, "-c", HANGS, str(tmp_path)]  # which imports torch once, for four processes
    parent = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert (parent.stdout.split(), parent.stderr.count(TIMEOUT_MARK)) == (["1"] * 4, 4), parent.stderr


def test_only_waits_for_the_gpu_are_limited(monkeypatch):
    limits, waits, pauses = [], [], []

    @contextmanager
    def note(limit_s):
        limits.append(limit_s)
        yield
        limits.pop()

    def pause(_):
        pauses.append([*limits])
        if len(pauses) == 3:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")  # nothing is left to watch

    monkeypatch.setattr(streams, "within", note)
    monkeypatch.setattr(streams.Mark, "wait", lambda _: waits.append([*limits]))
    monkeypatch.setattr(streams, "_streams", [])
    monkeypatch.setattr(streams, "time", SimpleNamespace(sleep=pause, perf_counter=lambda: 0.0))
    thread = threading.Thread(target=streams.thread_stream, args=("cpu",))
    thread.start()
    thread.join()
    streams._ask_for_ever("cpu")
    assert waits == [[GPU_STALL_S]] * 6  # three times the shared stream, and the thread's
    assert pauses == [[], [], []]
