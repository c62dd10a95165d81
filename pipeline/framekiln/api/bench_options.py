"""The options of `framekiln.bench` and its command, and the resulting plan."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from framekiln.api.options import PIPELINE, WEIGHTS_DIR, Input, Manifest, Place, checked, machine_option, option
from framekiln.api.request import input_texts, pipeline_of
from framekiln.contract.errors import ConfigError

if TYPE_CHECKING:  # the command line reads the options without importing the bench
    from framekiln.lab.bench import BenchPlan
    from framekiln.planning.limits import Limit

Numbers = int | str | Sequence[int] | None
"""One number, several, or a text such as "1,2,4"."""
Words = str | Sequence[str] | None
"""One name or several, also in a text such as "fp32,bf16"."""


class FileOptions(TypedDict, total=False):
    """Files that a bench writes, and the base to compare with; Python has no default names."""

    out: Annotated[Place | None, option("Folder for tables and the page. [dim]Default: bench.[/dim]", metavar="DIR")]
    save: Annotated[Place | None, option("Also write the figures here, as a base.", metavar="FILE")]
    against: Annotated[Place | None, option("Compare with these figures; MODEL may be figures, too.", metavar="BASE")]
    fail_if: Annotated[
        str, option("With --against: exit with 1 if one is met, e.g. 'p50>+5%,peak_gb>+2%'.", "", metavar="CONDITIONS")
    ]
    target: Annotated[
        str,
        option(
            "Exit with 1 if one is missed, e.g. p50<16.67,rate>20, or a set: 1080p60, 4k30, stereo60.",
            "",
            metavar="LIMITS",
        ),
    ]
    history: Annotated[Place | None, option("Add a line to this .jsonl, and draw its history.", metavar="FILE")]
    note: Annotated[str, option("With --history: a note on the change.", "")]


class CellOptions(TypedDict, total=False):
    """Cells, and what is measured in each."""

    batch: Annotated[Numbers, option("Batch sizes, e.g. 1,2,4,8. [dim]Default: the model's own, or 1.[/dim]")]
    size: Annotated[Numbers, option("Sides of the input in px, e.g. 256,384. [dim]Default: the model's.[/dim]")]
    frames: Annotated[Numbers, option("Frames of a clip, e.g. 8,16,32. [dim]Default: the model's.[/dim]")]
    precisions: Annotated[
        Words,
        option(
            "Any of fp32, tf32, fp16, fp16-sums, bf16, fp16- and bf16-autocast, int8-dynamic, int8-static, int8-torch.",
            "fp32",
        ),
    ]
    compile: Annotated[Words, option("Modes of torch.compile: off, default, reduce-overhead, max-autotune.", "off")]
    backends: Annotated[Words, option("Any of torch, onnxruntime, torchscript, tensorrt.", "torch")]
    channels_last: Annotated[Literal["no", "yes", "both"], option("Memory format of images.", "no")]
    iterations: Annotated[int | None, option("Timed calls in each cell.", least=1, names=("--iterations", "-n"))]
    duration: Annotated[float | None, option("Seconds of timed calls a cell.", least=0.0, names=("--duration", "-d"))]
    warmup: Annotated[int, option("Least warm-up calls.", 5, least=0)]
    warmup_s: Annotated[float, option("Least warm-up seconds.", 0.5, least=0.0)]
    layers: Annotated[bool, option("Measure each module, in eager mode.", False)]
    depth: Annotated[int, option("Depth of modules in --layers.", 2, least=1)]
    trace: Annotated[bool, option("Record the first cell by torch's profiler; count waits.", False)]
    cprofile: Annotated[bool, option("Record the first cell by Python's profiler.", False)]
    lines: Annotated[str, option("Time this function's lines in the first cell.", "", metavar="MODULE:FUNCTION")]
    find_batch: Annotated[int, option("Search batches up to this, until memory runs out.", 0, least=0, metavar="MOST")]
    leak: Annotated[int, option("Check for memory leaks over this many calls.", 0, least=0, metavar="CALLS")]
    cold_cache: Annotated[bool, option("Empty the caches before each call.", False)]
    memory_cap: Annotated[
        float | None, machine_option("Measure as if the device had only this much memory.", least=0.1, metavar="GB")
    ]
    pipeline: Annotated[Manifest | None, PIPELINE]
    input: Annotated[
        Input,
        option("Media for a step. [dim]Default: the sample collection.[/dim]", names=("--input", "-i"), several=True),
    ]
    device: Annotated[Literal["cpu", "cuda"] | None, machine_option("Default: cuda if present.")]
    weights_dir: Annotated[Place | None, WEIGHTS_DIR]


class BenchOptions(FileOptions, CellOptions, total=False):
    """All options of a bench."""


_MEASURED = ("iterations", "warmup", "warmup_s", "layers", "depth", "leak", "cold_cache")
_LAST = {"no": (False,), "yes": (True,), "both": (False, True)}


def bench_plan(options: Mapping[str, Any], limits: Sequence["Limit"] = ()) -> "BenchPlan":
    """Return the plan for these options, with enough calls for targets and conditions.

    Raises ConfigError: a name is unknown, or a value is invalid.
    """
    from framekiln.lab.bench import Axes, BenchPlan
    from framekiln.lab.measure.timed import MeasureOptions, default_device
    from framekiln.lab.measure.tracing import DetailOptions
    from framekiln.lab.samples import calls_needed

    given = checked(CellOptions, options)
    axes = Axes(
        batches=_read_numbers("--batch", given["batch"]) or (None,),
        sizes=_read_numbers("--size", given["size"]) or (None,),
        frames=_read_numbers("--frames", given["frames"]) or (None,),
        precisions=_read_words("--precisions", given["precisions"]),
        compile=_read_words("--compile", given["compile"]),
        channels_last=_LAST[given["channels_last"]],
        backends=_read_words("--backends", given["backends"]),
    )
    axes.check()
    return BenchPlan(
        axes=axes,
        measure=MeasureOptions(
            device=given["device"] or default_device(),
            seconds=given["duration"],
            least=calls_needed(limits, given["iterations"], "-n"),
            memory_cap_gb=given["memory_cap"],
            **{name: given[name] for name in _MEASURED},
        ),
        details=DetailOptions(**{name: given[name] for name in ("trace", "cprofile", "lines", "depth")}),
        find_batch=given["find_batch"],
        pipeline=pipeline_of(given["pipeline"]),
        inputs=input_texts(given["input"]),
        weights_dir=None if given["weights_dir"] is None else Path(given["weights_dir"]),
    )


def _read_numbers(option: str, value: Numbers) -> Sequence[int]:
    texts = [str(value)] if isinstance(value, int) else _split(value)
    if not all(word.isdecimal() and int(word) for word in texts):
        problem = f"{option} {value!r} is not a list of numbers above 0, as in {option} 1,2,4."
        raise ConfigError(problem, code="FK-BENCH-LIST")
    return tuple(map(int, texts))


def _read_words(option: str, value: Words) -> Sequence[str]:
    if not (words := _split(value)):
        raise ConfigError(f"{option} {value!r} names nothing; leave it out.", code="FK-BENCH-LIST")
    return tuple(words)


def _split(value: str | Iterable[Any] | None) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else [os.fsdecode(str(item)) for item in value or ()]
    return [part.strip() for part in parts if part.strip()]
