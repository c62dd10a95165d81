"""Tables of the terminal: words stay whole in 80 columns, and what does not fit becomes a list."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from framekiln.reporting.terminal.console import fitting_widths, print_line, print_table, print_wrapped
from tests.support.machine.command_line import command

TERMINAL = {"COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}


def printed(width, heads, rows, **style):
    console = Console(width=width, file=io.StringIO())
    print_table(console, heads, rows, **style)
    return console.file.getvalue()


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=6), st.integers(1, 200))
def test_widths_are_between_the_least_and_the_natural_one_and_fit(columns, room):
    least, natural = [low for low, _ in columns], [low + more for low, more in columns]
    widths = fitting_widths(natural, least, room)
    if sum(least) > room:
        assert widths is None
    else:
        assert sum(widths) <= room
        assert all(low <= width <= high for low, width, high in zip(least, widths, natural, strict=True))
        assert sum(natural) > room or widths == natural


ROWS = [["lighting_steadiness", "colour_temperature, light_strength", "12"], ["flow", "frame_224", "7"]]


@pytest.mark.parametrize("width", [50, 60, 80])
def test_words_are_never_broken(width):
    shown = printed(width, ("step", "columns", "rows"), ROWS, right=("rows",))
    assert {"lighting_steadiness", "colour_temperature,", "light_strength"} <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= width and "step" in shown


def test_a_table_that_does_not_fit_is_a_list():
    shown = printed(30, ("step", "columns", "rows"), [*ROWS, ["shots", "", "3"]], title="Steps")
    assert shown == (
        "Steps\nlighting_steadiness\n  columns: colour_temperature,\n  light_strength\n  rows: 12\n"
        "flow\n  columns: frame_224\n  rows: 7\nshots\n  rows: 3\n"
    )


def test_whole_columns_keep_their_lines():
    assert "a b c d" in printed(20, ("x", "y"), [["a b c d", "one two three four"]], whole=("x",))


def test_long_sentences_are_wrapped_on_a_terminal_only():
    sentence = "lighting and flow and pose run here"
    for terminal, expected in ((True, "lighting and\nflow and pose\nrun here\n"), (False, sentence + "\n")):
        console = Console(width=14, file=io.StringIO(), force_terminal=terminal, color_system=None)
        print_wrapped(console, sentence)
        assert console.file.getvalue() == expected


@pytest.mark.parametrize("profile", ["cpu-only", "gpu-24gb"])
def test_the_plan_breaks_no_name_in_80_columns(profile):
    words = ("plan", "--profile", profile)
    steps = json.loads(command(*words, "--json").stdout)["steps"]
    shown = re.sub(r"\x1b\[\d*m", "", command(*words, **TERMINAL).stdout)
    names = {step["name"] for step in steps}
    for step in steps:
        names |= {*step["adds"], *step["reads"], *step.get("drops", ()), *step.get("weights", ())}
    assert names <= set(re.split(r"[\s,]+", shown))
    lines = [line for line in shown.splitlines() if not line.startswith("To fetch what is missing: framekiln fetch ")]
    assert max(map(len, lines)) <= 80, "only a command stays in one line, to be copied"


def test_a_line_has_no_keys_of_urls_and_no_escape_sequences():
    console = Console(file=io.StringIO(), width=160)
    print_line(console, "Report: s3://id:secret@bucket/out/\x1b[31m.html")
    assert console.file.getvalue() == "Report: s3://bucket/out/\\x1b[31m.html\n"
