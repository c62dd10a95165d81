"""Runs that are disturbed on purpose, and what must hold after the same command was given again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pyarrow as pa

from framekiln.contract.output_names import COLUMNS, FRAMES
from framekiln.output.object_store import Store
from tests.support.media.collections_factory import clip, photo

ROOT = Path(__file__).resolve().parents[2]
STEPS = {
    "crc": "tests.toys:Checksum",
    "near": "tests.toys:Neighbours",
    "slow": "tests.faults.stages:Slow",
    "count": "tests.toys:Count",
    "all": "tests.toys:Everything",
}
CLIPS, PHOTOS, LENGTH = 8, 4, 24
FRAME_COUNT = CLIPS * LENGTH + PHOTOS
FIRST_PASS = 3  # steps


def collection(folder: Path) -> Path:
    """Eight clips and four photos, each a unit of its own."""
    for i in range(CLIPS):
        clip(folder / f"clip{i}.png", 100 + i, LENGTH)
    for i in range(PHOTOS):
        photo(folder / f"photo{i}.png", i)
    return folder


def pipeline(path: Path, steps: Mapping[str, str] = STEPS, **settings: str) -> Path:
    """A pipeline file; `settings` are YAML by step."""
    lines = [f"  {name}: {{use: '{use}', with: {settings.get(name, '{}')}}}" for name, use in steps.items()]
    path.write_text("\n".join(["steps:", *lines, ""]))
    return path


def start(*words: object) -> subprocess.Popen[str]:
    """A run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "framekiln", "run", *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def finish(*words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run."""
    return ended(start(*words))


def ended(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The same of one that was started."""
    out, err = run.communicate(timeout=250)
    return run.returncode, out, err


def parts(out: Path) -> dict[Path, int]:
    """The parts there are, with the time of their last change."""
    result = {}
    for path in (out / COLUMNS).glob("*/[!.]*.parquet"):
        result[path] = path.stat().st_mtime_ns
    return result


def wait_for(condition: Callable[[], object], run: subprocess.Popen[str], seconds: float = 200) -> bool:
    """Return whether a condition became true during a run."""
    deadline = time.monotonic() + seconds
    while not condition():
        if run.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def kill(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """Take the driver's power away; what of its Ray may still write for a while.

    Ray's two agents, which touch no output, go on for a minute: they try to tell the head, dead too, of the death.
    """
    family = [process for process in psutil.Process(run.pid).children(recursive=True) if not _is_agent(process)]
    run.kill()
    run.communicate()
    return family


def wait_for_end(family: list[psutil.Process]) -> float:
    """Seconds until the last of some processes has ended; fails where one does not."""
    start = time.monotonic()
    alive = psutil.wait_procs(family, timeout=60)[1]
    assert not [process for process in alive if not _is_agent(process)], alive  # one may have changed its name
    return time.monotonic() - start


def _is_agent(process: psutil.Process) -> bool:
    try:
        return "agent" in " ".join(process.cmdline()).lower()
    except psutil.NoSuchProcess:
        return False


def tables(out: Path) -> dict[str, pa.Table]:
    """Every table of an output in one order of rows."""
    store = Store(str(out))
    result = {}
    for folder in (FRAMES, "counts", "everything"):
        read = [store.read_table(f"{folder}/{name}") for name in store.names(folder)]
        if read:
            whole = pa.concat_tables(read)
            keys = [name for name in ("media_id", "frame_index") if name in whole.column_names]
            result[folder] = whole.sort_by([(key, "ascending") for key in keys]) if keys else whole
    return result


def leftovers(out: Path) -> list[str]:
    """Temporary files, probes and leases."""
    return [path.name for path in out.rglob("*") if path.name.startswith((".tmp-", "run.lease", "run.probe"))]


def check_whole(out: Path, undisturbed: Path) -> None:
    """Every row once, as without the disturbance, and nothing besides."""
    result, expected = tables(out), tables(undisturbed)
    assert expected[FRAMES].num_rows == FRAME_COUNT
    assert result.keys() == expected.keys()
    for name, table in expected.items():
        assert result[name].equals(table), name
    assert leftovers(out) == []
