"""What the options of a command say, files unread: what to compute, with what, and for a run from where to where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pipeline.commands.executing import cluster_of
from pipeline.commands.options import (
    AcceptLicense,
    Address,
    ByContent,
    CalibrationPath,
    Device,
    EveryNth,
    Fast,
    IdentitiesFrom,
    Input,
    Limit,
    MaxErrors,
    MaxFrames,
    MaxPixels,
    MissingWeights,
    Output,
    PipelinePath,
    Profile,
    Settings,
    Shard,
    Stages,
    VramCap,
    WeightsDir,
    names,
)
from pipeline.errors import ConfigError
from pipeline.manifest import PipelineFile, ProfileFile, read_pipeline, read_profile
from pipeline.order import Order
from pipeline.plan import Choices


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Steps in their places, on some input."""

    input_: Input = None
    profile: Profile = "cpu-only"
    pipeline: PipelinePath = None
    stages: Stages = ""
    settings: Settings = None
    device: Device = None
    weights_dir: WeightsDir = None
    missing_weights: MissingWeights = "fail"
    accept_license: AcceptLicense = False

    @cached_property
    def files(self) -> tuple[PipelineFile, ProfileFile]:
        """The pipeline file and the profile."""
        return read_pipeline(self.pipeline), read_profile(self.profile)

    @property
    def choices(self) -> Choices:
        """What is said beyond the two files."""
        return Choices(
            stages=names(self.stages),
            settings=tuple(self.settings or ()),
            device=self.device,
            weights_dir=self.weights_dir,
            missing_weights=self.missing_weights,
            accept_license=self.accept_license,
        )

    @property
    def source(self) -> str:
        """The input.

        Raises:
            ConfigError: it is said nowhere.
        """
        return self._given("input", self.input_)

    def _said(self, name: str, option: str | None) -> str | None:
        """A path from the command line, else from the profile, else from the pipeline file."""
        pipeline, profile = self.files
        return next((one for one in (option, getattr(profile, name), getattr(pipeline, name)) if one is not None), None)

    def _given(self, name: str, option: str | None) -> str:
        if (found := self._said(name, option)) is None:
            raise ConfigError(
                f"No {name} was given: use --{name} PATH, or write `{name}: PATH` in the profile or the pipeline file."
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Wish(Chosen):
    """A run."""

    output: Output = None
    identities_from: IdentitiesFrom = None
    limit: Limit = None
    every_nth: EveryNth = None
    max_frames: MaxFrames = None
    max_pixels: MaxPixels = None
    max_errors: MaxErrors = None
    vram_cap: VramCap = None
    calibration: CalibrationPath = None
    shard: Shard = None
    fast_mode: Fast = False
    by_content: ByContent = False
    address: Address = None

    def __post_init__(self) -> None:
        """Refuse a shard that is none, also where only a plan is asked for."""
        _shard(self.shard)

    @property
    def choices(self) -> Choices:
        """See `Chosen`."""
        known = [f"identities.known={self.identities_from}"] if self.identities_from else []
        chosen = super().choices
        return replace(
            chosen,
            settings=(*chosen.settings, *known),
            max_errors=self.max_errors,
            vram_cap=self.vram_cap,
            calibration=self.calibration,
            decode=self._decode(),
        )

    @property
    def is_whole(self) -> bool:
        """Whether input and output are said anywhere."""
        return None not in (self._said("input", self.input_), self._said("output", self.output))

    def order(self) -> Order:
        """What a run is to do.

        Raises:
            ConfigError: input or output are said nowhere.
        """
        pipeline, profile = self.files
        return Order(
            input=self.source,
            output=self._given("output", self.output),
            pipeline=pipeline,
            profile=profile,
            profile_name=self.profile,
            choices=self.choices,
            address=cluster_of(self.address),
            limit=self.limit,
            shard=_shard(self.shard),
            by_content=self.by_content or pipeline.identify == "content",
        )

    def _decode(self) -> dict[str, Any]:
        said = {
            "every_nth": self.every_nth,
            "max_frames": self.max_frames,
            "max_pixels": self.max_pixels,
            "fast_mode": self.fast_mode or None,
        }
        return {key: value for key, value in said.items() if value is not None}


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(f"--shard {text!r} is not of the form I/N with I from 1 to N, as in --shard 2/8.")
    return int(number) - 1, int(count)
