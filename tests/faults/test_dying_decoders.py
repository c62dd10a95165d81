"""Files that crash or hang a decoder are isolated; a video keeps the frames before that."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from pipeline.contract.output_names import ERRORS, FRAMES
from samples.make import pan, tone, write_clip
from tests.faults.chaos import ROOT
from tests.support.collections_factory import photo
from tests.support.engine_factory import table

pytestmark = pytest.mark.slow

FAULT = '''
    """Give every child process a decoder with a fault, since no known file crashes a real one."""
    import ctypes, importlib.abc, importlib.machinery, os, sys, time

    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name not in ("pipeline.media.images.photo", "pipeline.media.video.reader"):
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), break_(module))
            return spec

    def break_(module):
        if module.__name__.endswith("photo"):
            whole = module.open_photo
            def open_photo(data, *more):
                if b"crash me" in data:
                    ctypes.string_at(0)
                if b"hang me" in data:
                    time.sleep(3600)
                return whole(data, *more)
            module.open_photo = open_photo
        else:
            film = module.open_video
            def open_video(media, *more):
                source = film(media, *more)
                if "fatal" in media.media_id:
                    source = module.FrameSource(**vars(source) | {"frames": broken(source.frames)})
                return source
            module.open_video = open_video

    def broken(frames):
        for number, frame in enumerate(frames):
            if number == 21:
                os.abort()
            yield frame

    sys.meta_path.insert(0, Broken())
'''


def test_files_that_kill_decoders_are_isolated(tmp_path):
    for i in range(6):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    for number, words in ((2, b"crash me"), (4, b"hang me")):
        with (tmp_path / "in" / f"photo{number}.png").open("ab") as file:
            file.write(words)
    image = np.random.default_rng(0).integers(0, 255, (600, 800, 3), np.uint8)
    write_clip(tmp_path / "in" / "fatal.mp4", pan(image, 40), tone(1.6, 440))
    (tmp_path / "fault").mkdir()
    (tmp_path / "fault" / "sitecustomize.py").write_text(textwrap.dedent(FAULT))
    (tmp_path / "pipeline.yaml").write_text("steps: {crc: {use: 'tests.toys:Checksum'}}\n")
    (tmp_path / "profile.yaml").write_text("decode: {workers: 1, deadline_s: 3}\n")
    words = ["--pipeline", "pipeline.yaml", "--profile", "profile.yaml", "--input", "in", "--output", "out"]
    path = os.pathsep.join([str(tmp_path / "fault"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    frames = table(tmp_path / "out", FRAMES).to_pylist()
    names = ["fatal.mp4"] * 21 + [f"photo{i}.png" for i in (0, 1, 3, 5)]
    assert [row["media_id"] for row in frames] == names and all(row["crc"] is not None for row in frames)
    errors = {
        row["media_id"]: (row["kind"], row["frame_index"], row["message"])
        for row in table(tmp_path / "out", ERRORS).to_pylist()
    }
    assert errors.keys() == {"fatal.mp4", "photo2.png", "photo4.png"}
    assert errors["fatal.mp4"][:2] == ("crashed", 21) and "(SIGABRT) after 21 frames" in errors["fatal.mp4"][2]
    assert errors["photo2.png"][:2] == ("crashed", None) and "(SIGSEGV)" in errors["photo2.png"][2]
    assert "(it hung)" in errors["photo4.png"][2]
