"""Input and output as plain words of a command line, in the order of `cp`: the inputs, then the output."""

from collections.abc import Sequence
from typing import Annotated

from typer import Argument

from framekiln.contract.errors import ConfigError

Paths = Annotated[
    list[str] | None,
    Argument(
        metavar="PATH",
        show_default=False,
        help="Inputs, then the output: photos/ more/ out/. With --output all are inputs.",
    ),
]


def named_paths(
    words: Sequence[str], inputs: Sequence[str] | None, output: str | None
) -> tuple[list[str] | None, str | None]:
    """Return the inputs and the output of a command line; None for what it does not name.

    `words` stand without an option's name. One word alone is an input. With `output` all of them are.

    >>> named_paths(["photos", "more", "out"], None, None)
    (['photos', 'more'], 'out')

    Raises:
        ConfigError: inputs are named both ways.
    """
    if not words:
        return list(inputs) if inputs is not None else None, output
    if inputs:
        raise ConfigError(
            f"{words[0]!r} stands beside --input {inputs[0]}, so it could be an input or the output: name all paths "
            "in one way, as in `run photos more out` or `run --input photos --input more --output out`.",
            code="FK-PATHS-TWICE",
        )
    if output is not None or len(words) == 1:
        return list(words), output
    return list(words[:-1]), words[-1]
