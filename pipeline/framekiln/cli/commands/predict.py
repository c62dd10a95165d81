"""`framekiln predict`: a run on other GPUs, from a run on any machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.api.writable import check_file
from framekiln.cli.console import ERRORS
from framekiln.cli.options import Json, names
from framekiln.contract.errors import ConfigError
from framekiln.reporting.terminal.console import print_line

Inputs = Annotated[
    list[str] | None, Option("--input", "-i", help="The collection whose cost is told. Default: the run's.")
]
Calibration = Annotated[
    Path | None, Option(metavar="FILE", help="A calibration of any GPU: its steps correct the estimates.")
]
Gpus = Annotated[Path | None, Option(metavar="FILE", help="A file of GPUs instead of manifests/gpus.yaml.")]
Html = Annotated[str | None, Option("--html", metavar="FILE", help="Write all of it to a page.")]


def predict(
    output: Annotated[str, Argument(help="Folder or URL of a run's output, on a CPU or a GPU.")],
    for_: Annotated[str, Option("--for", metavar="GPU,GPU", help="GPUs of manifests/gpus.yaml. Default: all.")] = "",
    input_: Inputs = None,
    cores: Annotated[float | None, Option(help="Cores beside the GPU. Default: those of this machine.")] = None,
    prices: Annotated[
        str, Option(metavar="GPU=PRICE,...", help="Price of an hour of a machine with that GPU, in any currency.")
    ] = "",
    price_per_kwh: Annotated[float | None, Option(help="Price of electricity, in the same currency.")] = None,
    calibration: Calibration = None,
    gpus: Gpus = None,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Tell for each GPU whether it holds a run, a bound of its rate that no run can exceed, and an estimate with costs.

    The host's part is measured by the run. The GPU's part is counted, and nothing is measured on that GPU.
    """
    from framekiln.api.predict import choose
    from framekiln.reporting.predict import print_prediction, write_page

    if html:
        check_file("--html", Path(html))
    found = choose(
        output,
        _read_names(for_),
        inputs=input_,
        cores=cores,
        prices=_read_prices(prices),
        price_per_kwh=price_per_kwh,
        calibration=calibration,
        gpus=gpus,
        say=(lambda _: None) if json_ else partial(print_line, Console()),
    )
    if json_:
        print(json.dumps(asdict(found), indent=2))
    else:
        print_prediction(Console(), found)
    if html:
        print_line(ERRORS if json_ else Console(), f"Page: {write_page(html, found)}")


def _read_names(text: str) -> tuple[str, ...]:
    if text and not names(text):
        raise ConfigError(f"--for {text!r} names no GPU; write --for rtx-5080,l4.", code="FK-UNKNOWN-GPU")
    return names(text)


def _read_prices(text: str) -> dict[str, float]:
    try:
        if text and not names(text):
            raise ValueError(text)
        return {name: float(price) for name, price in (part.split("=") for part in names(text))}
    except ValueError as error:
        raise ConfigError(
            f"--prices {text!r} is not of the form GPU=PRICE,GPU=PRICE; write rtx-5080=0.4,h100=2.5.",
            code="FK-PRICES-INVALID",
        ) from error
