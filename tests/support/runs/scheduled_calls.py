"""Model calls of several threads at once, made by an owner thread as on a GPU."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from framekiln.device import Batches, CallScheduler

FOREVER = 1000.0  # seconds of linger: a batch leaves only when it is full, or nobody can add to it


class Network:
    """Doubles each row, and remembers how many rows each call had."""

    def __init__(self, refuses=lambda rows: None):
        self.sizes, self.threads, self._refuses = [], set(), refuses

    def __call__(self, rows):
        self.sizes.append(len(rows))
        self.threads.add(threading.current_thread().name)
        self._refuses(rows)
        return rows * 2


@contextmanager
def opened(linger_s, **settings):
    """Let model calls of this process be made by an owner thread in this block."""
    Batches.calls = CallScheduler("cpu", linger_s, **settings)
    try:
        yield Batches.calls
    finally:
        Batches.calls.close()
        Batches.calls = CallScheduler()


def together(joint, batches, requests):
    """Call from one thread each, all of which hold a packet before the first one calls."""
    barrier = threading.Barrier(len(requests))

    def work(rows):
        with joint.packet():
            barrier.wait()
            try:
                return batches(rows)
            except Exception as error:
                return error

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(work, requests))


def numbers(*counts):
    return torch.arange(sum(counts), dtype=torch.float32).reshape(-1, 1).split(list(counts))
