"""The comparison for people: a sentence, `compare.html`, and a terminal view."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from framekiln.contract.store_url import StoreUrl
from framekiln.contract.user_files import expand
from framekiln.profiling.targets import Judgement
from framekiln.reporting.compare import tables
from framekiln.reporting.compare.comparison import NONE, UNKNOWN, Comparison, Pair
from framekiln.reporting.compare.facts import DIFFERENT
from framekiln.reporting.kit import pages
from framekiln.reporting.kit.texts import count, number, words
from framekiln.reporting.terminal.console import DENSE, print_line, print_wrapped, show_table

_LONGEST = 200  # characters of a file's name; file systems take 255 bytes
_MOST_NAMED = 3  # steps


def default_path(comparison: Comparison) -> str:
    """Return a file beside the first output on a disk, named by the outputs; in this folder if all are in buckets."""
    paths = [side.runs[0].path.rstrip("/") for side in comparison.sides]
    places = (StoreUrl.parse(path).inner.rstrip("/") if "://" in path else path for path in paths)
    names = [place.rpartition("/")[2] for place in places]
    file = f"compare-{'-'.join(names)}"[:_LONGEST] + ".html"
    here = next((expand(path).absolute() for path in paths if "://" not in path), None)
    return str(here.resolve().parent / file) if here else file


def render(comparison: Comparison, verdicts: Sequence[Judgement]) -> str:
    """Return the page; the same runs give the same page."""
    values = {"comparison": comparison, "verdicts": verdicts, "tables": tables, "verdict": verdict}
    sides = {}
    for side in comparison.sides:
        repeated = f", {count(len(side.runs), 'run')}" if len(side.runs) > 1 else ""
        sides[f"{side.name}{', the base' if side.name == 'A' else ''}{repeated}"] = side.paths
    return pages.render_page("compare.html", values | {"sides": sides})


def verdict(pair: Pair) -> str:
    """Return whether a side did the base's work, how its results compare, and how fast it was."""
    other = [step.step for step in pair.work if step.verdict == DIFFERENT]
    single = [step.step for step in pair.work if step.verdict.startswith("only")]
    parts = [f"other work in {_join(other)}"] if other else []
    parts += [f"{_join(single)} on one side only"] if single else []
    parts += ["other files"] if pair.files.differ else []
    work = " and ".join(parts) or "the same work on the same files"
    known = {name: drift.value for name, drift in pair.drift.items() if drift.value is not None}
    tables = [table for drift in pair.drift.values() for table in drift.tables]
    alone = max((table.only_first + table.only_second for table in tables), default=0)
    rows = "rows" if any(table.every > 1 for table in tables) else count(alone, "row")  # counted in a sample
    where = f" where both have rows, {rows} on one side only" if alone else ""
    results = "results not compared"  # tables that are empty on both sides say nothing
    if any(pair.drift[name].rows for name in known):
        most = max(known, key=lambda name: known[name])
        differ = f"results differ, most in {most} (drift {number(known[most])} of 1)"
        results = (differ if known[most] else "equal results") + where
    return f"{pair.second.name} beside {pair.first.name}: {work}; {results}; {_tell_speed(pair)}."


def _tell_speed(pair: Pair) -> str:
    """Return the rates that changed beyond chance; without intervals, only that they are unknown."""
    rates = {step: line for step, lines in pair.figures.items() for line in lines if line.name == "rate"}
    measured = {step: line for step, line in rates.items() if line.change is not None}
    changed = {step: line for step, line in measured.items() if line.difference not in (NONE, UNKNOWN, "")}
    if not measured:
        return "no rate in common"
    if not changed:
        alike = [step for step, line in measured.items() if line.difference == NONE]
        return f"no difference in speed beyond chance in {_join(alike)}" if alike else "speeds without an interval"
    ranked = sorted(changed, key=lambda step: -abs(changed[step].change or 0))
    changes = {step: changed[step].change or 0.0 for step in ranked[:_MOST_NAMED]}
    named = [f"{step} {abs(change):.0%} {'faster' if change > 0 else 'slower'}" for step, change in changes.items()]
    more = len(ranked) - len(named)
    return ", ".join(named) + (f", and {more} more with other rates" if more else "")


def _join(steps: list[str]) -> str:
    more = len(steps) - _MOST_NAMED
    return ", ".join(steps[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def print_comparison(console: Console, comparison: Comparison, *, every: bool = False) -> None:
    """Print every pair of a comparison: the differences, or with `every` all figures."""
    for pair in comparison.pairs:
        print_line(console, verdict(pair), style="bold")
    for side in comparison.sides:
        print_line(console, f"{side.name}: {side.paths}")
    for pair in comparison.pairs:
        if len(comparison.pairs) > 1:
            console.rule(f"{pair.second.name} beside {pair.first.name}")
        for note in pair.notes:
            print_line(console, f"Note: {note}")
        print_wrapped(console, f"Input: {pair.files.sentence} {tables.equal_work(pair)} {tables.equal_results(pair)}")
        figures = tables.pair_figures(pair, every=every)
        step, _, _, *values = figures.columns
        name = words("Figure", lambda one: f"{one.name}, {one.unit}" if one.unit else one.name)  # as conditions name it
        for table in (
            tables.results_table(pair, equal=every),
            tables.work_table(pair),
            tables.speeds_table(pair),
            replace(figures, columns=(step, name, *values)),
            tables.changes_table(pair),
        ):
            if table.items:
                show_table(console, table, padding=DENSE)
        for reason, steps in tables.missing_intervals(pair).items():
            print_wrapped(console, f"No interval for {', '.join(steps)}: {reason}.")
    print_wrapped(console, tables.METHOD if every else f"{tables.SIGN} --all prints every figure, as the page does.")
