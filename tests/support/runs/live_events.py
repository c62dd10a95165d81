"""Events of processes that work in a steady rhythm, for tests of a run's last seconds."""

from __future__ import annotations

from framekiln.contract.row_errors import DECODE
from framekiln.profiling.records import StepEvent
from framekiln.profiling.stats.live import LiveWindow

GPU_SAMPLE = {"use_percent": 20.0, "memory_gb": 3.0, "total_gb": 8.0, "power_w": 90.0, "temperature_c": 50.0}


def working(step, seconds, wait=0.0, *, rows=10, worker="host:1", until=100.0, packets=40, **more):
    """Return events of a process's packets, one after the other; the last one ends at `until`."""
    each = seconds + wait
    begins = (until - each * (packets - i) + wait for i in range(packets))
    around = {"wait": wait} if wait else {}
    about = {"step": step, "worker": worker, "rows": rows, "seconds": seconds, "around": around}
    about |= {"calls": (seconds,)} | more
    return [StepEvent(started=begin, start=i * rows, **about) for i, begin in enumerate(begins)]


def live(*some):
    found = LiveWindow()
    for one in sorted((one for many in some for one in many), key=lambda one: one.ended):
        found.add(one)
    return found


def after(packets, step, seconds):
    """Return another step's packets in the same process, each after one of these."""
    return [
        StepEvent(step=step, worker=one.worker, rows=one.rows, started=one.ended, seconds=seconds) for one in packets
    ]


DECODING = {"busy": working(DECODE, 0.5, worker="host:9"), "idle": working(DECODE, 0.1, 0.4, worker="host:9")}
ON_GPU = {"device": "cuda", "phases": {"infer": 0.4}}
