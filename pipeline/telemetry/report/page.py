"""The report as one file: it shows what lies in the output, and asks for no other file and no network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.errors import OutputError
from pipeline.second import ERRORS, FRAMES
from pipeline.stage import Stage
from pipeline.storage import Store
from pipeline.telemetry.profiles import told
from pipeline.telemetry.report import summary
from pipeline.telemetry.report.charts import histogram
from pipeline.telemetry.report.curves import curves, key, moments
from pipeline.telemetry.report.faults import SHOWN, Fault, faults, keys_of
from pipeline.telemetry.report.findings import Findings
from pipeline.telemetry.report.gallery import gallery
from pipeline.telemetry.report.lanes import look as kind_look
from pipeline.telemetry.report.phases import names as phase_names
from pipeline.telemetry.report.phases import phases
from pipeline.telemetry.report.picks import by_key, choose, telling
from pipeline.telemetry.report.rebuilt import rebuild
from pipeline.telemetry.report.recommendation import recommendation
from pipeline.telemetry.report.recorded import recorded
from pipeline.telemetry.report.rows import look
from pipeline.telemetry.report.samples import samples
from pipeline.telemetry.report.script import policy, script
from pipeline.telemetry.report.tables import frames_view, table_views
from pipeline.telemetry.report.throughput import run_speed, throughput
from pipeline.telemetry.report.thumbnails import thumbnails
from pipeline.telemetry.report.words import count, number, share, shorten
from pipeline.telemetry.run_file import NAME as RUN_FILE
from pipeline.telemetry.run_file import read_whole

NAME = "report.html"
_NEEDED = (
    *("arguments", "decode", "figures", "files", "input", "machines", "output", "processor", "profile_name"),
    *("python", "seconds", "started", "steps", "system", "versions"),
)  # keys of run.json that the page is made of
_SECRET = re.compile(r"(?<=://)[^/\s@<>&\"'#;]+@")  # user and key in the URL of a bucket
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # HTML has none, and an editor may obey them


def write_report(store: Store) -> str:
    """Write the report on an output, from what lies in it; returns where it is.

    Raises:
        OutputError: no run has finished there.
        ConfigError: its run.json cannot be read.
    """
    try:
        record = read_whole(store, _NEEDED)
    except FileNotFoundError as error:
        raise OutputError(
            f"There is no {RUN_FILE} in {store.root!r}, so no run has come to its end there: check the path, or run "
            "the same command again, which goes on where it stopped."
        ) from error
    store.write(NAME, render(store, record).encode("utf-8", "replace"))
    return store.url(NAME)


def render(store: Store, record: Mapping[str, Any]) -> str:
    """The page; the same output gives the same page."""
    found, stages, figures = faults(store), rebuild(record["steps"]), told(record)
    speeds, drawn = throughput(record["figures"], figures), recorded(store, record)
    facts = {
        "record": record,
        **_head(store, record, found),
        "advice": recommendation(figures, "" if speeds.idle else speeds.verdict),
        "speed": run_speed(record),
        **_pictures(store, record, found, stages),
        "throughput": speeds,
        "phases": phases(figures),
        "recorded": drawn,
        "faults": found[:SHOWN],
        "more_faults": found[SHOWN:],
        "tables": [frames_view(store, stages), *table_views(store, stages)],
        "gone": [name for name in record["steps"] if name not in stages],
        "errors_url": store.url(ERRORS),
        "run_url": store.url(RUN_FILE),
        "command": summary.command(record),
        "one_liners": summary.one_liners(store),
        "steps": summary.steps(record),
        "script": script(),
        "policy": policy(),
    }
    html = _SECRET.sub("", _environment().get_template("report.html").render(facts))
    return _CONTROL.sub("\ufffd", html)


def _head(store: Store, record: Mapping[str, Any], found: Sequence[Fault]) -> dict[str, Any]:
    frames = look(store, FRAMES).rows
    return {
        "verdict": summary.verdict(record, frames, found),
        "facts": summary.facts(record, store, frames, found),
        "absent": summary.absent(record),
        "random_steps": summary.random_steps(record),
    }


def _pictures(
    store: Store, record: Mapping[str, Any], found: Sequence[Fault], stages: Mapping[str, Stage]
) -> dict[str, Any]:
    """All that is drawn on frames; each picture is in the page once, under its `ids`."""
    frames = look(store, FRAMES)
    chosen = choose(store, frames)
    every = sorted({pick.key: pick for pick in (*telling(store, frames, stages), *chosen)}.values(), key=by_key)
    pictures = thumbnails(store, [*(pick.key for pick in every), *keys_of(found)], record["decode"])
    findings = Findings(store, [pick for pick in every if pick.key in pictures], stages)
    return {
        "gallery": gallery(chosen, pictures, findings, stages),
        "samples": samples(every, pictures, findings, stages),
        "pictures": pictures,
        "ids": {key: f"p{number}" for number, key in enumerate(pictures)},
    }


def _environment() -> Environment:
    """Templates that escape everything but what is marked as safe, and stop at a name that nobody gave."""
    made = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "shorten": shorten}
    made.globals |= {"count": count, "share": share, "histogram": histogram, "curves": curves, "key": key}
    made.globals |= {"moments": moments, "look": kind_look, "phase_names": phase_names}
    return made
