"""The options of `framekiln.bench`, under the names of the command, and the plan that they make."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from framekiln.api.options import Place, checked
from framekiln.api.request import Input, Manifest, input_texts, pipeline_of
from framekiln.contract.errors import ConfigError
from framekiln.lab.bench import Axes, BenchPlan
from framekiln.lab.measure.timed import MeasureOptions, default_device
from framekiln.lab.measure.tracing import DetailOptions
from framekiln.lab.samples import calls_needed, parse_targets

Numbers = int | str | Sequence[int] | None
"""One number, several, or a text such as "1,2,4"."""
Words = str | Sequence[str] | None
"""One name or several, also in a text such as "fp32,bf16"."""
_Count = Annotated[int, Field(ge=0)]


class FileOptions(TypedDict, total=False):
    """The files that a bench writes, and the base that it compares with; None: nothing."""

    out: Place | None  # folder for tables, figures and the page
    save: Place | None  # file for the figures, as a base for later benches
    against: Place | None  # figures of an earlier bench to compare with
    fail_if: str  # conditions such as `p50>+5%, peak_gb>+2%`; the result's `failed` says whether one is met
    target: str  # limits in ms, as `p50<16.67,p95<20`, or 1080p60, 4k30, stereo60; `failed` if one is not met
    history: Place | None  # file (.jsonl) to which a line is added
    note: str  # what was changed, for the history


class CellOptions(TypedDict, total=False):
    """Cells, and what is measured in each; None stands for the default."""

    batch: Numbers  # the model's own, or 1
    size: Numbers  # sides of the input in px; the model's own
    frames: Numbers  # of a clip; the model's own
    precisions: (
        Words  # fp32; also tf32, fp16, bf16, fp16-autocast, bf16-autocast, int8-dynamic, int8-static, int8-torch
    )
    compile: Words  # modes of torch.compile: off; also default, reduce-overhead, max-autotune
    backends: Words  # torch; also onnxruntime, torchscript, tensorrt
    channels_last: Literal["no", "yes", "both"]  # memory format of images
    iterations: Annotated[int, Field(ge=1)] | None  # timed calls of a cell
    duration: Annotated[float, Field(ge=0)] | None  # seconds of timed calls of a cell
    warmup: _Count  # calls before, at least
    warmup_s: Annotated[float, Field(ge=0)]  # seconds before, at least
    layers: bool  # measure each module, in eager mode
    depth: Annotated[int, Field(ge=1)]  # levels of modules in `layers`
    trace: bool  # record the first cell by torch's profiler
    cprofile: bool  # record the first cell by Python's profiler
    lines: str  # MODULE:FUNCTION: time this function's lines in the first cell
    find_batch: _Count  # search batches up to this one, until memory runs out
    leak: _Count  # look for growing memory over as many calls
    cold_cache: bool  # empty the caches before each call
    memory_cap: Annotated[float, Field(ge=0.1)] | None  # GB; measure as if the device had no more
    pipeline: Manifest | None  # with the steps that may be measured: a path, or its content; the shipped one
    input: Input  # media for a step; the sample collection
    device: Literal["cpu", "cuda"] | None  # cuda where there is one
    weights_dir: Place | None  # folder with weights, recognised by name and hash


class BenchOptions(FileOptions, CellOptions, total=False):
    """All options of a bench."""


DEFAULTS: Mapping[str, Any] = {
    **{"precisions": "fp32", "compile": "off", "backends": "torch", "channels_last": "no"},
    **{"warmup": 5, "warmup_s": 0.5, "depth": 2, "lines": "", "find_batch": 0, "leak": 0},
    **dict.fromkeys(("layers", "trace", "cprofile", "cold_cache"), False),
    **dict.fromkeys(("fail_if", "target", "note"), ""),
}
_LAST = {"no": (False,), "yes": (True,), "both": (False, True)}


def bench_plan(options: Mapping[str, Any], target: str = "") -> BenchPlan:
    """Return the plan of these options, with enough calls for the targets.

    Raises:
        ConfigError: a name is unknown, or a value is invalid.
    """
    given = checked(CellOptions, options, DEFAULTS)
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
        measure=_make_measure_options(given, calls_needed(parse_targets(target), given["iterations"], "-n")),
        details=DetailOptions(**{name: given[name] for name in ("trace", "cprofile", "lines", "depth")}),
        find_batch=given["find_batch"],
        pipeline=pipeline_of(given["pipeline"]),
        inputs=input_texts(given["input"]),
        weights_dir=None if given["weights_dir"] is None else Path(given["weights_dir"]),
    )


def _make_measure_options(given: Mapping[str, Any], least: int) -> MeasureOptions:
    names = ("iterations", "warmup", "warmup_s", "layers", "depth", "leak", "cold_cache")
    return MeasureOptions(
        device=given["device"] or default_device(),
        seconds=given["duration"],
        least=least,
        memory_cap_gb=given["memory_cap"],
        **{name: given[name] for name in names},
    )


def _read_numbers(option: str, value: Numbers) -> Sequence[int]:
    texts = [str(value)] if isinstance(value, int) else _split(value)
    if not all(word.isdecimal() and int(word) for word in texts):
        raise ConfigError(
            f"{option} {value!r} is not a list of numbers above 0, as in {option} 1,2,4.", code="FK-BENCH-LIST"
        )
    return tuple(map(int, texts))


def _read_words(option: str, value: Words) -> Sequence[str]:
    if not (words := _split(value)):
        raise ConfigError(f"{option} {value!r} names nothing; leave it out.", code="FK-BENCH-LIST")
    return tuple(words)


def _split(value: str | Iterable[Any] | None) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else [os.fsdecode(str(item)) for item in value or ()]
    return [part.strip() for part in parts if part.strip()]
