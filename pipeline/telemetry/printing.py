"""What the command line prints: the plan, what is left to do, the summary at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.assembly import frames_schema
from pipeline.columns import SOURCE, describe
from pipeline.failure import DECODE
from pipeline.order import Order
from pipeline.plan import Plan
from pipeline.reasons import Changes, Outlook
from pipeline.second import ERRORS, FRAMES
from pipeline.stage import Scope
from pipeline.step import Step
from pipeline.storage import Store
from pipeline.telemetry.amounts import counted
from pipeline.waves import Wave
from pipeline.work import Result, Work

_NAMED = 3  # files that a sentence names


def _table(*columns: str, title: str | None = None, right: Sequence[str] = ()) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def print_plan(console: Console, plan: Plan) -> None:
    """Step by step: where it runs and whether its weights are at hand; then what it reads, adds and drops."""
    heads = ("step", "scope", "device", "cpus", "gpus", "workers", "batch", "weights")
    where = _table(*heads, right=("cpus", "gpus", "workers", "batch"))
    what = _table("step", "columns read", "columns added", "columns dropped here")
    decode = plan.decode
    where.add_row(DECODE, "", "cpu", f"{decode.cpus:g}", "0", str(decode.workers), "", "")
    what.add_row(DECODE, "files", ", ".join([*SOURCE.names, *decode.columns]), "")
    for step in plan.steps:
        where.add_row(*_where(step))
        what.add_row(step.name, *_what(step))
    console.print(where)
    console.print(what)
    for number, wave in enumerate(plan.waves, 1):
        which = f"First pass, wave {number} of {len(plan.waves)}" if len(plan.waves) > 1 else "First pass"
        console.print(f"{which}, processes by | : {' | '.join(_processes(wave))}", highlight=False)
    print_reasons(console, plan)
    print_absent(console, plan)


def _processes(wave: Wave) -> list[str]:
    """The steps that share each process of a wave, the one that decodes first."""
    own = [[step.name for step in group if not step.recalled] for group in wave.groups()]
    return [" + ".join(([DECODE] if i == 0 else []) + names) for i, names in enumerate(own)]


def print_reasons(console: Console, plan: Plan) -> None:
    """Why steps are laid out on the card as they are, a line each."""
    for reason in plan.reasons:
        console.print(f"GPU: {reason}", highlight=False, soft_wrap=True, markup=False)


def print_absent(console: Console, plan: Plan) -> None:
    """Steps that are left out for want of weights, or would be, a line each; then the command that gets the weights."""
    word = "Left out" if plan.skipped else "Left out by --missing-weights skip"
    random = {step.name for step in plan.steps if step.dummies}
    for name, reason in plan.absent.items():
        if name not in random:
            console.print(f"{word}: {name}: {reason}", highlight=False, soft_wrap=True, markup=False)
    if plan.absent and plan.fetch:
        console.print(f"To get what is missing: {plan.fetch}", highlight=False, soft_wrap=True, markup=False)


def _print_dummies(console: Console, plan: Plan) -> None:
    if plan.dummies:
        said = f"Random weights in {', '.join(plan.dummies)}: the figures are of use, the results mean nothing."
        console.print(said, style="bold red", highlight=False, soft_wrap=True, markup=False)


def _where(step: Step) -> list[str]:
    placement, scope = step.placement, step.stage.scope
    batch = str(placement.batch_rows) if scope is Scope.ROW else f"1 {scope.value}"
    other = "random" if step.name in step.dummies else "missing"
    weights = [f"{name} ({'at hand' if name in step.weights else other})" for name in step.stage.weights]
    numbers = [f"{placement.cpus:g}", f"{placement.gpus:g}", str(placement.workers), batch]
    return [step.name, scope.value, placement.device, *numbers, ", ".join(weights)]


def _what(step: Step) -> list[str]:
    adds = step.stage.outputs.names if step.first_pass else [f"{name}/" for name in step.stage.tables]
    dropped = [name for name in step.drops if name not in step.stage.outputs.names]  # its own never enter a packet
    return [", ".join(step.stage.inputs), ", ".join(adds), ", ".join(dropped)]


def tame(text: str) -> str:
    """A text with names of files in it, as it can be shown on a terminal: what is not printable is written out.

    An escape sequence in a name could recolour, hide or rewrite what stands there.
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def print_work(console: Console, work: Work, order: Order) -> None:
    """What was found, and what of it is left to do."""
    files = sum(media.size for media in work.media)
    said = f"{counted(len(work.media), 'file')} ({files / 1e6:,.1f} MB) in {order.input}; profile {order.profile_name}"
    console.print(tame(said), highlight=False, soft_wrap=True, markup=False)
    if work.plan.skipped:
        print_absent(console, work.plan)
    _print_dummies(console, work.plan)
    if work.left and len(work.plan.waves) > 1:
        print_reasons(console, work.plan)
    if not work.left:
        console.print("Nothing is left to do: every step has finished with every file.", highlight=False)
    elif len(work.pending) < len(work.units):
        share = f"{len(work.units) - len(work.pending)} of {len(work.units)} units of files"
        console.print(f"An earlier run has finished {share}; going on with the rest.", highlight=False)
    for why, steps in _by_reason(work).items():
        console.print(f"To do: {', '.join(steps)}: {why}", highlight=False, soft_wrap=True, markup=False)
    if work.left and order.address is None:
        console.print("Starting Ray on this machine, which takes some seconds.", highlight=False)


