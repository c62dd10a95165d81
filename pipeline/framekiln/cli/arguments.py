"""The options of a command line, read into the request for a run."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from framekiln.api.options import RunOptions
from framekiln.api.request import make_request
from framekiln.cli.options import (
    Address,
    EngineChoice,
    PipelinePath,
    Profile,
    Settings,
    Stages,
    WeightsDir,
    file_option,
    machine_option,
)
from framekiln.contract.errors import ConfigError
from framekiln.planning.plan_options import Policy
from framekiln.runtime.run.request import RunRequest

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


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Options for some steps on some input."""

    input_: Annotated[
        list[str] | None,
        Option(
            "--input",
            "-i",
            help="Folder, glob, file list (text or Parquet), or s3:// gs:// URL. Give it several times for several.",
        ),
    ] = None
    profile: Profile = "cpu-only"
    pipeline: PipelinePath = None
    stages: Stages = ""
    settings: Settings = None
    device: Annotated[
        str | None, machine_option("--device", help="cpu or cuda for all steps that can, instead of the profile's.")
    ] = None
    weights_dir: WeightsDir = None
    missing_weights: Annotated[
        Policy,
        Option(
            help="Steps without their weights: end the run, leave them out, or use random weights, for benchmarks, "
            "where a step supports it."
        ),
    ] = "fail"
    accept_license: Annotated[
        bool,
        Option("--accept-license", help="Use weights with a restricted licence, e.g. for non-commercial use only."),
    ] = False

    def request(self, **more: Any) -> RunRequest:
        """Return the request for these options and some more of `framekiln.run`.

        Raises:
            ConfigError: the pipeline file, the profile or --shard is wrong.
        """
        given = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "paths"}
        return make_request(given.pop("input_"), given.pop("output", None), kind=RunOptions, **given, **more)


@dataclass(frozen=True, kw_only=True)
class RunArguments(StepOptions):
    """Options for a run."""

    paths: Paths = None
    output: Annotated[str | None, Option("--output", "-o", help="Folder or URL for tables, report and resume.")] = None
    identities_from: Annotated[
        str | None, Option(metavar="OUT", help="Another output; its identities keep their numbers.")
    ] = None
    limit: Annotated[int | None, file_option(min=1, help="Only the first N files.")] = None
    every_nth: Annotated[int | None, file_option(min=1, help="Keep every N-th frame of a video.")] = None
    max_frames: Annotated[int | None, file_option(min=1, help="At most N frames of a video.")] = None
    max_pixels: Annotated[int | None, file_option(min=1, help="Refuse larger images. [dim]Default: 100 MP.[/dim]")] = (
        None
    )
    max_errors: Annotated[
        str | None,
        Option(metavar="N|N%", help="Stop when a step, or decoding, fails on more rows than this, e.g. 100 or 1%."),
    ] = None
    vram_cap: Annotated[
        float | None,
        machine_option(
            metavar="GB", min=0.1, help="Plan as if each GPU had no more memory than this, for all workers together."
        ),
    ] = None
    calibration: Annotated[
        Path | None,
        machine_option(
            help="File of framekiln calibrate. [dim]Default: that of this machine's GPU, if it was calibrated.[/dim]"
        ),
    ] = None
    shard: Annotated[str | None, file_option(metavar="I/N", help="Only the I-th of N shares of the files, from 1.")] = (
        None
    )
    fast_mode: Annotated[
        bool,
        file_option("--fast-mode", help="Previews: every frame reduced to a short side of 360 px or a little more."),
    ] = False
    by_content: Annotated[
        bool,
        file_option(
            "--by-content",
            help="Detect changed files by content instead of size and time: each is read once more. For collections "
            "that are copied or synchronised.",
        ),
    ] = False
    engine: EngineChoice = "auto"
    address: Address = None

    def request(self, **more: Any) -> RunRequest:
        """See `StepOptions`. Raises ConfigError if inputs are named in two ways, or as there."""
        inputs, output = named_paths(self.paths or (), self.input_, self.output)
        return StepOptions.request(replace(self, input_=inputs, output=output), **more)
