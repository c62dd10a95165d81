"""Progress of downloads in a log: a line at the start, and for large files one for each quarter."""

from __future__ import annotations

import io

from rich.console import Console

from framekiln.cli.commands.fetch import downloads


def test_a_log_gets_a_line_for_each_download_and_for_each_quarter_of_a_large_one():
    console = Console(file=io.StringIO(), width=80)
    with downloads(console) as watch:
        for done in range(0, 1_000_001, 10_000):
            watch("small", done, 1_000_000)
        for done in range(0, 600_000_001, 1_000_000):
            watch("large", done, 600_000_000)
        watch("resumed", 350_000_000, 600_000_000)
    assert console.file.getvalue().splitlines() == [
        "Fetching small (1.0 MB)",
        "Fetching large (600.0 MB)",
        *(f"large: {part}% of 600.0 MB" for part in (25, 50, 75, 100)),
        "Fetching resumed (600.0 MB)",
        "resumed: 50% of 600.0 MB",
    ]
