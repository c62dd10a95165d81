"""`index.html` of a bench as one file: findings, cells, plots, layers, videos, clips, comparison and history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framekiln.lab.measure.layers import slowest
from framekiln.lab.output.results import BenchReport, writing
from framekiln.lab.samples import clip_rows, video_rows
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sav.scores import preview
from framekiln.reporting.bench import plots, tables
from framekiln.reporting.bench.history import HistoryLine
from framekiln.reporting.bench.regression import SIDES
from framekiln.reporting.compare.comparison import FigurePair
from framekiln.reporting.compare.gate import Verdict
from framekiln.reporting.compare.tables import figures_table
from framekiln.reporting.kit.pages import image_uri, render_page

FRAMES = 3  # of an object: the first, the middle and the last one; a mask that drifts is seen in the last
OBJECTS = 8  # with four models about 100 pictures of 15 to 30 kB: a page that can still be mailed
WIDTH = 420  # px


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A model's mask of an object in one frame."""

    model: str
    uri: str  # a JPEG as a data URI


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """One frame of an object, with a picture of each model that tracked it."""

    video: str
    object: str
    frame: str  # its stem
    pictures: Sequence[Picture]


def picture_rows(rows: Sequence[VideoRow], folder: Path) -> list[PictureRow]:
    """Return pictures of the first objects from the folder of `--overlays`; those that cannot be read are left out."""
    objects = dict.fromkeys((row.video, row.object) for row in rows if row.outcome == "ok")
    return [line for video, name in list(objects)[:OBJECTS] for line in _of_object(rows, folder, video, name)]


def _of_object(rows: Sequence[VideoRow], folder: Path, video: str, name: str) -> Iterator[PictureRow]:
    models = dict.fromkeys(row.model for row in rows if (row.video, row.object, row.outcome) == (video, name, "ok"))
    files = {model: {path.stem: path for path in (folder / model / video / name).glob("*.jpg")} for model in models}
    stems = sorted({stem for of_model in files.values() for stem in of_model})
    places = np.linspace(0, len(stems) - 1, FRAMES).round().astype(int).tolist() if stems else []
    for stem in dict.fromkeys(stems[place] for place in places):
        paths = {model: of_model[stem] for model, of_model in files.items() if stem in of_model}
        found = {model: preview(path, WIDTH) for model, path in paths.items()}
        pictures = [Picture(model=model, uri=image_uri(jpeg)) for model, jpeg in found.items() if jpeg]
        if pictures:
            yield PictureRow(video=video, object=name, frame=stem, pictures=pictures)


PAGE = "index.html"


def write_page(
    path: Path,
    report: BenchReport,
    changes: Sequence[FigurePair] = (),
    verdicts: Sequence[Verdict] = (),
    entries: Sequence[HistoryLine] = (),
    pictures: Sequence[PictureRow] = (),
) -> Path:
    """Write the page, and return its path.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(path):
        path.write_text(render(report, changes, verdicts, entries, pictures), encoding="utf-8", errors="replace")
    return path


def render(
    report: BenchReport,
    changes: Sequence[FigurePair] = (),
    verdicts: Sequence[Verdict] = (),
    entries: Sequence[HistoryLine] = (),
    pictures: Sequence[PictureRow] = (),
) -> str:
    """Return the page; the same figures give the same page."""
    values = {
        "report": report,
        "names": _name_models(report),
        "changes": changes and figures_table(changes, SIDES, "Cell"),
        "verdicts": verdicts,
        "entries": entries,
        "history": tables.history_table(entries),
        "pictures": pictures,
        "facts": _facts(report),
        "cells": tables.cells_table(report),
        "notes": _notes(report),
        "scatter": plots.throughput(report.cells),
        "memory": plots.memory_charts(report.cells),
        "layers": [(cell, slowest(cell.layers), tables.layers_table(cell)) for cell in report.cells if cell.layers],
        "frames": plots.frames_chart(video_rows(report)),
        "drawn": plots.history_chart(entries),
        "sections": tables.sections(report),
        "clips": clip_rows(report),
    }
    return render_page("bench.html", values)


def _name_models(report: BenchReport) -> str:
    """Return the names of all models that were measured in any way."""
    named = [model.name for model in report.models]
    rows = [*report.video, *report.extra.get("clips", [])]
    return ", ".join(dict.fromkeys([*named, *(str(row["model"]) for row in rows), *report.extra.get("nsight", {})]))


def _facts(report: BenchReport) -> dict[str, str]:
    """Return what figures depend on beside the model, by name."""
    about = report.environment
    known = {
        "Device": about.get("gpu") or about.get("processor"),
        "Driver": about.get("driver"),
        "CUDA, cuDNN": ", ".join(str(about[name]) for name in ("cuda", "cudnn") if about.get(name)),
        "torch": about.get("torch"),
        "Threads": f"{about.get('threads')} of {about.get('cores')} cores",
        "Load before": f"{about.get('load') or 0:.1f}",
        "Measured": report.made,
        "Command": " ".join(report.argv),
    }
    return {name: str(value) for name, value in known.items() if value}


def _notes(report: BenchReport) -> dict[str, list[str]]:
    """Return the cells by their notes: a sweep has one note in many cells."""
    found: dict[str, list[str]] = {}
    for cell in report.cells:
        for note in cell.notes:
            found.setdefault(note, []).append(f"{cell.model}, {cell.cell.title}")
    return found
