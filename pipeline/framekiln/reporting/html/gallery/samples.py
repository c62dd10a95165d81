"""Frames with the drawing of one step alone, for each step that has results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from framekiln.contract.drawing import Drawing
from framekiln.contract.stage import Stage
from framekiln.reporting.formatting import shorten
from framekiln.reporting.html.gallery.findings import Findings
from framekiln.reporting.html.gallery.frame_picks import FrameKey, Pick
from framekiln.reporting.html.gallery.gallery import LONGEST, drawing_of, safely
from framekiln.reporting.html.gallery.overlays import COLOURS, all_layers, image_uri
from framekiln.reporting.html.gallery.thumbnails import Thumbnail
from framekiln.reporting.table_rows import spread

EACH = 4  # frames of a step
LEGEND = 72  # px


@dataclass(frozen=True, kw_only=True)
class SampleFrame:
    """A frame with one step's drawing."""

    pick: Pick
    drawing: Markup
    after: str  # data URI of the frame as the step changed it; empty where it changed none
    caption: str


@dataclass(frozen=True, kw_only=True)
class StepSamples:
    """One step's frames."""

    step: str
    colour: int | None  # of its lines; None without any
    frames: tuple[SampleFrame, ...]
    legend: str  # data URI; empty without one
    legend_text: str


def step_samples(
    picks: Sequence[Pick], images: Mapping[FrameKey, Thumbnail], findings: Findings, stages: Mapping[str, Stage]
) -> list[StepSamples]:
    """Return the samples of every step that has something to show, in order."""
    shown = [pick for pick in picks if pick.key in images]
    samples = []
    for colour, (name, stage) in enumerate(stages.items()):
        results = [(pick, row) for pick in shown if (row := findings.of(stage, pick.key)) is not None]
        pairs = [(pick, drawing_of(stage, row)) for pick, row in results]
        telling = [pair for pair in pairs if _draws(pair[1])] or [pair for pair in pairs if pair[1].caption]
        if not telling:
            continue
        chosen = _of_many_files(telling)
        legend = next((drawing.legend for _, drawing in chosen if drawing.legend), None)
        sample = StepSamples(
            step=name,
            colour=colour % COLOURS if any(drawing.lines or drawing.points for _, drawing in chosen) else None,
            frames=tuple(_sample(pick, drawing, images[pick.key], colour) for pick, drawing in chosen),
            legend=(image_uri(legend.image, LEGEND, LEGEND, transparent=True) or "") if legend else "",
            legend_text=legend.text if legend else "",
        )
        samples.append(sample)
    return samples


def _of_many_files(pairs: Sequence[tuple[Pick, Drawing]]) -> list[tuple[Pick, Drawing]]:
    """Return evenly spread frames, of different files as far as possible."""
    firsts = list({pick.media_id: (pick, drawing) for pick, drawing in reversed(pairs)}.values())[::-1]
    others = [pair for pair in pairs if all(pair is not first and pair[0] != first[0] for first in firsts)]
    chosen = spread(firsts, EACH)
    return sorted([*chosen, *spread(others, EACH - len(chosen))], key=lambda pair: pair[0])


def _draws(drawing: Drawing) -> bool:
    strokes = drawing.lines or drawing.points or drawing.areas or drawing.labels
    return bool(strokes or drawing.overlay or drawing.result_image)


def _sample(pick: Pick, drawing: Drawing, image: Thumbnail, colour: int) -> SampleFrame:
    size = image.width, image.height
    after = safely(partial(image_uri, drawing.result_image or b"", *size), None)
    return SampleFrame(
        pick=pick,
        drawing=safely(partial(all_layers, drawing, *size, colour), Markup("")),
        after=after or "",
        caption=shorten(str(drawing.caption), LONGEST),
    )
