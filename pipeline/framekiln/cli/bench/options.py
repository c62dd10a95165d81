"""The options of `framekiln bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from framekiln.cli.options import WeightsDir, machine_option, names
from framekiln.contract.errors import ConfigError

if TYPE_CHECKING:
    from framekiln.lab.measure.details import DetailOptions
    from framekiln.lab.measure.options import MeasureOptions
    from framekiln.lab.output.cells import Cell
    from framekiln.lab.sweep.product import Axes


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options for cells, and for what is measured in each."""

    batch: Annotated[str, Option(help="Batches, as 1,2,4,8.")] = "1"
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
    input_: Annotated[
        list[str] | None, Option("--input", "-i", help="Media for a step. [dim]Default: the sample collection.[/dim]")
    ] = None
    device: Annotated[Literal["cpu", "cuda"] | None, machine_option(help="Default: cuda where there is one.")] = None
    weights_dir: WeightsDir = None

    def axes(self) -> Axes:
        """Return the axes of the sweep.

        Raises:
            ConfigError: a value is no number above 0, or unknown, or a list of names is empty.
        """
        from framekiln.lab.sweep.product import Axes

        last = {"no": (False,), "yes": (True,), "both": (False, True)}[self.channels_last]
        axes = Axes(
            batches=_numbers("--batch", self.batch) or (1,),
            sizes=_numbers("--size", self.size) or (None,),
            frames=_numbers("--frames", self.frames) or (None,),
            precisions=_words("--precisions", self.precisions),
            compile=_words("--compile", self.compile_),
            channels_last=last,
            backends=_words("--backends", self.backends),
        )
        axes.check()
        return axes

    def first_cell(self) -> Cell:
        """Return the cell of benches that measure a single one.

        Raises:
            ConfigError: see `axes`.
        """
        return self.axes().cells()[0]

    def check_device(self) -> None:
        """Check that the device that was asked for is there.

        Raises:
            ConfigError: it is a GPU, and torch sees none.
        """
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("--device cuda: torch sees no GPU here; leave it out.", code="FK-BENCH-NO-GPU")

    def details(self) -> DetailOptions:
        """Return what is recorded in detail."""
        from framekiln.lab.measure.details import DetailOptions

        return DetailOptions(trace=self.trace, cprofile=self.cprofile, lines=self.lines, depth=self.depth)

    def measure(self) -> MeasureOptions:
        """Return what is measured in each cell."""
        import torch

        from framekiln.lab.measure.options import MeasureOptions

        return MeasureOptions(
            device=self.device or ("cuda" if torch.cuda.is_available() else "cpu"),
            iterations=self.iterations,
            seconds=self.duration,
            warmup=self.warmup,
            warmup_s=self.warmup_s,
            layers=self.layers,
            depth=self.depth,
            leak=self.leak,
            cold_cache=self.cold_cache,
            memory_cap_gb=self.memory_cap,
        )


def _numbers(option: str, text: str) -> Sequence[int]:
    """Return the values of a list such as 1,2,4."""
    if not all(word.isdecimal() and int(word) for word in names(text)):
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers above 0, as in {option} 1,2,4.", code="FK-BENCH-LIST"
        )
    return tuple(int(word) for word in names(text))


def _words(option: str, text: str) -> Sequence[str]:
    """Return the names in a list such as fp32,bf16."""
    if not names(text):
        raise ConfigError(f"{option} {text!r} names nothing; leave it out.", code="FK-BENCH-LIST")
    return names(text)
