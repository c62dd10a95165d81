"""The report's figures, by run.json: the change to try, rates and phases, the outcome, and how to run it again."""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from markupsafe import Markup

from framekiln.contract.errors import UserError
from framekiln.contract.output_names import FRAMES
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.planning.sample import PERCENTILE_RULE
from framekiln.profiling.records import INSIDE
from framekiln.reporting.html.recorded.activity import OTHER
from framekiln.reporting.html.tables import ErrorGroup
from framekiln.reporting.kit.texts import (
    MISSING,
    Column,
    TextTable,
    cell,
    count,
    duration,
    moment,
    number,
    numbers,
    share,
    words,
)
from framekiln.reporting.plan_facts import chosen_rows, fetching
from framekiln.reporting.table_rows import find_table, sample
from framekiln.runtime.run.progress import FINISHED, unfinished
from framekiln.runtime.run.request import recorded_inputs
from framekiln.weights.resolver import default_lock


def outcome(record: Mapping[str, Any], frames: int, groups: Sequence[ErrorGroup]) -> tuple[str, str]:
    """Return the numbers of frames and errors in a sentence, and its tone: good, mixed or bad."""
    cut = record["state"] != FINISHED
    files = record["files_done" if cut else "files"] - (record.get("passed_over") or 0)
    unread = sum(group["whole_files"] for group in groups if group["step"] == DECODE)
    inside = sum(group["rows"] - group["whole_files"] for group in groups if group["step"] == DECODE)
    failed = sum(group["rows"] for group in groups if group["step"] != DECODE)
    if cut and not files:
        return "No file is finished yet.", "mixed"
    if not frames:
        return f"No frame came out of {count(files, 'file')}; the errors say why.", "bad"
    if not groups:
        so_far = "So far all" if cut else "All"
        return f"{so_far} went well: {count(frames, 'frame')} from {count(files, 'file')}, no error.", "good"
    parts = [f"{count(unread, 'file')} could not be read"] if unread else []
    parts += [f"{count(inside, 'error')} inside files that were read"] if inside else []
    parts += [f"steps failed {number(failed)} {'time' if failed == 1 else 'times'}"] if failed else []
    good = f"{count(frames, 'frame')} from {files - unread:,} of {count(files, 'file')}"
    return f"{good}; {'; '.join(parts)}.", "mixed"


def found(store: Store, tables: Sequence[Mapping[str, Any]], stages: Mapping[str, Stage]) -> str:
    """Return the steps' findings, as in "85 faces, 2 people; frames: 3 black. No light jumps."; empty without any."""
    totals = {**tables[0]["found"], **{table["name"]: table["rows"] for table in tables[1:]}}
    things = [thing for stage in stages.values() for thing in stage.finds if thing[0] in totals]
    some = ", ".join(count(totals[key], one, many) for key, one, many in things if totals[key])
    none = ", no ".join(many for key, _, many in things if not totals[key])
    told = [some] * bool(some)
    for stage in stages.values():
        if type(stage).summarize is not Stage.summarize:
            rows, scale = sample(store, find_table(store, FRAMES), ["height", "width", *stage.outputs.names])
            told += stage.summarize(rows, scale) if len(rows) else []
    return " ".join([f"{'; '.join(told)}."] * bool(told) + [f"No {none}."] * bool(none))


