"""Texts of the commands: the plan, the remaining work, the summary of a run, and its columns."""

import difflib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import Any

from rich.console import Console

from framekiln.contract.columns import describe
from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.reporting import plan_facts
from framekiln.reporting.kit.texts import Column, TextTable, count, duration, numbers, words
from framekiln.reporting.terminal.console import print_line, print_table, print_wrapped, show_table
from framekiln.runtime.run.change_report import Changes, Outlook
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult, Workload
from framekiln.runtime.second_pass.second_pass import frames_schema

_MOST_NAMED = 3  # files in a sentence


def print_plan(console: Console, plan: Plan) -> None:
    """Print each step's placement, the columns it reads, adds and drops, its weights, and the processes."""
    for table in plan_tables(plan):
        show_table(console, table, title=False)
    for number, wave in enumerate(plan.waves, 1):
        title = f"First pass, wave {number} of {len(plan.waves)}" if len(plan.waves) > 1 else "First pass"
        processes = " | ".join(" + ".join(names) for names in plan_facts.wave_processes(wave))
        print_wrapped(console, f"{title}, processes by | : {processes}")
    for step in (each for each in plan.steps if each.condition.is_given):
        print_line(console, f"{step.name} computes rows {step.condition.words}")
    print_changes(console, plan)
    print_absent(console, plan)


_PLACES = (
    *(words(title, key) for title, key in {"step": "name", "scope": "scope", "device": "device"}.items()),
    *numbers({"cpus": "cpus", "gpus": "gpus", "workers": "workers"}, show=lambda value: f"{value:g}"),
    Column("batch", lambda step: "" if "use" not in step else str(step["batch"] or f"1 {step['scope']}")),
)
_FIGURES = (  # of pairs of a step's name and its figures
    words("step", "0"),
    Column("rows", "1.rows"),
    Column("rows/s", "1.rate"),
    Column("ms/row", lambda pair: 1000 * pair[1].busy / pair[1].rows if pair[1].rows else "-"),
    Column("workers", lambda pair: len(pair[1].workers)),
    Column("set-up s", "1.set_up", show="{:.1f}".format),
    Column("errors", "1.failures"),
)
_OUTLOOK = (
    words("step", "step"),
    *numbers({"files done": "done", "files to do": "todo"}),
    Column("rows to do", "rows", show="{:,}".format, optional=True),
    words("why", "why"),
)


def plan_tables(plan: Plan) -> list[TextTable]:
    """Return each step's placement, and the columns that it reads, adds and drops, with its weights."""
    steps = [plan_facts.decode_facts(plan.decode), *map(plan_facts.step_facts, plan.steps)]
    columns = words("step", "name"), words("columns and weights", _name_columns)
    return [
        TextTable(title="Steps", columns=_PLACES, items=steps),
        TextTable(title="Columns and weights", columns=columns, items=steps),
    ]


def outlook_table(outlook: Sequence[Outlook]) -> TextTable:
    """Return for each step how many files a run would process, and why."""
    return TextTable(title="Work", columns=_OUTLOOK, items=outlook)


def _name_columns(step: Mapping[str, Any]) -> str:
    names = {key: ", ".join(step.get(key, ())) for key in ("reads", "adds", "drops")}
    names["weights"] = ", ".join(f"{name} ({state})" for name, state in step.get("weights", {}).items())
    return "\n".join(f"{key} {listed}" for key, listed in names.items() if listed)


def print_changes(console: Console, plan: Plan, *, reasons: bool = True) -> None:
    """Print the reasons for the layout on the GPUs, and differences from the profile and the pipeline, one a line."""
    for line in (*(f"GPU: {reason}" for reason in plan.reasons if reasons), *plan_facts.plan_changes(plan)):
        print_wrapped(console, line)


def print_absent(console: Console, plan: Plan) -> None:
    """Print the steps without weights, one a line, then the command that fetches the weights."""
    title = "Left out" if plan.skipped else "Weights are missing"
    random = {step.name for step in plan.steps if step.dummies}
    for name, reason in plan.absent.items():
        if name not in random:
            print_wrapped(console, f"{title}: {name}: {reason}")
    if plan.absent and plan.fetch:
        print_line(console, f"To fetch what is missing: {plan.fetch}")


