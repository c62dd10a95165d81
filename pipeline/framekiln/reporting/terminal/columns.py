"""The columns and tables of a run on a terminal: an overview by step, and the details of some."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console

from framekiln.contract.columns import describe
from framekiln.contract.errors import check_known
from framekiln.contract.output_names import FRAMES
from framekiln.contract.row_errors import DECODE
from framekiln.planning.plan import Plan
from framekiln.reporting.terminal.console import print_line, print_table, print_wrapped
from framekiln.runtime.second_pass.second_pass import frames_schema

Columns = Sequence[Mapping[str, Any]]
"""Name, type, unit and description of each column of a table, or of those that a step adds to it."""


def schemas(plan: Plan) -> dict[str, Columns]:
    """Return every column by table."""
    tables = {FRAMES: frames_schema(plan)}
    for step in plan.second:
        tables |= {name: table.schema for name, table in step.stage.tables.items()}
    return {name: describe(schema) for name, schema in tables.items()}


def columns_by_step(plan: Plan) -> dict[str, dict[str, Columns]]:
    """Return the columns that each step writes by table, with decoding as the first step."""
    tables = schemas(plan)
    added = {step.name: set(step.table_schema.names) for step in plan.first}
    others = {name for names in added.values() for name in names}
    by_step: dict[str, dict[str, Columns]] = {
        name: {FRAMES: [column for column in tables[FRAMES] if column["name"] in names]}
        for name, names in {DECODE: {column["name"] for column in tables[FRAMES]} - others, **added}.items()
    }
    return by_step | {step.name: {name: tables[name] for name in step.stage.tables} for step in plan.second}


def named_columns(plan: Plan, name: str) -> dict[str, Columns]:
    """Return the columns of a step, else those of a table, by table.

    Raises:
        ConfigError: there is neither a step nor a table of that name.
    """
    tables = {table: {table: columns} for table, columns in schemas(plan).items()}
    known = tables | columns_by_step(plan)
    check_known(name, known, f"The pipeline has no step or table {name!r}.", code="FK-UNKNOWN-STEP")
    return known[name]


def print_overview(console: Console, plan: Plan) -> None:
    """Print the names of the columns of each step, a few lines each."""
    by_step = columns_by_step(plan)
    steps = {step.name for step in plan.second}
    rows = [(name, _names(tables[FRAMES])) for name, tables in by_step.items() if name not in steps]
    print_table(console, ("step", f"adds to {FRAMES}/"), rows)
    rows = [
        (name, "\n".join(f"{table}/: {_names(columns)}" for table, columns in by_step[name].items()))
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
            unit = f", {column['unit']}" if column["unit"] else ""
            print_wrapped(console, f"{column['name']}  {column['type']}{unit}", indent=2)
            print_wrapped(console, column["description"], indent=6)


def _names(columns: Collection[Mapping[str, Any]]) -> str:
    return ", ".join(column["name"] for column in columns)