def facts(record: Mapping[str, Any], store: Store, frames: int, groups: Sequence[ErrorGroup]) -> dict[str, str]:
    """Return the facts of the run by label."""
    errors = sum(group["rows"] for group in groups)
    nodes = record["machines"]
    cpus, gpus = (sum(node.get(key, 0) for node in nodes) for key in ("cpus", "gpus"))
    names = sorted(set(record.get("gpu_names") or ())) if len(nodes) == 1 else []  # GPUs of the driver's machine
    size = count(round(cpus), "core") + (f", {count(round(gpus), 'GPU')}" if gpus else ", no GPU")
    size += f" ({', '.join(names)})" if gpus and names else ""
    many = f"{len(nodes):,} machines, " if len(nodes) > 1 else ""
    memory = f", {number(record['memory_gb'])} GB" if record.get("memory_gb") else ""  # memory of the driver's machine
    return {
        "Input": ", ".join(map(str, recorded_inputs(record))),
        "Output": store.root,
        "Profile": record["profile_name"],
        "Steps": ", ".join(record["steps"]),
        "Started": moment(datetime.fromisoformat(record["started"]).timestamp()),
        "Took": duration(record["seconds"]),
        "Files": number(record["files"]),
        **({"Passed over": count(passed, "file") + ", not media"} if (passed := record.get("passed_over")) else {}),
        "Frames": number(frames),
        **({"Chosen": "; ".join(chosen_rows(record["chosen"]))} if record.get("chosen") else {}),
        "Errors": number(errors) if errors else "none",
        "Machine": f"{many}{size}{memory}; {record['processor']}",
    }