def _print_random(console: Console, plan: Plan) -> None:
    if plan.dummies:
        warning = f"Random weights in {', '.join(plan.dummies)}: timings are valid, results mean nothing."
        print_line(console, warning, style="bold red")
        for sentence in plan.void:
            print_line(console, f"Void: {sentence}", style="red")


def print_work(console: Console, work: Workload, request: RunRequest) -> None:
    """Print the input of a run and the remaining work."""
    size = sum(media.size for media in work.media) / 1e6
    files = count(len(work.media), "file", zero="0")
    print_line(console, f"{files} ({size:,.1f} MB) in {', '.join(request.inputs)}; profile {request.profile_name}")
    if sentence := plan_facts.left_out(work.plan.skipped, len(work.plan.steps), tense="are"):
        print_wrapped(console, sentence)
    if work.leaving and work.left:
        names = ", ".join(work.leaving)
        sentence = (
            f"Columns of {names} leave frames/, since this run lacks these steps; "
            "a run with them restores the columns at no cost."
        )
        print_wrapped(console, sentence)
    _print_random(console, work.plan)
    if work.left:
        print_changes(console, work.plan, reasons=len(work.plan.waves) > 1)
    else:
        print_line(console, "Nothing is left to do: every step has finished every file.")
    if work.left and len(work.pending) < len(work.units):
        left = sum(len(unit.media) for unit in work.pending)
        done = max(0, len(work.media) - left)
        print_line(console, f"{count(done, 'file')} {'is' if done == 1 else 'are'} done; {left:,} left.")
    steps: dict[str, list[str]] = defaultdict(list)
    is_new = all(outlook.why == work.files.reason() for outlook in work.outlook)  # new files are the only reason
    for outlook in work.outlook if work.left and not is_new else ():
        steps[outlook.why].append(outlook.step)
    for reason in filter(None, steps):
        print_line(console, f"To do: {', '.join(steps[reason])}: {reason}")


def print_outlook(console: Console, changes: Changes, outlook: Sequence[Outlook]) -> None:
    """Print for each step how many files a run would process, and why."""
    show_table(console, outlook_table(outlook), title=False)
    if changes.removed:
        print_line(console, removed_files(changes.removed))


def removed_files(names: Sequence[str], *, dropped: bool = False) -> str:
    """Return a sentence on missing files of earlier runs; `dropped`: their rows were dropped already."""
    named = ", ".join([*names[:_MOST_NAMED], *(["..."] if len(names) > _MOST_NAMED else [])])
    single = len(names) == 1
    files = f"{count(len(names), 'file')} of earlier runs {'is' if single else 'are'} gone ({named})"
    rows = "its rows" if single else "their rows"
    change = f"{rows} were dropped from the tables" if dropped else f"a run drops {rows} from the tables"
    return f"{files}; {change}."


def print_result(console: Console, store: Store, result: RunResult) -> None:
    """Print the summary of a run."""
    steps = result.figures.steps
    if worked := [(name, step) for name, step in steps.items() if step.rows or step.failures]:
        show_table(console, TextTable(title="Steps", columns=_FIGURES, items=worked), title=False)
    if idle := [name for name in steps if name not in dict(worked)]:
        print_line(console, f"No row to compute in {', '.join(idle)}.")
    frames = count(result.frames, "frame", zero="0")
    print_line(console, f"{frames} in {quote(store.url(FRAMES))}, {duration(result.seconds)}")
    for sentence in plan_facts.chosen_rows(result.chosen):
        print_line(console, sentence)
    if result.absent_rows:
        print_line(console, f"{count(result.absent_rows, 'row')} of --rows: no such file or frame in this run")
    if removed := result.work.files.removed:
        print_line(console, removed_files(removed, dropped=True))
    _print_random(console, result.work.plan)
    for note in result.figures.notes.values():
        print_line(console, note)
    if result.passed_over:
        print_line(console, f"{count(result.passed_over, 'file')} passed over, not media")
    if errors := sum(result.errors.values()):
        kinds = ", ".join(f"{number} {kind}" for kind, number in result.errors.most_common())
        print_line(console, f"{count(errors, 'error')} in {quote(store.url(ERRORS))}: {kinds}")
    plan = result.work.plan
    if sentence := plan_facts.left_out(plan.skipped, len(plan.steps)):
        print_wrapped(console, sentence)
        if plan.fetch:
            print_line(console, f"{plan_facts.fetching(plan.fetch_mb)}: {plan.fetch}")


