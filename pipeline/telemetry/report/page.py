"""The report as one file: it shows what lies in the output, and asks for no other file and no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.errors import OutputError
from pipeline.second import ERRORS, FRAMES
from pipeline.storage import Store
from pipeline.telemetry.profiles import told
from pipeline.telemetry.report import summary
from pipeline.telemetry.report.charts import histogram
from pipeline.telemetry.report.faults import faults
from pipeline.telemetry.report.gallery import gallery
from pipeline.telemetry.report.rebuilt import rebuild
from pipeline.telemetry.report.rows import look
from pipeline.telemetry.report.tables import frames_view, table_views
from pipeline.telemetry.report.throughput import run_speed, throughput
from pipeline.telemetry.report.words import count, number, share, shorten
from pipeline.telemetry.run_file import NAME as RUN_FILE
from pipeline.telemetry.run_file import read_run_file

NAME = "report.html"
_SECRET = re.compile(r"(?<=://)[^/\s@<>&\"'#;]+@")  # user and key in the URL of a bucket


def write_report(store: Store) -> str:
    """Write the report on an output, from what lies in it; returns where it is.

    Raises:
        OutputError: no run has finished there.
    """
    try:
        record = read_run_file(store)
    except FileNotFoundError as error:
        raise OutputError(
            f"There is no {RUN_FILE} in {store.root!r}, so no run has finished there; check the path."
        ) from error
    store.write(NAME, render(store, record).encode("utf-8", "replace"))
    return store.url(NAME)


def render(store: Store, record: Mapping[str, Any]) -> str:
    """The page; the same output gives the same page."""
    frames, found, stages = look(store, FRAMES), faults(store), rebuild(record["steps"])
    facts = {
        "record": record,
        "verdict": summary.verdict(record, frames.rows, found),
        "facts": summary.facts(record, store, frames.rows, found),
        "absent": summary.absent(record),
        "random_steps": summary.random_steps(record),
        "speed": run_speed(record),
        "gallery": gallery(store, record, frames, stages),
        "throughput": throughput(record["figures"], told(record)),
        "faults": found,
        "tables": [frames_view(store, stages), *table_views(store, stages)],
        "gone": [name for name in record["steps"] if name not in stages],
        "errors_url": store.url(ERRORS),
        "run_url": store.url(RUN_FILE),
        "command": summary.command(record),
        "one_liners": summary.one_liners(store),
        "steps": summary.steps(record),
    }
    return _SECRET.sub("", _environment().get_template("report.html").render(facts))


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
    made.globals |= {"count": count, "share": share, "histogram": histogram}
    return made
