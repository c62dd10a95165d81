"""Options that several commands share: one name, one meaning and one help text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.instruments import Counted, Instruments
from pipeline.supply import Policy

INTERRUPTED = 130  # what a shell reports for Ctrl-C
_FILES, _MACHINE, _INSTRUMENTS = "Which files and frames", "On which machine", "Instruments"  # headings of the help

Input = Annotated[
    str | None, typer.Option("--input", "-i", help="Folder, glob, file list (text or Parquet), or s3:// gs:// URL.")
]
Output = Annotated[str | None, typer.Option("--output", "-o", help="Folder or URL for tables, report and resume.")]
Profile = Annotated[str, typer.Option("--profile", "-p", help="Where and how fast: a shipped name or a YAML file.")]
PipelinePath = Annotated[
    str | None, typer.Option("--pipeline", help="What is computed: a YAML file instead of the shipped one.")
]
Stages = Annotated[
    str, typer.Option("--stages", help="Only these steps, a,b,c, and what they read. [dim]Default: all.[/dim]")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="STEP.KEY=VALUE", help="A setting of a step; may be repeated.")
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", help="cpu or cuda for all steps that can, instead of the profile's.", rich_help_panel=_MACHINE
    ),
]
WeightsDir = Annotated[
    Path | None, typer.Option("--weights-dir", help="Folder with weights, recognised by name and hash.")
]
MissingWeights = Annotated[
    Policy,
    typer.Option(
        "--missing-weights",
        help="What to do with steps whose weights are not at hand: end the run, go on without them, or with random "
        "weights, for benchmarks, where a step can.",
    ),
]
AcceptLicense = Annotated[
    bool, typer.Option("--accept-license", help="Use weights whose licence forbids some uses, e.g. commercial ones.")
]
IdentitiesFrom = Annotated[
    str | None,
    typer.Option(
        "--identities-from", metavar="OUT", help="Output of an earlier run, whose identities keep their numbers."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N files.", rich_help_panel=_FILES)]
EveryNth = Annotated[
    int | None, typer.Option("--every-nth", min=1, help="Keep each N-th frame of a video.", rich_help_panel=_FILES)
]
MaxFrames = Annotated[
    int | None, typer.Option("--max-frames", min=1, help="At most N frames of a video.", rich_help_panel=_FILES)
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        "--max-pixels", min=1, help="Refuse larger pictures. [dim]Default: 100 MP.[/dim]", rich_help_panel=_FILES
    ),
]
MaxErrors = Annotated[
    str | None,
    typer.Option("--max-errors", metavar="N|N%", help="Stop when a step fails on more rows than this, e.g. 100 or 1%."),
]
VramCap = Annotated[
    float | None,
    typer.Option(
        "--vram-cap",
        metavar="GB",
        min=0.1,
        help="As if each GPU had no more memory than this, for all workers together.",
        rich_help_panel=_MACHINE,
    ),
]
CalibrationPath = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="What framemill calibrate wrote about the GPU. [dim]Default: calibration/, for this machine's GPU.[/dim]",
        rich_help_panel=_MACHINE,
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="I/N", help="Only the I-th of N shares of the files, from 1.", rich_help_panel=_FILES
    ),
]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast-mode",
        help="Previews: every frame reduced to a short side of 360 px or a little more.",
        rich_help_panel=_FILES,
    ),
]
ByContent = Annotated[
    bool,
    typer.Option(
        "--by-content",
        help="Tell changed files by what they hold, not by size and time: each is read once more. For collections that "
        "are copied or synchronised.",
        rich_help_panel=_FILES,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Ray cluster to join: auto, or host:port. [dim]Default: start Ray here.[/dim]",
        rich_help_panel=_MACHINE,
    ),
]
Tensorboard = Annotated[
    str | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write live figures for TensorBoard into a folder, as it runs.",
        rich_help_panel=_INSTRUMENTS,
    ),
]
TorchProfiler = Annotated[
    str | None,
    typer.Option(
        "--torch-profiler",
        metavar="STEP[:N]",
        help="Record N calls of a step by torch's profiler. [dim]Default: 5 calls, after one.[/dim]",
        rich_help_panel=_INSTRUMENTS,
    ),
]
MemoryTimeline = Annotated[
    str | None,
    typer.Option(
        "--memory-timeline",
        metavar="STEP[:N]",
        help="Record what N calls of a step do to torch's memory.",
        rich_help_panel=_INSTRUMENTS,
    ),
]
Nvtx = Annotated[
    bool,
    typer.Option(
        "--nvtx", help="Mark calls and phases on GPUs for NVIDIA's Nsight Systems.", rich_help_panel=_INSTRUMENTS
    ),
]
Nsight = Annotated[
    str,
    typer.Option(
        "--nsight",
        metavar="STEP[,STEP]",
        help="Start the processes of these steps under nsys.",
        rich_help_panel=_INSTRUMENTS,
    ),
]
PySpy = Annotated[
    str,
    typer.Option(
        "--py-spy",
        metavar="STEP",
        help="Draw a flame graph of the Python code of a step's processes.",
        rich_help_panel=_INSTRUMENTS,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but mistakes.")]


def instruments(
    torch_profiler: str | None, memory_timeline: str | None, nvtx: bool, nsight: str, py_spy: str
) -> Instruments:
    """What the options of instruments ask for."""
    asked = {"torch_profiler": torch_profiler, "memory_timeline": memory_timeline}
    counted = {name: Counted.read(f"--{name.replace('_', '-')}", text) for name, text in asked.items() if text}
    return Instruments(**counted, nvtx=nvtx, nsight=names(nsight), py_spy=py_spy)


def names(text: str) -> tuple[str, ...]:
    """The names in `a,b,c`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
