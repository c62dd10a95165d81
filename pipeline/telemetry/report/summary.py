"""The head and the foot of the report: what was run, how it went, how to read its tables, how to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.errors import UserError
from pipeline.failure import DECODE
from pipeline.second import FRAMES
from pipeline.storage import Store
from pipeline.telemetry.report.faults import Fault, unread_files
from pipeline.telemetry.report.words import count, duration, number
from pipeline.weights import default_lock

_OPTIONS = ("-i", "--input", "-o", "--output", "-p", "--profile")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How it went."""

    text: str
    tone: str  # good, mixed or bad


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What a step was: enough to have it again."""

    name: str
    use: str
    version: int
    settings: str  # JSON
    where: str
    weights: tuple[str, ...]  # name and licence


def verdict(record: Mapping[str, Any], frames: int, found: Sequence[Fault]) -> Verdict:
    """One line: how many frames came out, and what did not."""
    files, unread = record["files"], unread_files(found)
    lost = sum(fault.rows - fault.whole_files for fault in found if fault.step == DECODE)
    failed = sum(fault.rows for fault in found if fault.step != DECODE)
    if not frames:
        return Verdict(text=f"No frame came out of {count(files, 'file')}; the errors say why.", tone="bad")
    if not found:
        return Verdict(
            text=f"All went well: {count(frames, 'frame')} from {count(files, 'file')}, no error.", tone="good"
        )
    parts = [f"{count(unread, 'file')} could not be read"] if unread else []
    parts += [f"{count(lost, 'stretch', 'stretches')} of frames could not be decoded"] if lost else []
    parts += [f"steps failed {number(failed)} {'time' if failed == 1 else 'times'}"] if failed else []
    good = f"{count(frames, 'frame')} from {files - unread:,} of {count(files, 'file')}"
    return Verdict(text=f"{good}; {'; '.join(parts)}.", tone="mixed")


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Steps that were left out for want of weights, and why; the command that gets the weights."""

    reasons: Mapping[str, str]
    command: str


def absent(record: Mapping[str, Any]) -> Absent:
    """What --missing-weights skip left out; nothing in records of versions that had no such option."""
    return Absent(reasons=record.get("skipped") or {}, command=record.get("fetch") or "")


def random_steps(record: Mapping[str, Any]) -> str:
    """Steps that ran on random weights, in words; empty where none did."""
    return ", ".join(record.get("dummies") or ())


def facts(record: Mapping[str, Any], store: Store, frames: int, found: Sequence[Fault]) -> dict[str, str]:
    """What was run, by label."""
    errors = sum(fault.rows for fault in found)
    return {
        "Input": record["input"],
        "Output": store.root,
        "Profile": record["profile_name"],
        "Steps": ", ".join(record["steps"]),
        "Started": _date(record["started"]),
        "Took": duration(record["seconds"]),
        "Files": number(record["files"]),
        "Frames": number(frames),
        "Errors": number(errors) if errors else "none",
        "Machine": _machine(record),
    }


def _date(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%-d %B %Y, %H:%M UTC")


def _machine(record: Mapping[str, Any]) -> str:
    nodes = record["machines"]
    cpus, gpus = (sum(node.get(key, 0) for node in nodes) for key in ("cpus", "gpus"))
    names = sorted(set(record.get("gpu_names") or ())) if len(nodes) == 1 else []  # of the driver's machine
    size = count(round(cpus), "core") + (f", {count(round(gpus), 'GPU')}" if gpus else ", no GPU")
    size += f" ({', '.join(names)})" if gpus and names else ""
    many = f"{len(nodes):,} machines, " if len(nodes) > 1 else ""
    memory = f", {number(record['memory_gb'])} GB" if record.get("memory_gb") else ""  # of the driver's machine
    return f"{many}{size}{memory}; {record['processor']}"


def command(record: Mapping[str, Any]) -> str:
    """The shell command that runs it again; of a run that no such command started, one that does the same work."""
    words = [str(word) for word in record["arguments"]]
    if words and words[0].startswith("-"):
        words = ["run", *words]
    if words[:1] != ["run"] or not any(word.split("=")[0] in _OPTIONS for word in words):
        words = ["run", "--profile", record["profile_name"], "--input", record["input"], "--output", record["output"]]
        words += _chosen(record)
    there = f"cd {shlex.quote(record['folder'])} && " if record.get("folder") else ""  # paths may be relative to it
    return there + shlex.join(["framemill", *words])


def _chosen(record: Mapping[str, Any]) -> list[str]:
    """What run.json says was chosen beyond the two files, as options; of a pipeline file it does not know the name."""
    said = record.get("choices") or {}
    shard = record.get("shard")
    values = {
        "stages": ",".join(said.get("stages") or ()),
        **{name: said.get(name) for name in ("device", "weights_dir", "max_errors", "vram_cap", "calibration")},
        "missing_weights": said.get("missing_weights") if said.get("missing_weights") != "fail" else None,
        "accept_license": said.get("accept_license"),
        **(said.get("decode") or {}),
        "limit": record.get("limit"),
        "shard": f"{shard[0] + 1}/{shard[1]}" if shard else None,
        "by_content": record.get("by_content"),
    }
    words = [word for setting in said.get("settings") or () for word in ("--set", str(setting))]
    for name, value in values.items():
        if value:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def one_liners(store: Store) -> dict[str, str]:
    """Python to read the frames, by library; paths are quoted so that they can be pasted."""
    every = store.url(f"{FRAMES}/*.parquet")
    sql = f"SELECT media_type, count(*) AS frames FROM {_sql(every)} GROUP BY ALL"  # noqa: S608 - shown, not run
    return {
        "DuckDB": f"import duckdb; print(duckdb.sql({sql!r}))",
        "Polars": f"import polars as pl; print(pl.scan_parquet({every!r}).group_by('media_type').len().collect())",
        "pandas": f"import pandas as pd; print(pd.read_parquet({store.url(FRAMES)!r}).describe())",
    }


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def steps(record: Mapping[str, Any]) -> list[StepFacts]:
    """Each step's class, settings, place and weights."""
    licences = _licences()
    return [_facts(name, step, licences) for name, step in record["steps"].items()]


def _facts(name: str, step: Mapping[str, Any], licences: Mapping[str, str]) -> StepFacts:
    place = step["placement"]
    where = f"{place['device']}, {count(place['workers'], 'worker')} of {_cores(place['cpus'])}"
    return StepFacts(
        name=name,
        use=step["use"],
        version=step["version"],
        settings=json.dumps(step["settings"], ensure_ascii=False),
        where=where + (f" and {number(place['gpus'])} GPU" if place["gpus"] else ""),
        weights=tuple(
            f"{item} ({licences.get(item, 'licence unknown')})" for item in map(str, step.get("weights") or ())
        ),
    )


def _cores(cpus: float) -> str:
    """A number of cores, which may be broken."""
    return f"{number(cpus)} {'core' if cpus == 1 else 'cores'}"


def _licences() -> dict[str, str]:
    try:
        return {name: entry.licence for name, entry in default_lock().items()}
    except (UserError, OSError):
        return {}
