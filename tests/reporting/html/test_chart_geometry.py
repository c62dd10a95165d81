"""Every kind of chart as a browser draws it, against the data behind it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.columns import field
from framekiln.reporting.kit.histograms import BARS
from tests.support.media.collections_factory import photo
from tests.support.runs.browser import rendered
from tests.support.runs.report_factory import call_records, figures, node_samples, output, recorded
from tests.support.runs.report_reader import page

PX = 0.75  # by which an edge may be off: coordinates are written with one decimal
GEOMETRY = Path(__file__).with_name("geometry.js").read_text("utf-8").partition("\n")[2]
LONG = "lighting_steadiness_of_clips"
WORKERS = {"box:1": ["decode", "marked"], "box:2": [LONG]}
SKEWED = np.concatenate([[-900.0], np.random.default_rng(7).normal(5, 2, 2000), [4000.0, 5000.0]])
SMALL = np.repeat([3, 4, 5, 9], [1, 40, 400, 3])
WORDS = ["car"] * 6 + ["dog"] * 3 + ["bee"]
WIDTHS = (1280, 390)


def table(store, name, **columns):
    arrays = [pa.array(values) for values in columns.values()]
    schema = pa.schema([field(key, array.type, "") for key, array in zip(columns, arrays, strict=True)])
    store.write_table(f"{name}/a.parquet", pa.table(arrays, schema=schema))


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    for i in range(3):
        photo(folder / "in" / f"{i}.png", i)
    steps = {"decode": figures(12, 1.0), "marked": figures(12, 6.0), LONG: figures(12, 3.0)}
    store = output(folder / "in", folder / "out", figures=steps)
    recorded(store, WORKERS, gpus=1)
    table(store, "skewed", skewed=SKEWED)
    table(store, "small", small=SMALL)
    table(store, "words", word=WORDS, sharp=[True] * 4 + [False] * 6)
    return page(store)


@pytest.fixture(scope="module", params=WIDTHS)
def drawn(request, html, tmp_path_factory):
    return rendered(html, GEOMETRY, tmp_path_factory.mktemp("browser"), width=request.param)


def histogram(drawn, name):
    (found,) = [chart for chart in drawn["histograms"] if chart["name"].startswith(f"Histogram of {name}:")]
    return found


def assert_bars(chart, rows):
    """Heights are proportional to rows, feet are on the axis, and bars are side by side in the drawing."""
    bars = chart["bars"]
    assert len(bars) == len(rows)
    scale = chart["box"]["width"] / 280
    full, tallest = 86 * scale, max(rows)
    axis = (chart["axis"]["top"] + chart["axis"]["bottom"]) / 2
    for bar, count in zip(bars, rows, strict=True):
        expected = max(full * count / tallest, 1.5 * scale) if count else 0
        assert bar["height"] == pytest.approx(expected, abs=PX)
        assert bar["bottom"] == pytest.approx(axis, abs=PX) and bar["top"] > chart["box"]["top"]
    lefts = [bar["left"] for bar in bars]
    assert np.diff(lefts) == pytest.approx(np.diff(lefts).mean(), abs=PX)
    assert all(before["right"] <= after["left"] + PX for before, after in pairwise(bars))
    assert chart["box"]["left"] <= lefts[0] and bars[-1]["right"] <= chart["box"]["right"]
    return bars


def test_bars_of_continuous_values(drawn):
    chart = histogram(drawn, "skewed")
    low, high = np.quantile(SKEWED, [0.005, 0.995])
    inside = SKEWED[(low <= SKEWED) & (high >= SKEWED)]
    counts, _ = np.histogram(inside, bins=BARS, range=(low, high))
    bars = assert_bars(chart, counts.tolist())
    left, right = bars[0]["left"], bars[-1]["right"]
    first, _, last = chart["texts"][1:]
    assert first["left"] == pytest.approx(left, abs=2 * PX) and last["right"] == pytest.approx(right, abs=2 * PX)


def test_bars_of_whole_numbers_stand_over_their_labels(drawn):
    chart = histogram(drawn, "small")
    bars = assert_bars(chart, np.bincount(SMALL - 3).tolist())
    for text, bar in zip(chart["texts"][1:], bars, strict=True):
        assert (text["left"] + text["right"]) / 2 == pytest.approx((bar["left"] + bar["right"]) / 2, abs=2 * PX)
    assert [text["text"] for text in chart["texts"][1:]] == ["3", "4", "5", "6", "7", "8", "9"]


def test_no_text_leaves_its_chart_and_no_page_its_window(drawn):
    for chart in drawn["histograms"]:
        for text in chart["texts"]:
            assert chart["box"]["left"] - PX <= text["left"] and text["right"] <= chart["box"]["right"] + PX
    assert drawn["sideways"] == 0


def test_names_of_steps_are_not_broken(drawn):
    names = {step["name"] for step in drawn["steps"]}
    assert {"decode", "marked", LONG} <= names
    assert max(drawn["heights"]) < 1.5 * min(drawn["heights"])


def test_meters_are_shares(drawn):
    shares = {(meter["name"], meter["label"]): meter for meter in drawn["meters"]}
    expected = {("word", "car"): 0.6, ("word", "dog"): 0.3, ("word", "bee"): 0.1, ("sharp", "false"): 0.6}
    expected |= {("decode", "10%"): 0.1, ("marked", "60%"): 0.6, (LONG, "30%"): 0.3}
    for key, share in expected.items():
        meter = shares[key]
        assert meter["share"] == pytest.approx(share, abs=PX / meter["width"]) and meter["height"] == 8


def test_phases_are_shares_of_each_step(drawn, html):
    assert {bar["name"] for bar in drawn["phases"]} == {"decode", "marked", LONG}
    truth = {"decode": {"decode": 0.9, "other-work": 0.1}}
    for name in ("marked", LONG):  # infer 0.6 of 2 s and write 0.1 s: see `call_records`
        truth[name] = {"infer": 0.6, "write": 0.05, "other-work": 0.35}
    for bar in drawn["phases"]:
        parts = {part["kind"].removeprefix("do-"): part["share"] for part in bar["parts"]}
        assert parts == pytest.approx(truth[bar["name"]], abs=0.01) and bar["height"] == 24


def test_lanes_show_what_a_process_did_at_each_time(drawn):
    records = call_records(WORKERS)
    began = min(line["started"] for line in records)
    slot = (max(line["started"] + line["seconds"] + line.get("seal", 0) for line in records) - began) / 400
    assert len(drawn["lanes"]) == len(WORKERS)
    checked = 0
    for line in records:
        lane = next(lane for lane in drawn["lanes"] if line["worker"] in lane["name"])
        for kind, place, begin, seconds in moments(line):
            at = int((begin + seconds / 2 - began) / slot)
            seen = {part: lane[part][at] for part in ("upper", "middle", "lower")}
            assert {part for part, found in seen.items() if found == f"do-{kind}"} == place, (line, seen)
            checked += 1
    assert checked > 30


def moments(line):
    """Yield kind, place in the lane, begin and length of what a record tells."""
    begin, whole = line["started"], {"upper", "middle", "lower"}
    if line["kind"] == "set-up":
        yield "set-up", {"middle"}, begin, line["seconds"]
    elif line["kind"] == "hand-on":
        yield "handing-on", {"upper"}, begin, line["seal"]
    elif line["kind"] == "call":
        yield "infer", whole, begin, line["infer"]
    elif line["step"] == "decode":
        yield "decode", whole, begin, line["decode"]
    if line.get("wait"):
        yield "waiting-for-input", {"lower"}, begin - line["wait"], line["wait"]


def test_curves_are_the_samples(drawn):
    length = max(line["started"] + line["seconds"] + line.get("seal", 0) for line in call_records(WORKERS)) - 1_000_000
    charts = {chart["name"].partition(" in ")[0]: chart for chart in drawn["plots"]}
    assert set(charts) == {"GPU use", "GPU memory", "CPU", "Memory"}
    samples = node_samples(WORKERS, length, gpus=1)
    cores = [(sample["time"] - 1_000_000, sample["cpu_percent"]) for sample in samples]
    used = [(sample["time"] - 1_000_000, sample["memory_gb"]) for sample in samples]
    assert_curve(charts["CPU"], "all cores", cores, length)
    assert_curve(charts["Memory"], "in use, all programs", used, length)
    memory = charts["GPU memory"]
    assert memory["limit"]["top"] == pytest.approx(level(memory, 8.0), abs=2 * PX)
    for chart in charts.values():  # the key has the colour of its curve
        colours = {curve["name"]: curve["colour"] for curve in chart["curves"]}
        assert colours == {key["name"]: key["colour"] for key in chart["keys"] if key["colour"]}


def level(chart, value):
    """Return the place of a value on the screen, by the texts of the axis."""
    top, box = float(chart["axis"][0]["text"].replace(",", "")), chart["box"]
    assert [float(item["text"]) for item in chart["axis"][1:]] == [top / 2, 0]
    return box["bottom"] - box["height"] * value / top


def assert_curve(chart, name, samples, length):
    (curve,) = [curve for curve in chart["curves"] if curve["name"] == name]
    points, box = np.array(curve["points"]), chart["box"]
    assert points[0, 0] == pytest.approx(box["left"], abs=2 * PX)
    step = length / 240
    compared = 0
    for i in range(240):
        values = [value for time, value in samples if int(time / length * 240) == i]
        steady = [value for time, value in samples if step * (i - 2) <= time <= step * (i + 3)]
        if not values or max(steady) - min(steady) > 0.02 * max(steady):
            continue  # where the curve leaps, its place at a time is that of a slope
        x = box["left"] + box["width"] * i / 240
        drawn = points[np.abs(points[:, 0] - x).argmin(), 1]
        assert drawn == pytest.approx(level(chart, float(np.mean(values))), abs=2 * PX)
        compared += 1
    assert compared > 60
