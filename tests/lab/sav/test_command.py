"""`framekiln bench --sav`: files by run, and mistakes with codes."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import fields

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer import Exit

from framekiln.api.bench import BenchFiles
from framekiln.api.bench_options import CellOptions
from framekiln.cli.bench.films import bench_videos
from framekiln.cli.bench.options import SavOptions
from framekiln.contract.errors import ConfigError, InputError
from framekiln.lab.sav.layout import write_made_video
from tests.lab.report.results import section_ids
from tests.lab.sav.test_measure import Whole

FILES = {item.name for item in fields(BenchFiles)}


def run(folder, out, names=("sam2.1-tiny",), precisions="fp32", **options):
    console = Console(quiet=True)
    cells = CellOptions(device="cpu", precisions=precisions)
    files = BenchFiles(out=out, **{name: options.pop(name) for name in list(options) if name in FILES})
    bench_videos(console, names, cells, SavOptions(sav=folder, runs=1, limit_objects=1, **options), files)


def test_two_precisions_side_by_side(tmp_path, monkeypatch):
    """The tracker marks the whole frame; weights are missing, and every line says so."""
    seen = []
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.load_video_model", lambda *_: None)
    monkeypatch.setattr(
        "framekiln_stages.nets.sam2.video.Tracker", lambda _, place: seen.append(place.precision) or Whole()
    )
    folder = write_made_video(tmp_path / "made", frames=13, size=(48, 64))
    run(folder, tmp_path, precisions="fp32,bf16", prompt="box")
    with (tmp_path / "profile_summary.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["model"] for line in lines] == ["sam2.1-tiny fp32", "sam2.1-tiny bf16"]
    assert {(line["weights"], line["prompt"], line["frames"]) for line in lines} == {
        ("dummy: seeded random", "box", "13")
    }
    stats = json.loads((tmp_path / "profile_stats.json").read_text(encoding="utf-8"))
    assert section_ids(tmp_path / "index.html") == ["videos", "runs", "frames"]
    assert seen == ["fp32", "bf16"]
    assert [row["latency_ms"]["count"] for row in stats["video"]] == [12, 12]
    assert stats["video"][0]["j"] == float(lines[0]["j"]) and stats["environment"]


def test_pictures_of_masks_are_kept(tmp_path, monkeypatch):
    """Two scored frames; the mask is the whole frame, which is seen in the picture's green."""
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.load_video_model", lambda *_: None)
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.Tracker", lambda *_: Whole())
    folder = write_made_video(tmp_path / "made", frames=13, size=(480, 640))
    run(folder, tmp_path, overlays=True)
    (picture, *_) = (tmp_path / "overlays" / "sam2.1-tiny").rglob("*.jpg")
    image = np.asarray(Image.open(picture), float)
    assert image[..., 1].mean() > image[..., 0].mean() + 20


def test_what_was_measured_before_an_error_is_kept(tmp_path, monkeypatch):
    """The second model cannot be built."""

    def load(name, _):
        if name != "sam2.1-hiera-tiny":
            raise MemoryError

    monkeypatch.setattr("framekiln_stages.nets.sam2.video.load_video_model", load)
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.Tracker", lambda *_: Whole())
    folder = write_made_video(tmp_path / "made", frames=13, size=(48, 64))
    with pytest.raises(MemoryError):
        run(folder, tmp_path, names=("sam2.1-tiny", "sam2.1-large"))
    stats = json.loads((tmp_path / "profile_stats.json").read_text(encoding="utf-8"))
    assert [row["model"] for row in stats["video"]] == ["sam2.1-tiny"]


def test_targets_and_conditions_end_it_as_they_do_a_bench_of_models(tmp_path, monkeypatch):
    """12 frames after the first: a p50 needs 10, a p95 100."""
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.load_video_model", lambda *_: None)
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.Tracker", lambda *_: Whole())
    folder, base = write_made_video(tmp_path / "made", frames=13, size=(48, 64)), tmp_path / "base.json"
    run(folder, tmp_path, target="p50<100000", save=base, history=tmp_path / "runs.jsonl")
    (target,) = json.loads(base.read_text())["targets"]
    assert (target["placement"], target["verdict"]) == ("points", "met")
    for missed in ("p50<0.000001", "p95<100000"):
        with pytest.raises(Exit) as ended:
            run(folder, tmp_path, target=missed)
        assert ended.value.exit_code == 1
    for condition, code in (("ram_gb>+1000%", 0), ("ram_gb>0.0001", 1)):
        try:
            run(folder, tmp_path, against=base, fail_if=condition)
        except Exit as ended:
            assert ended.exit_code == code
        else:
            assert code == 0


@pytest.mark.parametrize(
    ("options", "error", "code"),
    [
        ({"names": ("clip-vit-b32",)}, ConfigError, "FK-SAV-MODEL"),
        ({"precisions": "int8-dynamic"}, ConfigError, "FK-SAV-PRECISION"),
        ({}, InputError, "FK-SAV-LAYOUT"),
    ],
)
def test_mistakes(tmp_path, options, error, code):
    with pytest.raises(error) as refused:
        run(tmp_path, tmp_path / "out", **options)
    assert refused.value.code == code and not (tmp_path / "out").exists()


@pytest.mark.parametrize("missing", ["timm", "torchvision"])
def test_edgetam_without_its_packages_is_refused(tmp_path, monkeypatch, missing):
    """A torchvision of another build raises when it is imported; here None in its place does."""
    monkeypatch.setattr("framekiln_stages.nets.sam2.video.is_timm_installed", lambda: missing != "timm")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ConfigError, match=missing) as refused:
        run(tmp_path, tmp_path, names=("edgetam",))
    assert refused.value.code == "FK-SAV-TIMM"
