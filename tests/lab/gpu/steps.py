"""Steps of a GPU benchmark that end in each way a step can; their processes import nothing that takes long."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.gpu.options import SkippedError


def measures(options, record):
    record(value=1 / 3, device=options.device)


def fails_a_check(options, record):
    record(ok=True)
    record(ok=False, why="not equal")


def raises(options, record):
    record(value=1)
    raise RuntimeError("no such kernel")


def hangs(options, record):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("what it did last", file=sys.stderr, flush=True)
    record(child=child.pid)
    time.sleep(600)


def has_nothing_to_do(options, record):
    raise SkippedError("no memory to limit")


def finds_no_case(options, record):
    assert not options.wanted({"faces": 1})


class Fragile:
    """An object of a benchmark, whose parts end in several ways."""

    parts = ("measures", "raises", "dies", "after")

    def prepare(self):
        pass

    def measure(self, part):
        if part == "dies":
            os._exit(3)
        if part == "raises":
            raise RuntimeError("no such kernel")
        return {"value": part}
