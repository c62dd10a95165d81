"""The bench's page as a browser draws it: dots lie at their latency and throughput, curves at their memory."""

from __future__ import annotations

import pytest

from framekiln.lab.output.cells import MemoryPoint
from framekiln.reporting.bench.page import render
from tests.lab.report.results import memory, report, result
from tests.support.runs.browser import rendered

PX = 1.5  # by which an edge may be off: coordinates have one decimal, lines a width
SCRIPT = """(() => {
  const box = (element) => { const { left, right, top, bottom } = element.getBoundingClientRect();
    return { left, right, top, bottom }; };
  const named = (element) => ({ text: element.textContent, ...box(element) });
  const of = (root, selector) => [...root.querySelectorAll(selector)].map(named);
  const dots = document.querySelector('svg.dots') ?? document.querySelector('.dots svg');
  const plot = document.querySelector('#memory svg.plot');
  return { circles: of(dots, 'circle'), texts: of(dots, 'text[text-anchor="middle"]'), plot: box(plot),
           curves: of(plot, 'path.curve') };
})()"""
LATENCIES = {1: 10.0, 2: 14.0, 4: 20.0, 8: 40.0}  # ms by batch
BLOCKS = (MemoryPoint(ms=0, allocated=0), MemoryPoint(ms=1, allocated=50_000_000), MemoryPoint(ms=4, allocated=0))


def middle(item, *sides):
    return (item[sides[0]] + item[sides[1]]) / 2


@pytest.mark.parametrize("width", [1280, 390])
def test_dots_and_curves_lie_where_the_figures_are(tmp_path, width):
    cells = [result((ms / 1000,) * 5, n, memory=memory(timeline=BLOCKS)) for n, ms in LATENCIES.items()]
    drawn = rendered(render(report(*cells)), SCRIPT, tmp_path, width=width)
    ticks = {float(text["text"]): middle(text, "left", "right") for text in drawn["texts"]}  # the axis of latency
    first, *_, last = sorted(ticks)
    assert first == 0 and last >= max(LATENCIES.values())
    scale = (ticks[last] - ticks[first]) / last
    circles = drawn["circles"]
    assert len(circles) == len(LATENCIES)
    for circle, ms in zip(circles, LATENCIES.values(), strict=True):
        assert middle(circle, "left", "right") == pytest.approx(ticks[first] + scale * ms, abs=PX)
    heights = [middle(circle, "top", "bottom") for circle in circles]
    rates = [1000 * n / ms for n, ms in LATENCIES.items()]  # 100, 143, 200, 200
    for place, rate in zip(heights, rates, strict=True):
        share = (rate - rates[0]) / (rates[2] - rates[0])
        assert place == pytest.approx(heights[0] + share * (heights[2] - heights[0]), abs=PX)
    assert heights[2] < heights[0]
    plot = drawn["plot"]
    for curve in drawn["curves"]:  # 50 of 50 MB at most
        assert curve["bottom"] == pytest.approx(plot["bottom"], abs=PX)
        assert curve["top"] == pytest.approx(plot["top"], abs=PX)


@pytest.mark.parametrize("width", [1280, 390])
def test_names_in_tables_are_not_broken_by_the_letter(tmp_path, width):
    script = (
        "Math.min(...[...document.querySelectorAll('#times tbody td:nth-child(-n+2)')].map((cell) => cell.clientWidth))"
    )
    assert rendered(render(report(result((0.01,) * 5))), script, tmp_path, width=width) >= 100
