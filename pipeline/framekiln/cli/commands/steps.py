"""`framekiln steps` and `columns`: what a pipeline computes, and its settings.

Settings of a stage come from its Config, their descriptions from comments in the source.
"""

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

from rich.console import Console
from typer import Argument, Option

from framekiln.cli.options import Json, PipelinePath, refuse_idle
from framekiln.contract.errors import check_known
from framekiln.contract.stage import Stage
from framekiln.planning import manifest
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.reporting.terminal.console import print_line, print_table
from framekiln.reporting.terminal.tables import named_columns, print_columns, print_overview, schemas

Name = Annotated[str | None, Argument(metavar="STEP", help="A step of the pipeline. [dim]Default: all.[/dim]")]
_SETTING = re.compile(r"^ *(\w+): [^#]*?(?:# *(?P<meaning>.*))?$")


def steps(name: Name = None, pipeline: PipelinePath = None, json_: Json = False) -> None:
    """List the steps of a pipeline, or the settings of one with their types, defaults and meanings."""
    stages = {step.name: (step.use, step.stage) for step in _plan(pipeline).steps}
    if name is not None:
        problem = f"The pipeline has no step {name!r} (--pipeline FILE for another one)."
        check_known(name, stages, problem, code="FK-UNKNOWN-STEP")
        stages = {name: stages[name]}
    about = {step: describe_stage(use, stage) for step, (use, stage) in stages.items()}
    if json_:
        print(json.dumps(about, indent=2, default=str))
        return
    console = Console()
    rows = [[step, one["use"], one["scope"], one["description"]] for step, one in about.items()]
    print_table(console, ("step", "class", "scope", "what it computes"), rows)
    for one in about.values() if name is not None else ():
        cells = [[key, item["type"], str(item["value"]), item["meaning"]] for key, item in one["settings"].items()]
        print_table(console, ("setting", "type", "value", "meaning"), cells)
    if name is None:
        print_line(console, "Settings of a step: framekiln steps STEP; change one with --set STEP.SETTING=VALUE.")


def columns(
    name: Annotated[
        str | None,
        Argument(metavar="STEP", help="A step, a table or a column. [dim]Default: the names of all columns.[/dim]"),
    ] = None,
    all_: Annotated[bool, Option("--all", help="Types, units and meanings of all columns.")] = False,
    pipeline: PipelinePath = None,
    json_: Json = False,
) -> None:
    """List the columns and tables that a run writes, or those of a step or table with types, units and meanings."""
    if name is not None:
        refuse_idle({"--all": all_}, "beside the name of a step, a table or a column")
    refuse_idle({"--all": all_ and json_}, "beside --json")
    plan = _plan(pipeline)
    tables = schemas(plan) if name is None else named_columns(plan, name)
    if json_:
        print(json.dumps(tables, indent=2))
    elif name is None and not all_:
        print_overview(Console(), plan)
    else:
        print_columns(Console(), tables)


def describe_stage(use: str, stage: Stage) -> dict[str, Any]:
    """Return a stage's class, scope, first line of documentation, and settings by name."""
    meanings = setting_meanings(type(stage.config))
    hints = get_type_hints(type(stage.config))  # types without their limits
    settings = {}
    for item in fields(stage.config):
        value = getattr(stage.config, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        kind = inspect.formatannotation(hints[item.name]).replace("collections.abc.", "").replace("typing.", "")
        settings[item.name] = {
            "type": re.sub(r"^Optional\[(.*)\]$", r"\1 | None", kind),
            "default": None if default is MISSING else default,
            "value": value,
            "meaning": meanings.get(item.name, ""),
        }
    description = (inspect.getdoc(type(stage)) or "").partition("\n")[0]
    return {"use": use, "scope": stage.scope.value, "description": description, "settings": settings}


def setting_meanings(config: type) -> Mapping[str, str]:
    """Return the comments above and behind each setting in a Config's source; empty without a source."""
    try:
        lines = inspect.getsource(config).splitlines()
    except (OSError, TypeError):
        return {}
    meanings: dict[str, str] = {}
    above: list[str] = []
    for line in lines:
        if line.lstrip().startswith("#"):
            above.append(line.lstrip(" #"))
        elif (match := _SETTING.match(line)) is not None:
            meanings[match[1]] = " ".join([*above, match["meaning"] or ""]).strip()
            above = []
        else:
            above = []
    return meanings


def _plan(pipeline: Any) -> Plan:
    request = manifest.read_pipeline(pipeline), manifest.ProfileFile(), PlanOptions()
    return make_plan(*request, [ROOMY], check_weights=False)
