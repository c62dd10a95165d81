"""The options of `framekiln bench` by what is measured, and which exclude each other: no option is ignored."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from framekiln.api.bench_options import CellOptions, FileOptions
from framekiln.api.options import defaults
from framekiln.cli.options import clip_option, profiler_option, refuse_idle, video_option
from framekiln.contract.errors import ConfigError

_MACHINE = ("device", "weights_dir")
_CELL = ("size", "frames", "precisions", "compile", "backends", "channels_last", *_MACHINE)
_READ = {"--sav": ("precisions", *_MACHINE), "--clip": _CELL, "--nsys": ("batch", "pipeline", "input", *_CELL)}
"""Options of cells that other measurements read too."""


@dataclass(frozen=True, kw_only=True)
class SavOptions:
    """Options of video segmentation."""

    sav: Annotated[
        Path | None, video_option("--sav", metavar="DIR", help="Videos with true masks in SA-V's layout, or DAVIS's.")
    ] = None
    test: Annotated[bool, video_option("--test", help="Run --sav on a small generated video.")] = False
    prompt: Annotated[
        Literal["points", "box", "mask"], video_option(help="The prompt, derived from an object's first true mask.")
    ] = "points"
    limit_videos: Annotated[int | None, video_option(min=1, help="Only the first videos.")] = None
    limit_objects: Annotated[int | None, video_option(min=1, help="Only the first objects of each video.")] = None
    runs: Annotated[int, video_option(min=1, help="Runs of each object.")] = 5
    overlays: Annotated[bool, video_option("--overlays", help="Keep pictures of masks and truth.")] = False

    @property
    def is_asked(self) -> bool:
        return self.test or self.sav is not None


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """Options of a clip's way."""

    clip: Annotated[str, clip_option(metavar="CLIP[,CLIP]", help="1080p, 4k or stereo (made), or video files.")] = ""
    stereo: Annotated[bool, clip_option("--stereo", help="Files have two views side by side; each is an item.")] = False
    scenario: Annotated[str, clip_option(help="Any of single, multi, server, offline.")] = "single"
    clip_frames: Annotated[
        int | None,
        clip_option(min=1, help="Frames of each measurement. [dim]Default: 120, or as many as --target needs.[/dim]"),
    ] = None
    streams: Annotated[int, clip_option(min=1, help="multi: streams. server and offline: largest batch.")] = 8
    rate: Annotated[float, clip_option(min=0.01, help="server: requests a second, at random times.")] = 30.0
    linger_ms: Annotated[float, clip_option(min=0.0, help="server: longest wait for a fuller batch.")] = 0.0
    pools: Annotated[Literal["on", "off", "both"], clip_option(help="Keep buffers from batch to batch.")] = "on"


@dataclass(frozen=True, kw_only=True)
class NsightOptions:
    """Options of Nsight's tools."""

    nsys: Annotated[
        Literal["external", "inline"] | None,
        profiler_option(help="Record by Nsight Systems: the whole process, or only the calls after the warm-up."),
    ] = None
    ncu: Annotated[bool, profiler_option("--ncu", help="Record kernels by Nsight Compute.")] = False
    dry_run: Annotated[bool, profiler_option("--dry-run", help="Print the commands of Nsight, run nothing.")] = False

    @property
    def is_asked(self) -> bool:
        return self.ncu or self.nsys is not None or self.dry_run


def check_options(
    cells: CellOptions, videos: SavOptions, clips: ClipOptions, nsight: NsightOptions, files: FileOptions
) -> None:
    """Check that every given option is measured: none is ignored.

    Raises ConfigError: an option would be ignored, or there is no GPU.
    """
    from framekiln.lab.measure.timed import check_device

    if videos.sav is not None and videos.test:
        raise ConfigError("--sav and --test are measured one at a time.", code="FK-BENCH-OPTION")
    asked = {"--sav": videos.is_asked, "--clip": bool(clips.clip), "--nsys": nsight.is_asked}
    others = [name for name, is_asked in asked.items() if is_asked]
    if len(others) > 1:
        raise ConfigError(f"{others[0]} and {others[1]} are measured one at a time.", code="FK-BENCH-OPTION")
    for name, group, usual in (("--sav", videos, SavOptions()), ("--clip", clips, ClipOptions())):
        if not asked[name]:
            refuse_idle(list_given(vars(group), vars(usual)), f"without {name}")
    for name in others:
        unread = list_given(cells, defaults(CellOptions), _READ[name])
        if name == "--nsys":  # recordings are compared with nothing
            unread += list_given(files, defaults(FileOptions), ("out",))
        refuse_idle(unread, f"with {name}")
    _check_clip(clips)
    if not (cells["layers"] or cells["trace"]) and cells["depth"] != defaults(CellOptions)["depth"]:
        refuse_idle(["--depth"], "without --layers or --trace")
    if files["note"] and not files["history"]:
        refuse_idle(["--note"], "without --history")
    if cells["iterations"] is not None and cells["duration"] is not None:
        refuse_idle(["--duration"], "with --iterations")
    if cells["find_batch"] and cells["batch"]:
        refuse_idle(["--batch"], "with --find-batch")
    if not nsight.dry_run:
        check_device(cells["device"])


def _check_clip(clips: ClipOptions) -> None:
    """Reject options that the chosen scenarios ignore. Raises ConfigError."""
    given, asked = set(list_given(vars(clips), vars(ClipOptions()))), set(clips.scenario.split(","))
    for options, readers in ((("--rate", "--linger-ms"), {"server"}), (("--streams",), {"multi", "server", "offline"})):
        if clips.clip and asked.isdisjoint(readers):
            refuse_idle([*filter(given.__contains__, options)], f"without --scenario {' or '.join(sorted(readers))}")


def list_given(options: Mapping[str, Any], usual: Mapping[str, Any], known: Collection[str] = ()) -> list[str]:
    """Return the options that differ from their defaults, as on the command line, except some."""
    given = [name for name, value in options.items() if name not in known and value != usual[name]]
    return [f"--{name.replace('_', '-')}" for name in given]
