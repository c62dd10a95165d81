"""The head and the foot of the report: the run, its outcome, its tables, and how to run it again."""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from framekiln.contract.errors import UserError
from framekiln.contract.output_names import FRAMES
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.reporting.html.tables import ErrorGroup
from framekiln.reporting.kit.texts import MISSING, Column, TextTable, count, duration, moment, number, words
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
        "Machine": _describe_machine(record),
    }


def _describe_machine(record: Mapping[str, Any]) -> str:
    nodes = record["machines"]
    cpus, gpus = (sum(node.get(key, 0) for node in nodes) for key in ("cpus", "gpus"))
    names = sorted(set(record.get("gpu_names") or ())) if len(nodes) == 1 else []  # GPUs of the driver's machine
    size = count(round(cpus), "core") + (f", {count(round(gpus), 'GPU')}" if gpus else ", no GPU")
    size += f" ({', '.join(names)})" if gpus and names else ""
    many = f"{len(nodes):,} machines, " if len(nodes) > 1 else ""
    memory = f", {number(record['memory_gb'])} GB" if record.get("memory_gb") else ""  # memory of the driver's machine
    return f"{many}{size}{memory}; {record['processor']}"


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

    def name_weights(step: Mapping[str, Any]) -> str:
        names = step.get("weights") or ()
        return ", ".join(f"{name} ({licences.get(name, 'licence unknown')})" for name in names) or MISSING

    columns = (
        words("Step", "name", "step"),
        words("Class", "use", "code"),
        Column("Version", "version"),
        words("Settings", lambda step: json.dumps(step["settings"], ensure_ascii=False), "code"),
        words("Where", _describe_place),
        words("Weights", name_weights),
    )
    items = [{**step, "name": name} for name, step in record["steps"].items()]
    return TextTable(title="Settings of each step", columns=columns, items=items)


def _describe_place(step: Mapping[str, Any]) -> str:
    place = step["placement"]
    cores = f"{number(place['cpus'])} {'core' if place['cpus'] == 1 else 'cores'}"
    gpus = f" and {number(place['gpus'])} GPU" if place["gpus"] else ""
    return f"{place['device']}, {count(place['workers'], 'worker')} of {cores}{gpus}"
