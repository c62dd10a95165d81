"""Packets larger than Ray's object store make a run slower, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from framekiln.contract.output_names import FRAMES
from tests.faults.chaos import ROOT
from tests.support.runs.engine_factory import table

pytestmark = pytest.mark.chaos

STORE = 80_000_000  # bytes; Ray takes no fewer than 75 million
RUN = """
import sys, ray
ray.init(address="local", num_cpus=2, object_store_memory={store}, include_dashboard=False, log_to_driver=False)
from framekiln.cli.app import main
main(["run", "--input", "in", "--output", "out", "--pipeline", "pipeline.yaml", "--profile", "profile.yaml"])
"""


def test_packets_larger_than_the_object_store(tmp_path):
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    truth = {}
    for i in range(4):  # of 108 MB each, more than the store holds of one
        tile = rng.integers(0, 255, (100, 100, 3), np.uint8)
        picture = np.tile(tile, (60, 60, 1))
        Image.fromarray(picture).save(tmp_path / "in" / f"{i}.png", compress_level=1)
        truth[f"{i}.png"] = zlib.crc32(picture)
    (tmp_path / "pipeline.yaml").write_text(
        "steps: {crc: {use: 'tests.toys:Checksum'}, has: {use: 'tests.toys:Big'}}\n"
    )
    (tmp_path / "profile.yaml").write_text("steps: {has: {device: cuda, gpus: 0.0, cpus: 0.5}}\n")  # travels there
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(store=STORE)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(tmp_path / "out", FRAMES).to_pylist()
    assert {row["media_id"]: row["crc"] for row in rows} == truth
    assert {row["media_id"]: row["again"] for row in rows} == truth
