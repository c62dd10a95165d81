"""The report's first lines, by run.json: the change to try, targets, the rates and the phases of each step."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from framekiln.planning.sample import PERCENTILE_RULE
from framekiln.profiling.records import INSIDE
from framekiln.reporting.html.recorded.activity import OTHER
from framekiln.reporting.kit.texts import Column, TextTable, cell, duration, numbers, share, words

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
