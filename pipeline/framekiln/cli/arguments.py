"""The options of a command line, read into the request for a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Option

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
    names,
)
from framekiln.cli.paths import Paths, named_paths
from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan_options import PlanOptions, Policy
from framekiln.runtime.run.request import RunRequest

INPUT, OUTPUT = "FRAMEKILN_INPUT", "FRAMEKILN_OUTPUT"
"""Environment variables for paths that a machine or a cluster file sets once."""


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

    def request(self) -> RunRequest:
        """Return the request for these options.

        Raises:
            ConfigError: the pipeline file or the profile is missing or invalid.
        """
        pipeline, profile = read_pipeline(self.pipeline), read_profile(self.profile)
        inputs = _inputs(self.input_, os.environ.get(INPUT), profile.input, pipeline.input)
        return RunRequest(
            input=inputs[0] if inputs else "",
            more_inputs=tuple(inputs[1:]),
            output=_first(profile.output, pipeline.output),
            pipeline=pipeline,
            profile=profile,
            profile_name=self.profile,
            options=PlanOptions(
                stages=names(self.stages),
                settings=tuple(self.settings or ()),
                device=self.device,
                weights_dir=self.weights_dir,
                missing_weights=self.missing_weights,
                accept_license=self.accept_license,
            ),
            by_content=pipeline.identify == "content",
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions(StepOptions):
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
            help="File of framekiln calibrate. [dim]Default: the one for this machine's GPU in calibration/.[/dim]"
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

    def request(self) -> RunRequest:
        """Return the request for these options.

        Raises:
            ConfigError: the pipeline file, the profile or --shard is wrong, or inputs are named in two ways.
        """
        inputs, output = named_paths(self.paths or (), self.input_, self.output)
        basic = StepOptions.request(replace(self, input_=inputs))
        decode = {name: getattr(self, name) for name in ("every_nth", "max_frames", "max_pixels", "fast_mode")}
        known = [f"identities.known={self.identities_from}"] if self.identities_from else []
        options = replace(
            basic.options,
            settings=(*basic.options.settings, *known),
            max_errors=self.max_errors,
            vram_cap=self.vram_cap,
            calibration=self.calibration,
            decode={name: value for name, value in decode.items() if value},
        )
        return replace(
            basic,
            output=_first(output, os.environ.get(OUTPUT) or None, basic.output),
            options=options,
            limit=self.limit,
            shard=_shard(self.shard),
            by_content=self.by_content or basic.by_content,
            engine=self.engine,
            address=self.address if self.engine == "local" else cluster_address(self.address),
        )


def cluster_address(option: str | None) -> str | None:
    """Return the address of the cluster to join: the option, else the environment's; None for none."""
    return option or os.environ.get("RAY_ADDRESS")


def _inputs(*places: str | list[str] | None) -> list[str]:
    """Return the inputs of the first place that has any: command line, environment, profile, pipeline file."""
    given = next((place for place in places if place), [])
    inputs = [given] if isinstance(given, str) else given
    if "" in inputs:
        raise ConfigError("--input is empty: give a folder, a file, a list or a URL.", code="FK-NO-INPUT")
    return inputs


def _first(*paths: str | None) -> str:
    """Return the first path that is set: command line's, environment's, profile's, pipeline file's; empty for none."""
    return next((path for path in paths if path is not None), "")


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(
            f"--shard {text!r} is not of the form I/N with I from 1 to N, as in --shard 2/8.", code="FK-BAD-SHARD"
        )
    return int(number) - 1, int(count)
