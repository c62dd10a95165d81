"""The page of a prediction: complete, safe for hostile names, and without network access."""

from __future__ import annotations

from dataclasses import replace

from framekiln.lab.predict.choose import GpuChoice, Prediction, Prices, StepChoice
from framekiln.lab.predict.pace import Interval
from framekiln.reporting.predict import gpus_table, ranked, render
from tests.support.runs.report_reader import LOADS, Tags

HOSTILE = "<script>alert(1)</script>'\"&"


def around(value):
    return Interval(central=value, low=value / 2, high=value * 2)


def choice(gpu, rate):
    step = StepChoice(step=HOSTILE, batch=8, gb=2.5, flops=1e11, bound=40.0, seconds=around(0.1), measured=False)
    figures = {"rate": around(rate), "hours": around(1.0), "kwh": around(0.3), "limit": "the GPU"}
    helps = {"a second GPU": 1.5, "twice the cores": 1.04}
    return GpuChoice(gpu=gpu, profile="p", waves=[[HOSTILE]], steps=[step], bound=4 * rate, helps=helps, **figures)


FOUND = Prediction(
    output=HOSTILE,
    cores=16.0,
    rows=around(1000.0),
    prices=Prices(),
    gpus=[choice("slow", 5.0), choice("fast", 10.0), GpuChoice(gpu="tiny", profile="", why_not=HOSTILE)],
    notes=["a doubt"],
)


def test_a_page_has_all_gpus_the_fastest_first_and_loads_nothing():
    page = render(FOUND)
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and "script" not in tags.names
    assert [name for name, value in tags.attributes if name in LOADS and not value.startswith("#")] == []
    order = [page.index(f"<bdi>{name}</bdi></th>") for name in ("fast", "slow", "tiny")]
    assert order == sorted(order)
    assert all(text in page for text in ("1.50x", "10 (5 to 20)", "2.5", "a doubt", "width:50.0%", "5 to 20 *"))
    assert "twice the cores" not in page  # which would help little
    assert ">waves<" in page and ">waves<" not in render(replace(FOUND, gpus=FOUND.gpus[:2]))


def test_of_equally_fast_gpus_the_cheapest_is_first_and_none_the_fastest():
    costs = {"dear": 3.0, "cheap": 1.0}
    gpus = [replace(choice(name, 10.0), money=around(cost)) for name, cost in costs.items()]
    found = replace(FOUND, gpus=[*gpus, choice("slow", 5.0)])
    assert [one.gpu for one in ranked(found)] == ["cheap", "dear", "slow"]
    assert '<p class="verdict"><bdi>cheap, dear</bdi>' in render(found)


def test_the_table_has_a_dash_for_what_is_not_known():
    assert gpus_table(FOUND).rows[2][2:] == ["does not fit", *["–"] * 4]


def test_if_no_step_uses_a_gpu_one_line_without_its_energy_stands_for_all():
    found = replace(FOUND, gpus=[replace(each, waves=[[]], steps=()) for each in FOUND.gpus[:2]])
    assert gpus_table(found).heads == ["rows/s", "time"] and len(gpus_table(found).rows) == 1
    assert "fastest:" not in render(found) and "bound" in gpus_table(FOUND).heads