Columns = Sequence[Mapping[str, Any]]
"""Name, type, unit and description of each column of a table, or of those that a step adds to it."""


def schemas(plan: Plan) -> dict[str, Columns]:
    """Return every column by table."""
    tables = {FRAMES: frames_schema(plan)}
    for step in plan.second:
        tables |= {name: table.schema for name, table in step.stage.tables.items()}
    return {name: describe(schema) for name, schema in tables.items()}


def columns_by_step(plan: Plan) -> dict[str, dict[str, Columns]]:
    """Return the columns that each step writes, by table, with decoding as the first step."""
    tables = schemas(plan)
    added = {step.name: set(step.table_schema.names) for step in plan.first}
    others = {name for names in added.values() for name in names}
    by_step: dict[str, dict[str, Columns]] = {
        name: {FRAMES: [column for column in tables[FRAMES] if column["name"] in names]}
        for name, names in {DECODE: {column["name"] for column in tables[FRAMES]} - others, **added}.items()
    }
    return by_step | {step.name: {name: tables[name] for name in step.stage.tables} for step in plan.second}


def named_columns(plan: Plan, name: str) -> dict[str, Columns]:
    """Return the columns of a step or a table, or a single column with its step, by table.

    Raises ConfigError: no step, table or column has this name.
    """
    by_step = columns_by_step(plan)
    known: dict[str, dict[str, Columns]] = {table: {table: columns} for table, columns in schemas(plan).items()}
    known |= by_step
    for step, tables in by_step.items():
        for table, columns in tables.items():
            for column in columns:
                own: dict[str, Columns] = {table: [{**column, "step": step}]}
                known |= {f"{table}/{column['name']}": own, column["name"]: known.get(column["name"], own)}
    if (name := name.rstrip("/")) not in known:
        near = difflib.get_close_matches(name, known, n=1)
        listed = " `framekiln columns` lists them; own steps need --pipeline FILE."
        found = f" Did you mean {near[0]!r}?" if near else listed
        raise ConfigError(f"There is no step, table or column {name!r}.{found}", code="FK-UNKNOWN-STEP")
    return known[name]


def print_overview(console: Console, plan: Plan) -> None:
    """Print the names of the columns of each step, a few lines each."""
    by_step = columns_by_step(plan)
    steps = {step.name for step in plan.second}
    rows = [(name, _join_names(tables[FRAMES])) for name, tables in by_step.items() if name not in steps]
    print_table(console, ("step", f"adds to {FRAMES}/"), rows)
    rows = [
        (name, "\n".join(f"{table}/: {_join_names(columns)}" for table, columns in by_step[name].items()))
        for name in by_step
        if name in steps
    ]
    if rows:
        print_table(console, ("step", "writes tables"), rows)
    print_line(console, "Types, units and meanings: framekiln columns STEP, or framekiln columns --all")


def print_columns(console: Console, tables: Mapping[str, Columns]) -> None:
    """Print every column of some tables with its type, unit and meaning."""
    for name, columns in tables.items():
        print_line(console, f"{name}/")
        for column in columns:
            unit = "".join(f", {text}" for text in (column["unit"], column.get("step")) if text)
            print_wrapped(console, f"{column['name']}  {column['type']}{unit}", indent=2)
            print_wrapped(console, column["description"], indent=6)


def _join_names(columns: Collection[Mapping[str, Any]]) -> str:
    return ", ".join(column["name"] for column in columns)
