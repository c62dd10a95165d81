"""The report as one file, made from an output alone.

Its times are those of the run with the most work, or of a requested one.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import DamagedError
from framekiln.contract.output_names import ERRORS, FRAMES, REPORT, RUN_RECORD
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Stage
from framekiln.export.pictures import read_rules
from framekiln.output.object_store import Store
from framekiln.output.parquet import optional
from framekiln.profiling import run_profile as runs
from framekiln.reporting.html import summary
from framekiln.reporting.html.gallery.findings import Findings, choose_frames
from framekiln.reporting.html.gallery.gallery import gallery, step_samples
from framekiln.reporting.html.gallery.thumbnails import image_store, thumbnails
from framekiln.reporting.html.recorded import timeline
from framekiln.reporting.html.tables import MOST_GROUPS, ErrorGroup, error_groups, frames_of, table_views
from framekiln.reporting.kit.pages import render_page
from framekiln.reporting.kit.texts import count, duration, moment, number
from framekiln.reporting.plan_facts import left_out, rebuild, recorded_changes
from framekiln.reporting.table_rows import find_table
from framekiln.runtime.check.mending import expected_tables
from framekiln.runtime.run.progress import FINISHED
from framekiln.runtime.run.record import read_run_record

NAME = REPORT
_NEEDED = (
    *("arguments", "decode", "figures", "files", "input", "machines", "output", "processor", "profile_name"),
    *("files_done", "python", "run", "seconds", "started", "state", "steps", "system", "versions", "written"),
)  # keys of run.json that the page needs


def write_report(store: Store, run: str | None = None) -> str:
    """Write the report on an output, with the times of one run, and return its URL.

    Raises ConfigError: no run has computed anything there, or its run.json is unreadable. Raises OutputError: that run
    has no records.
    """
    record = read_run_record(store, _NEEDED)
    store.write(NAME, render(store, record, run).encode("utf-8", "replace"))
    return store.url(NAME)


def render(store: Store, record: Mapping[str, Any], run: str | None = None) -> str:
    """Return the page; equal outputs give equal pages. Raises DamagedError: a table lacks a step's columns."""
    groups, stages, timed = error_groups(store), rebuild(record["steps"]), timed_run(store, record, run)
    profile = timed["profile"]
    needed = [*KEYS, "media_type", "time_s"]
    expected = {name: optional(schema, needed) for name, schema in expected_tables(stages).items()}
    frames = {name: find_table(store, name, schema).rows for name, schema in expected.items()}[FRAMES]
    tables = table_views(store, stages)
    values = {
        "record": record,
        "profile": profile,
        **summary.continuation(store, record),
        "outcome": summary.outcome(record, frames, groups),
        "left_out": left_out(record.get("skipped") or (), len(record["steps"])),
        "fetching": summary.fetching_command(record),
        "differences": recorded_changes(record),
        "facts": summary.facts(record, store, frames, groups),
        "recommendation": summary.recommendation(profile),
        "timed": timed,
        "requested": run is not None,
        "output": store.root,
        **_draw_images(store, record, groups, stages),
        "phases": summary.phase_shares(profile),
        "recorded": timeline.recorded_run(store, timed["name"]),
        "error_groups": groups[:MOST_GROUPS],
        "more_error_groups": groups[MOST_GROUPS:],
        "tables": tables,
        "sheets": [table for table in tables if table["sheets"]],
        "found": summary.found(store, tables, stages),
        "missing_code": [name for name in record["steps"] if name not in stages],
        "errors_url": store.url(ERRORS),
        "run_url": store.url(RUN_RECORD),
        "command": summary.command(record),
        "steps": summary.steps_table(record),
        **_read_script(),
    }
    return render_page("report.html", values | {"summary": summary, "lanes": timeline})


def _draw_images(
    store: Store, record: Mapping[str, Any], groups: Sequence[ErrorGroup], stages: Mapping[str, Stage]
) -> dict[str, Any]:
    frames = find_table(store, FRAMES)
    picks, found = choose_frames(store, frames, stages)
    every = sorted({*picks, *found})
    images = thumbnails(store, [*(pick.key for pick in every), *frames_of(groups)], read_rules(record))
    findings = Findings(store, [pick for pick in every if pick.key in images], stages)
    return {
        "picks": picks,
        "tiles": gallery(picks, images, findings, stages),
        "samples": step_samples(every, images, findings, stages),
        **image_store(images),
    }


def _read_script() -> dict[str, str]:
    """Return the page's script, and its Content-Security-Policy: only its own images, styles and script."""
    text = (files("framekiln.reporting") / "templates" / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
    policy += "base-uri 'none'; form-action 'none'"
    return {"script": Markup(text), "policy": policy}  # noqa: S704 - our own file


def timed_run(store: Store, record: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    """Return the run to show: the requested one, else the one with the most seconds of work.

    `figures` and `profile` have run.json's form. `others`: the other runs with records, most work first. The run in
    run.json is shown if another's records are missing or damaged. Raises OutputError: there is no such run, or it has
    no rows.
    """
    own, work = runs.run_of(store, record), runs.read_work(store)
    name = runs.choose_run(store, wanted) if wanted is not None else runs.most_work(work) or own
    found: dict[str, Any] = {}
    if name is not None and (name != own or (name in work and record["state"] != FINISHED)):
        with suppress(*(() if wanted else (DamagedError,))):  # samples of its machines may be damaged
            rooms, ran = runs.stored_rooms(record, name), work.get(name)
            profile = runs.profile_of(store, name, runs.targets_of(record), rooms) if ran else None
            if ran is None or profile is None:
                raise runs.missing_rows(store, name)
            found = {"figures": {step.step: step.totals.to_dict() | {"errors": None} for step in profile.steps}}
            found |= {"profile": profile.to_dict(), "began": ran.began}
            found |= {"speed": _describe_speed(ran.frames, ran.ended - ran.began)}
    if not found:
        name, figures = own, record["figures"]
        speed = _describe_speed((figures.get(DECODE) or {}).get("rows", 0), record["seconds"])
        stored = record.get("throughput") or {}  # without a verdict before any packet, and of a running or killed run
        found = {"figures": figures, "profile": stored if "verdict" in stored else {}}
        found |= {"began": datetime.fromisoformat(record["started"]).timestamp()}
        found |= {"speed": speed and f"{speed}, start-up included"}
    others = sorted((run for run in work.values() if run.name != name), key=lambda run: -run.busy)
    summaries = [
        f"{run.name}: {moment(run.began)}, {count(run.frames, 'frame')} decoded, {duration(run.busy)} of work"
        for run in others
    ]
    missing = runs.missing_note(found["profile"].get("lost") or {})
    found |= {"name": name, "is_last": name == own, "others": others, "summaries": summaries, "missing": missing}
    return found | {"started": moment(found["began"])}


def _describe_speed(frames: int, seconds: float) -> str:
    if not frames or not seconds:
        return ""
    return f"{count(frames, 'frame')} in {duration(seconds)}: {number(frames / seconds)} a second"