def continuation(store: Store, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's values about an unfinished run, and the command that continues it."""
    if (cut := unfinished(store, record)) is None:
        return {"unfinished": None}
    written = moment(datetime.fromisoformat(str(cut.record.get("written") or record["written"])).timestamp())
    return {"unfinished": cut, "written": written, "continue": command(cut.record)}


def command(record: Mapping[str, Any]) -> str:
    """Return the Python call or the shell command of the run."""
    if call := record.get("call"):
        return str(call)
    sources = [str(source) for source in recorded_inputs(record)]
    words = [str(word) for word in record["arguments"]] or ["run", *sources, str(record["output"])]
    if words[0].startswith("-") or words[0] in sources:
        words = ["run", *words]
    change = f"cd {shlex.quote(record['folder'])} && " if record.get("folder") else ""  # paths may be relative to it
    return change + shlex.join(["framekiln", *words])


def fetching_command(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return how to add the left-out steps: a sentence, and the command that fetches and runs again."""
    if not (record.get("skipped") and record.get("fetch")):
        return "", ""
    return f"{fetching(record.get('fetch_mb') or 0.0)}:", f"{record['fetch']} && {command(record)}"


def steps_table(record: Mapping[str, Any]) -> TextTable:
    """Return the class, settings and place of each step, and its weights with their licences."""
    listed = record.get("pipeline", {}).get("models", {})
    licences = {name: str(entry["licence"]) for name, entry in listed.items()}
    with suppress(UserError, OSError):
        licences |= {name: entry.licence for name, entry in default_lock().items()}

    items = []
    for name, step in record["steps"].items():
        weights = (f"{one} ({licences.get(one, 'licence unknown')})" for one in step.get("weights") or ())
        place = step["placement"]
        cores = f"{number(place['cpus'])} {'core' if place['cpus'] == 1 else 'cores'}"
        gpus = f" and {number(place['gpus'])} GPU" if place["gpus"] else ""
        where = f"{place['device']}, {count(place['workers'], 'worker')} of {cores}{gpus}"
        items.append({**step, "name": name, "weights": ", ".join(weights) or MISSING, "where": where})
    columns = (
        words("Step", "name", "step"),
        words("Class", "use", "code"),
        Column("Version", "version"),
        words("Settings", lambda step: json.dumps(step["settings"], ensure_ascii=False), "code"),
        words("Where", "where"),
        words("Weights", "weights"),
    )
    return TextTable(title="Settings of each step", columns=columns, items=items)


_SPENT = ("busy", "starved", "held")  # shares of the time of a step's processes


def phase_shares(profile: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return each step's phase shares from run.json's `throughput`, 0 to 1, in drawing order."""
    shares = {}
    for name, step in (profile.get("steps") or {}).items():
        seconds = {OTHER if phase == "other" else phase: float(value) for phase, value in step["phases"].items()}
        whole = sum(seconds.values()) or 1.0
        shares[name] = {phase: seconds[phase] / whole for phase in (*INSIDE, OTHER) if seconds.get(phase, 0) > 0}
    return shares


def phase_names(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the phases that occur in any step, in drawing order."""
    return [phase for phase in (*INSIDE, OTHER) if any(phase in by_phase for by_phase in shares.values())]


def recommendation(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason and the change to try, a sentence each; both empty if the run kept no records."""
    if not (advice := profile.get("verdict")):
        return "", ""
    change = str(advice["change"])
    return f"{advice['others']}{advice['reason']}.", f"{change[:1].upper()}{change[1:]}." if change else ""


def targets_table(targets: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return the targets of a run.json with their measurements."""
    signs = {"met": "✓", "not met": "✗", "not measured": "?"}
    verdict = words("Verdict", lambda one: f"{signs.get(one['verdict'], '')} {one['verdict']}".strip())
    columns = words("Figure", "figure"), Column("Target", "aim"), Column("Measured", "value"), verdict
    return TextTable(title="Targets of the profile", columns=columns, items=targets)


def rates_table(figures: Mapping[str, Any], profile: Mapping[str, Any]) -> TextTable:
    """Return each step's work from `figures` of a run.json, and how its processes spent their time."""
    busy = sum(step["busy_s"] for step in figures.values())
    steps, slowest = profile.get("steps") or {}, profile.get("verdict", {}).get("step")
    parts = {name: step["busy_s"] / (busy or 1) for name, step in figures.items()}
    items = [{**figures[name], "name": name, "own": steps.get(name), "part": part} for name, part in parts.items()]
    tag = Markup('{}<span class="tag">bottleneck</span>')
    columns = (
        words("Step", lambda one: tag.format(one["name"]) if one["name"] == slowest else one["name"], "step"),
        *numbers({"Rows": "rows", "Rows/s": "rows_per_s", "Steady": "own.steady_rows_per_s"}),
        Column("Time a row", "ms_per_row", show=_write_ms),
        Column("Workers", "workers"),
        Column("Set-up", lambda one: one["set_up_s"] or None, show=duration),
        Column("Errors", "errors"),
        Column("Busy / waits / hands on", "own", show=lambda own: " / ".join(map(share, map(own.get, _SPENT)))),
        words("Share of busy time", lambda one: str(one["part"]), "meter"),
        Column("", "part", show=share),
    )
    return TextTable(title="Throughput of each step", columns=columns, items=items)


def phases_table(profile: Mapping[str, Any], phases: Mapping[str, Mapping[str, float]]) -> TextTable:
    """Return the share of each phase in each step's packets."""
    seconds = {name: step["seconds"] for name, step in profile["steps"].items()}
    items = [{"name": name, "seconds": seconds[name], "shares": parts} for name, parts in phases.items()]
    columns = (
        words("Step", lambda one: cell(one["name"], 80), "step"),
        Column("Time", "seconds", show=duration),
        *numbers({kind: f"shares.{kind}" for kind in phase_names(phases)}, show=share),
    )
    return TextTable(title="Phases of each step", columns=columns, items=items)


def calls_table(profile: Mapping[str, Any]) -> TextTable:
    """Return times of calls and rows, with GPU memory and use if any step had some."""
    without = {"call_ms": None, "row_ms": None}  # the times of a step that records no calls
    items = [{**step, "name": name, **({} if step["calls"] else without)} for name, step in profile["steps"].items()]
    columns = (
        words("Step", lambda one: cell(one["name"], 80), "step"),
        Column("Calls", "calls"),
        *numbers({"Call p50": "call_ms.0", "p95": "call_ms.1", "p99": "call_ms.2"}, show=_write_ms),
        *numbers({"Row p50": "row_ms.0", "p95": "row_ms.1", "p99": "row_ms.2"}, show=_write_ms),
        Column("Retries", "retries"),
        Column("VRAM peak", "vram_peak_gb", show=lambda gb: f"{cell(gb)} GB", optional=True),
        Column("GPU use", "gpu_use", show=share, optional=True),
    )
    note = "" if all(step["call_ms"][2] for step in profile["steps"].values()) else PERCENTILE_RULE
    return TextTable(title="Calls of each step", columns=columns, items=items, note=note).shown


def _write_ms(value: float) -> str:
    return duration(value / 1000)
