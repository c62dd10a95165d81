"""The options of `framekiln bench`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from framekiln.cli.options import PipelinePath, WeightsDir, machine_option

if TYPE_CHECKING:
    from framekiln.lab.bench import BenchPlan


@dataclass(frozen=True, kw_only=True)
class CellArguments:
    """Options for cells, and for what is measured in each."""

    batch: Annotated[str, Option(help="Batches, as 1,2,4,8. [dim]Default: the model's own, or 1.[/dim]")] = ""
    size: Annotated[str, Option(help="Sides of the input in px, as 256,384. [dim]Default: the model's.[/dim]")] = ""
    frames: Annotated[str, Option(help="Frames of a clip, as 8,16,32. [dim]Default: the model's.[/dim]")] = ""
    precisions: Annotated[
        str,
        Option(
            help="Of fp32, tf32, fp16, bf16, fp16-autocast, bf16-autocast, int8-dynamic, int8-static, int8-torch.",
        ),
    ] = "fp32"
    compile_: Annotated[
        str, Option("--compile", help="Modes of torch.compile: off,default,reduce-overhead,max-autotune.")
    ] = "off"
    backends: Annotated[str, Option(help="Of torch, onnxruntime, torchscript, tensorrt.")] = "torch"
    channels_last: Annotated[Literal["no", "yes", "both"], Option(help="Memory format of images.")] = "no"
    iterations: Annotated[int | None, Option("--iterations", "-n", min=1, help="Timed calls of a cell.")] = None
    duration: Annotated[float | None, Option("--duration", "-d", min=0.0, help="Seconds of timed calls of a cell.")] = (
        None
    )
    warmup: Annotated[int, Option(min=0, help="Calls before, at least.")] = 5
    warmup_s: Annotated[float, Option(min=0.0, help="Seconds before, at least.")] = 0.5
    layers: Annotated[bool, Option("--layers", help="Measure each module, in eager mode.")] = False
    depth: Annotated[int, Option(min=1, help="Levels of modules in --layers.")] = 2
    trace: Annotated[bool, Option("--trace", help="Record the first cell by torch's profiler; count waits.")] = False
    cprofile: Annotated[bool, Option("--cprofile", help="Record the first cell by Python's profiler.")] = False
    lines: Annotated[str, Option(metavar="MODULE:FUNCTION", help="Time this function's lines in the first cell.")] = ""
    find_batch: Annotated[
        int, Option(min=0, metavar="MOST", help="Search batches up to this one, until memory runs out.")
    ] = 0
    leak: Annotated[int, Option(min=0, metavar="CALLS", help="Look for growing memory over as many calls.")] = 0
    cold_cache: Annotated[bool, Option("--cold-cache", help="Empty the caches before each call.")] = False
    memory_cap: Annotated[
        float | None, machine_option(metavar="GB", min=0.1, help="Measure as if the device had no more memory.")
    ] = None
    pipeline: PipelinePath = None
    input_: Annotated[
        list[str] | None, Option("--input", "-i", help="Media for a step. [dim]Default: the sample collection.[/dim]")
    ] = None
    device: Annotated[Literal["cpu", "cuda"] | None, machine_option(help="Default: cuda where there is one.")] = None
    weights_dir: WeightsDir = None

    def plan(self, target: str = "") -> BenchPlan:
        """Return what is measured, with enough calls for targets.

        Raises:
            ConfigError: a value is no number above 0, or unknown, or a list of names is empty.
        """
        from framekiln.api.bench_options import bench_plan

        return bench_plan({item.name.rstrip("_"): getattr(self, item.name) for item in fields(self)}, target)
