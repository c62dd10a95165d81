"""A clip's whole way: arrivals by a fake clock, eyes as items, phases and targets, damage as rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from framekiln.api.bench import BenchFiles
from framekiln.api.bench_options import CellOptions
from framekiln.cli.app import app
from framekiln.cli.bench.films import bench_clips, clip_settings
from framekiln.cli.bench.options import ClipOptions
from framekiln.contract.errors import ConfigError, InputError
from framekiln.lab.clips.formats import BenchClip, ClipFormat, Load, arrivals, clip_of_file, made_clip
from framekiln.lab.clips.measure import PHASES, ClipSettings, FrameCall, measure_clips
from framekiln.lab.models.factory import Factory
from framekiln.lab.models.registry import TorchModel
from framekiln.lab.output.cells import Cell
from framekiln.lab.samples import FIGURES, samples, verdicts
from framekiln.planning.limits import parse_targets
from framekiln.planning.sample import Statistics
from tests.lab.report.results import report, result, section_ids

SMALL = ClipFormat(name="small", height=48, width=64, fps=30)
STEREO = ClipFormat(name="eyes", height=48, width=128, fps=30, eyes=2)


class Time:
    """A clock that only sleeping and working move."""

    def __init__(self):
        self.now, self.calls = 100.0, []

    def sleep(self, seconds):
        self.now += seconds

    def work(self, base, by_frame):
        def handle(count):
            self.calls.append(count)
            self.now += base + by_frame * count

        return handle

    def load(self, **settings) -> Load:
        return Load(clock=lambda: self.now, sleep=self.sleep, **settings)


def test_dynamic_batches_of_known_arrivals():
    """Batches of at most 3, a linger of 2 s, 4 s a batch, by hand.

    1 and 2 wait until 3 (1 + 2), end at 7; by then 4, 5, 6 wait and are a full batch, end at 11; 20 waits until 22.
    """
    time = Time()
    times = [101, 102, 104, 105, 106, 120]
    done = time.load(scenario="server", batch=3, linger_s=2).serve_arrivals(time.work(4, 0), times)
    assert [(batch.start, batch.end) for batch in done] == [(103, 107), (107, 111), (122, 126)]
    assert [batch.arrivals for batch in done] == [(101, 102), (104, 105, 106), (120,)]
    assert done[0].latencies == [6, 5] and done[2].latencies == [6]


def test_without_a_linger_nothing_waits_for_a_fuller_batch():
    time = Time()
    done = time.load(scenario="server", batch=2).serve_arrivals(time.work(1, 0), [101, 101.5, 101.6, 101.7])
    assert time.calls == [1, 2, 1]
    assert [batch.start for batch in done] == [101, 102, 103]


def test_a_full_batch_does_not_linger():
    time = Time()
    done = time.load(scenario="server", batch=2, linger_s=9).serve_arrivals(time.work(1, 0), [101, 103])
    assert (done[0].start, done[0].end) == (103, 104)


@pytest.mark.parametrize(
    ("scenario", "calls", "latencies"),
    [
        ("single", [1] * 5, [3, 3, 3, 3, 3]),
        ("multi", [2, 2, 1], [5, 5, 5, 5, 3]),
        ("offline", [2, 2, 1], [5, 5, 10, 10, 13]),  # all arrived at the start
    ],
)
def test_other_scenarios(scenario, calls, latencies):
    time = Time()
    done = time.load(scenario=scenario, frames=5, batch=2).serve(time.work(1, 2))
    assert time.calls == calls and [value for batch in done for value in batch.latencies] == latencies


def test_arrivals_are_random_with_the_rate_as_their_mean():
    times = np.array(arrivals(4000, 50, 10))
    pauses = np.diff(times, prepend=10)
    assert times[0] > 10 and pauses.mean() == pytest.approx(0.02, rel=0.05)
    assert pauses.std() == pytest.approx(0.02, rel=0.1)  # as of an exponential distribution
    assert arrivals(5, 50, 10) == times[:5].tolist()


def test_targets():
    values = Statistics.of([0.016] * 60 + [0.021] * 40)
    found = [row for row, _ in verdicts(samples(report(result(latency_ms=values))), parse_targets("1080p60", FIGURES))]
    assert [(row["target"], row["verdict"]) for row in found] == [
        ("p50<16.67", "met"),
        ("p95<20", "not met"),
        ("p99<25", "not measured"),
    ]
    assert [(t.figure, t.number) for t in parse_targets("p50<16.67, p90 < 20", FIGURES)] == [
        ("p50", 16.67),
        ("p90", 20),
    ]
    assert [t.number for t in parse_targets("4k30", FIGURES)] == [33.33, 40, 50]
    for text in ("p42<3", "faces.p50<3", "p50>+3%", "8k60"):
        with pytest.raises(ConfigError) as error:
            parse_targets(text, FIGURES)
        assert error.value.code == "FK-TARGET"


class Model:
    """A network of images that returns the mean of each, and a map that is above 0 in bright pixels."""

    name, weights = "bright", "none"

    def prepare(self, cell, device):
        from tests.lab.models import plain  # noqa: F401  a factory's module is imported as a user's is

        source = Factory(use="tests.lab.test_clips:bright", settings={})
        return TorchModel(name="bright", factory=source, weights="none").prepare(cell, device)


class Bright(torch.nn.Module):
    def forward(self, pixels):
        tokens = torch.ones(len(pixels), 9, 12)  # no map, though it has two axes too
        return {"tokens": tokens, "mean": pixels.mean((1, 2, 3)), "map": pixels[:, 0]}


def bright():
    return Bright(), lambda batch=1, size=32: torch.zeros(batch, 3, size, size)


class Stops(torch.nn.Module):
    def forward(self, pixels):
        raise RuntimeError("this model stops")


def stops():
    return Stops(), lambda batch=1: torch.zeros(batch, 3, 8, 8)


def vectors():
    return torch.nn.Linear(3, 2), lambda batch=1: torch.zeros(batch, 3)


@pytest.mark.parametrize("pooled", [True, False])
def test_each_eye_is_an_item_and_bright_pixels_are_tinted(pooled):
    frame = np.zeros((48, 128, 3), np.uint8)
    frame[:, 64:] = 255  # the right eye is white
    prepared = Model().prepare(Cell(batch=4), "cpu")
    call = FrameCall(prepared=prepared, eyes=2, pooled=pooled)
    (result,) = call([frame])
    white, black = (1 - 0.45) / 0.225, -0.45 / 0.225
    np.testing.assert_allclose(prepared.inputs[:2].mean((1, 2, 3)), [black, white], rtol=1e-4)
    assert (prepared.inputs[2:] == 0).all()
    assert (result[:, :64] == 0).all() and (result[:, 64:] == (147, 227, 172)).all()
    assert set(call.clock.take()) == {"upload", "preprocess", "infer", "download", "postprocess"}


def test_pools_keep_their_buffers():
    frame = np.zeros((48, 64, 3), np.uint8)
    for pooled in (True, False):
        call = FrameCall(prepared=Model().prepare(Cell(batch=1), "cpu"), pooled=pooled)
        call([frame])
        first = dict(call._kept)
        call([frame])
        same = [call._kept[name] is tensor for name, tensor in first.items()]
        assert len(same) == 5 and same == [pooled] * 5


def test_rows_of_formats_and_scenarios(tmp_path):
    clips = [made_clip(item, tmp_path, frames=3) for item in (SMALL, STEREO)]
    settings = ClipSettings(
        scenarios=("single", "multi"),
        pools=(True, False),
        load=Load(frames=10, batch=4),
    )
    rows = list(measure_clips(Model(), clips, settings))
    assert [(row.clip, row.eyes, row.scenario, row.pools) for row in rows] == [
        (name, eyes, scenario, pools)
        for name, eyes in (("small", 1), ("eyes", 2))
        for scenario in ("single", "multi")
        for pools in (True, False)
    ]
    for row in rows:
        assert (row.outcome, row.frames, tuple(row.shares)) == ("ok", 10, PHASES)
        assert sum(row.shares.values()) == pytest.approx(1) and row.fps > 0
    assert rows[2].batch == pytest.approx(10 / 3)


def test_models_without_images_or_that_raise_and_damaged_clips_are_rows(tmp_path):
    clip = made_clip(SMALL, tmp_path, frames=2)
    other = TorchModel(name="v", factory=Factory(use="tests.lab.test_clips:vectors", settings={}), weights="none")
    (row,) = measure_clips(other, [clip], ClipSettings())
    assert row.outcome == "unsupported" and "images" in row.why
    other = TorchModel(name="s", factory=Factory(use="tests.lab.test_clips:stops", settings={}), weights="none")
    (row,) = measure_clips(other, [clip], ClipSettings())
    assert row.outcome == "error" and "this model stops" in row.why
    (tmp_path / "broken.mp4").write_bytes(clip.path.read_bytes()[:100])
    broken = BenchClip(path=tmp_path / "broken.mp4", format=SMALL)
    (row,) = measure_clips(Model(), [broken], ClipSettings())
    assert row.outcome == "error" and row.why and row.latency_ms is None
    with pytest.raises(InputError) as error:
        clip_of_file(tmp_path / "broken.mp4", 1)
    assert error.value.code == "FK-BENCH-CLIP"


def test_the_command_takes_files_and_refuses_unknown_scenarios(tmp_path):
    path = made_clip(STEREO, tmp_path, frames=2).path
    options = ClipOptions(clip=str(path), stereo=True, scenario="offline,server", clip_frames=12, streams=2, rate=1e6)
    cells, files = CellOptions(device="cpu", size="32"), BenchFiles(out=tmp_path / "out", target="p50<1000000")
    bench_clips(Console(quiet=True), ["tests.lab.test_clips:bright"], cells, options, files)
    assert section_ids(tmp_path / "out" / "index.html") == ["clips", "targets"]
    stats = json.loads((tmp_path / "out" / "profile_stats.json").read_text())
    assert [(target["placement"], target["verdict"]) for target in stats["targets"]] == [
        ("server, batch 4, size 32, fp32", "met"),
        ("offline, batch 4, size 32, fp32", "met"),
    ]
    rows = stats["extra"]["clips"]
    assert [(row["scenario"], row["eyes"], row["outcome"]) for row in rows] == [
        ("server", 2, "ok"),
        ("offline", 2, "ok"),
    ]
    assert stats["findings"] == []
    with pytest.raises(ConfigError) as error:
        clip_settings(ClipOptions(clip="4k", scenario="burst"), cells)
    assert error.value.code == "FK-BENCH-SCENARIO"


def bench_small(tmp_path, *words):
    """The exit code, or the code of a mistake, of a bench of a small clip."""
    path = tmp_path / "small.mp4"
    path = path if path.exists() else made_clip(SMALL, tmp_path, frames=2).path
    command = [
        "bench",
        "tests.lab.test_clips:bright",
        "--clip",
        str(path),
        "--device",
        "cpu",
        "--size",
        "32",
        "--quiet",
    ]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out"), *words])
    return getattr(done.exception, "code", None) if isinstance(done.exception, ConfigError) else done.exit_code


def test_a_clip_that_misses_its_target_ends_with_the_code_of_the_gate(tmp_path):
    assert bench_small(tmp_path, "--target", "p50<100000") == 0
    assert bench_small(tmp_path, "--target", "p50<0.001") == 1


def test_a_target_has_as_many_frames_as_it_needs(tmp_path):
    """A p99 needs 500: without a number of frames they are measured, and a smaller number is a mistake."""
    assert bench_small(tmp_path, "--target", "p99<100000") == 0
    (row,) = json.loads((tmp_path / "out" / "profile_stats.json").read_text())["extra"]["clips"]
    assert row["frames"] == 500 and row["latency_ms"]["p99"] is not None
    assert bench_small(tmp_path, "--target", "1080p60", "--clip-frames", "499") == "FK-BENCH-TARGET"


def test_clips_are_kept_and_compared_as_models_are(tmp_path):
    base, history = tmp_path / "base.json", tmp_path / "runs.jsonl"
    assert bench_small(tmp_path, "--save", str(base), "--history", str(history), "--clip-frames", "50") == 0
    for side, ms in (("before", 10.0), ("worse", 20.0)):  # times of a busy machine may be too few to tell
        figures = json.loads(base.read_text())
        for row in figures["extra"]["clips"]:
            values = [ms + 0.01 * (i % 7) for i in range(50)]
            row["latency_ms"] |= {"median": ms, "p50": ms, "mean": ms, "values": values}
        (tmp_path / f"{side}.json").write_text(json.dumps(figures))
    (name,) = json.loads(history.read_text())["cells"]
    assert name == "tests.lab.test_clips:bright, small.mp4, single, batch 1, size 32, fp32"
    words = ["bench", "--out", str(tmp_path / "new"), "--quiet", "--against"]
    for other, code in (("worse.json", 1), ("before.json", 0)):
        found = [str(tmp_path / other), *words[1:], str(tmp_path / "before.json"), "--fail-if", "p50>+50%"]
        assert CliRunner().invoke(app, ["bench", *found]).exit_code == code
    assert bench_small(tmp_path, "--against", str(base), "--fail-if", "p50>+100000%", "--clip-frames", "50") == 0
    few = bench_small(tmp_path, "--against", str(base), "--fail-if", "p50>+1%", "--clip-frames", "39")
    assert few == "FK-BENCH-TARGET", "it could never fail for sure: an interval needs 40"
    assert "against" in section_ids(tmp_path / "out" / "index.html")