def _by_reason(work: Work) -> dict[str, list[str]]:
    """Steps by why there is something to do; none where that is all new files, as in a first run."""
    found: dict[str, list[str]] = {}
    if not work.left or all(one.why == work.files.words() for one in work.outlook):
        return found
    for one in work.outlook:
        if one.why:
            found.setdefault(one.why, []).append(one.step)
    return found


def print_outlook(console: Console, changes: Changes, outlook: Sequence[Outlook]) -> None:
    """Step by step, how many files a run into an output would do, and why."""
    table = _table("step", "files done", "files to do", "why", right=("files done", "files to do"))
    for one in outlook:
        table.add_row(one.step, f"{one.done:,}", f"{one.todo:,}", escape(one.why))
    console.print(table)
    if changes.removed:
        console.print(gone(changes.removed), highlight=False, soft_wrap=True, markup=False)


def gone(removed: Sequence[str], *, dropped: bool = False) -> str:
    """A sentence about files of earlier runs that are not there any more."""
    named = ", ".join([*removed[:_NAMED], *(["..."] if len(removed) > _NAMED else [])])
    one = len(removed) == 1
    said = f"{len(removed):,} {'file' if one else 'files'} of earlier runs {'is' if one else 'are'} gone ({named})"
    rows = "their rows were dropped from the tables" if dropped else "a run drops their rows from the tables"
    return f"{said}; {rows.replace('their', 'its') if one else rows}."


def print_result(console: Console, store: Store, result: Result) -> None:
    """The summary at the end."""
    figures = result.figures.steps
    if figures:
        heads = ("step", "rows", "rows/s", "ms/row", "workers", "set-up s", "errors")
        table = _table(*heads, right=heads[1:])
        for name, step in figures.items():
            cost = f"{1000 * step.busy / step.rows:.1f}" if step.rows else "-"
            table.add_row(
                name,
                f"{step.rows:,}",
                f"{step.rate:,.1f}",
                cost,
                str(len(step.workers)),
                f"{step.set_up:.1f}",
                str(step.failures),
            )
        console.print(table)
    errors = sum(result.errors.values())
    reasons = ", ".join(f"{count} {kind}" for kind, count in result.errors.most_common())
    console.print(
        tame(f"{counted(result.frames, 'frame')} in {store.url(FRAMES)}, {result.seconds:.1f} s"),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    if removed := result.work.files.removed:
        console.print(gone(removed, dropped=True), highlight=False, soft_wrap=True, markup=False)
    _print_dummies(console, result.work.plan)
    if errors:
        said = tame(f"{counted(errors, 'error')} in {store.url(ERRORS)}: {reasons}")
        console.print(said, highlight=False, soft_wrap=True, markup=False)


def print_columns(console: Console, plan: Plan) -> None:
    """Every column of every table, with its unit and meaning."""
    schemas = {FRAMES: frames_schema(plan)}
    for step in plan.second:
        schemas |= {name: table.schema for name, table in step.stage.tables.items()}
    for name, schema in schemas.items():
        table = _table("column", "type", "unit", "meaning", title=f"{name}/")
        for row in describe(schema):
            table.add_row(row["name"], row["type"], row["unit"], row["description"])
        console.print(table)
