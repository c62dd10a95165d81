"""Made figures of cells, for tests of what reads them."""

from __future__ import annotations

import re

import numpy as np

from framekiln.lab.output.cells import Cell, CellResult, Layer, Memory, MemoryPoint
from framekiln.lab.output.results import BenchReport, ModelInfo
from framekiln.planning.sample import Statistics
from tests.support.runs.report_reader import parsed


def layer(path, share, ms=1.0, kind="Block", depth=1):
    return Layer(path=path, kind=kind, depth=depth, uses=1, mean_ms=ms, std_ms=0.0, own_ms=ms, share=share, flops=None)


def memory(**more):
    timeline = (MemoryPoint(ms=0, allocated=0), MemoryPoint(ms=2, allocated=3_000_000), MemoryPoint(ms=4, allocated=10))
    return Memory(**{"weights": 10**6, "inputs": 10, "outputs": 10, "peak": 10**9, "timeline": timeline, **more})


def noisy(ms, calls=50, noise=0.03, seed=0):
    """Times in seconds, independent, with this spread."""
    return ms / 1000 * (1 + noise * np.random.default_rng(seed).standard_normal(calls))


def result(seconds=(0.01,) * 20, batch=1, model="net", *, precision="fp32", **more):
    seconds = np.asarray(seconds)
    figures = {
        "outcome": "ok",
        "latency_ms": Statistics.of(seconds),
        "enqueue_ms": Statistics.of(seconds, keep=False),
        "item_ms": 1000 * float(np.median(seconds)) / batch,
        "items_per_s": batch / float(seconds.mean()),
        "memory": memory(),
        "weights_bytes": 10**6,
    }
    return CellResult(cell=Cell(batch=batch, precision=precision), model=model, items=batch, **(figures | more))


def report(*cells, **more):
    return BenchReport(
        made="2026-11-22T20:00:00+00:00",
        argv=("bench", "net"),
        environment={"device": "cpu", "torch": "2.13"},
        models=(ModelInfo(name="net", weights="seeded random", params=140, parts={"encoder": 100, "head": 40}),),
        cells=cells,
        **more,
    )


def section_ids(path):
    """Return the ids of a page's sections, in order; each is linked from the top."""
    html = path.read_text(encoding="utf-8")
    ids = re.findall(r'<section id="([^"]+)"', html)
    assert [value[1:] for name, value in parsed(html).attributes if name == "href"] == ids
    return ids


def read_tables(page):
    """Return the tables of a page as lists of rows, each a list of the cells' texts."""

    def texts(row):
        return [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]

    tables = re.findall(r"<table.*?</table>", page, re.S)
    return [[texts(row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)] for table in tables]
