"""Tables of a bench's page beside cells: times, leaks, videos, clips, targets and recordings of Nsight's tools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from framekiln.lab.clips.measure import ClipRow
from framekiln.lab.nsight.compute import KernelFigures
from framekiln.lab.nsight.systems import SystemsFigures
from framekiln.lab.output.results import BenchReport
from framekiln.lab.samples import clip_rows, video_rows
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sav.summary import summarize
from framekiln.reporting.bench import cells
from framekiln.reporting.bench.cells import three
from framekiln.reporting.formatting import MISSING

_SPANS = ("span ms", "busy ms", "idle", "pauses", "longest ms", "kernels", "small", "kernel ms", "launch ms", "copy ms")
_KERNELS = (
    "kernel",
    "us",
    "arithmetic %",
    "tensor cores %",
    "memory %",
    "L1 hits %",
    "L2 hits %",
    "bytes used %",
    "warps %",
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table with its note."""

    id: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int  # columns of text, from the left; the others are numbers
    note: str = ""


def sections(report: BenchReport) -> list[Section]:
    """Return the tables of what was measured."""
    nsight = _nsight(report.extra.get("nsight", {}))
    return [*_times(report), *_leaks(report), *_videos(report), *_clips(clip_rows(report)), *_targets(report), *nsight]


def _times(report: BenchReport) -> Iterator[Section]:
    rows = [cells.time_row(cell) for cell in report.cells if cell.outcome == "ok"]
    note = (
        "Times of a call until its results are on the device. Enqueue is until the call has returned. Enqueue, GPU and "
        "copies are medians, the last two of a GPU only. Compilation is the first call less a later one."
    )
    if rows:
        shown = cells.with_values(cells.TIMES, rows)
        heads, rows = [cells.TIMES[place] for place in shown], [[row[place] for place in shown] for row in rows]
        yield Section(id="times", title="Times", heads=heads, rows=rows, texts=2, note=note)


def _leaks(report: BenchReport) -> Iterator[Section]:
    tests = [(cell, cell.leak) for cell in report.cells if cell.leak is not None]
    heads = ("model", "cell", "result", "bytes a call", "calls")
    rows = [
        [cell.model, cell.cell.title, "leaks" if leak.leaks else "no leak", f"{leak.slope:,.0f}", str(leak.calls)]
        for cell, leak in tests
    ]
    if rows:
        note = "Growth of memory a call, by least squares over the second half of the calls."
        yield Section(id="leaks", title="Memory over repeated calls", heads=heads, rows=rows, texts=3, note=note)


def model_names(report: BenchReport) -> str:
    """Return the names of all models that were measured in any way."""
    named = [model.name for model in report.models]
    rows = [*report.video, *report.extra.get("clips", [])]
    return ", ".join(dict.fromkeys([*named, *(str(row["model"]) for row in rows), *report.extra.get("nsight", {})]))


def _videos(report: BenchReport) -> Iterator[Section]:
    rows = video_rows(report)
    if rows:
        note = (
            "Frames a second and ms are medians over runs, with the standard deviation of runs. J and F are means over "
            f"objects. Prompts: {', '.join(dict.fromkeys(row.prompt for row in rows))}. {_weights(rows)}"
        )
        lines = [cells.model_cells(summary) for summary in summarize(rows)]
        yield Section(id="videos", title="Videos", heads=cells.VIDEO_HEADS, rows=lines, texts=1, note=note)
        runs = [[*cells.run_cells(row), row.why] for row in rows]
        yield _with_reasons(id="runs", title="Runs of each object", heads=cells.RUN_HEADS, rows=runs, texts=3)


def _clips(rows: Sequence[ClipRow]) -> Iterator[Section]:
    if rows:
        lines = [[row.model, *cells.clip_cells(row), row.why] for row in rows]
        note = "Times are a frame's, from its arrival until it is encoded. A p95 needs 100 frames, a p99 500. "
        heads, title = ("model", *cells.CLIP_HEADS), "Clips, end to end"
        yield _with_reasons(id="clips", title=title, heads=heads, rows=lines, texts=4, note=note + _weights(rows))


def _with_reasons(*, heads: Sequence[str], rows: Sequence[Sequence[str]], **known: Any) -> Section:
    """Return a table with a last column of reasons, which goes where nothing failed."""
    if any(row[-1] for row in rows):
        return Section(heads=(*heads, "reason"), rows=rows, **known)
    return Section(heads=heads, rows=[row[:-1] for row in rows], **known)


def _weights(rows: Sequence[VideoRow | ClipRow]) -> str:
    known = dict.fromkeys((row.model, row.weights) for row in rows)
    return " ".join(f"Weights of {model}: {weights}." for model, weights in known)


def _targets(report: BenchReport) -> Iterator[Section]:
    if report.targets:
        heads = list(report.targets[0])
        lines = [[MISSING if row[name] is None else str(row[name]) for name in heads] for row in report.targets]
        yield Section(id="targets", title="Targets", heads=heads, rows=lines, texts=len(heads))


def _nsight(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Section]:
    """Yield a table of all recordings by nsys, and one of kernels for each model recorded by ncu."""
    recorded = {model: of["--nsys"] for model, of in figures.items() if of.get("--nsys")}
    spans = TypeAdapter(dict[str, SystemsFigures]).validate_python(recorded)
    if spans:
        lines = [[model, *_span(found)] for model, found in spans.items()]
        note = "From the first operation of the GPU to the last. Small kernels take less than 10 us."
        yield Section(id="nsys", title="Nsight Systems", heads=("model", *_SPANS), rows=lines, texts=1, note=note)
    for number, (model, of) in enumerate(figures.items()):
        if kernels := of.get("--ncu"):
            lines = [_kernel(one) for one in TypeAdapter(list[KernelFigures]).validate_python(kernels)]
            title = f"Nsight Compute: {model}"
            note = "Launches after the warm-up in their order. Percent of the GPU's peaks; of warps, those active."
            yield Section(id=f"ncu-{number}", title=title, heads=_KERNELS, rows=lines, texts=1, note=note)


def _kernel(one: KernelFigures) -> list[str]:
    memory = (one.memory_percent, one.l1_hit_percent, one.l2_hit_percent, one.sector_percent)
    return [
        one.name[:80],
        *map(three, (one.us, one.compute_percent, one.tensor_percent, *memory, one.occupancy_percent)),
    ]


def _span(figures: SystemsFigures) -> list[str]:
    copying = sum(copies.ms for copies in figures.copies.values())
    return [
        *(three(figures.span_ms), three(figures.busy_ms), f"{figures.idle_share:.0%}"),
        *(str(figures.gaps), three(figures.longest_gap_ms), str(figures.kernels), str(figures.small_kernels)),
        *(three(figures.kernel_ms), three(figures.launch_ms), three(copying)),
    ]
