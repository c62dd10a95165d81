"""`framekiln predict`: estimate a run on other GPUs from a run on any machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.api.options import PredictOptions
from framekiln.cli.console import ERRORS
from framekiln.cli.options import Json
from framekiln.contract.user_files import check_file
from framekiln.reporting.terminal.console import WIDE, print_line

Html = Annotated[str | None, Option("--html", metavar="FILE", help="Write the whole estimate to a page.")]


def predict(
    output: Annotated[str, Argument(help="Folder or URL of a run's output, on a CPU or a GPU.")],
    options: PredictOptions,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Estimate a run on other GPUs: whether it fits, its upper bound, its expected rate, and its costs.

    The host's part comes from the run. The GPU's part is counted; nothing is measured on that GPU.
    """
    from framekiln.api.predict import choose
    from framekiln.reporting.kit.pages import write_asked
    from framekiln.reporting.predict import print_prediction, render

    if html:
        check_file("--html", Path(html))
    found = choose(output, options, (lambda _: None) if json_ else partial(print_line, Console()))
    if json_:
        print(json.dumps(asdict(found), indent=2))
    else:
        screen = Console()
        if not screen.is_terminal:  # a file has room for all GPUs as one table
            screen.width = max(screen.width, WIDE)
        print_prediction(screen, found)
    if html:
        print_line(ERRORS if json_ else Console(), f"Page: {write_asked(html, render(found))}")
