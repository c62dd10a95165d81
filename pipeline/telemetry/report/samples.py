"""What each step found, by itself: a few frames with nothing but that step's drawing, where it found something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from pipeline.stage import Drawing, Stage
from pipeline.telemetry.report.drawings import COLOURS, picture_uri, whole
from pipeline.telemetry.report.findings import Findings
from pipeline.telemetry.report.gallery import LONGEST, preview, safely
from pipeline.telemetry.report.picks import Key, Pick
from pipeline.telemetry.report.rows import spread
from pipeline.telemetry.report.thumbnails import Thumbnail
from pipeline.telemetry.report.words import shorten

EACH = 4  # frames of a step
LEGEND = 72  # px


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A frame with one step's drawing."""

    pick: Pick
    picture: Thumbnail
    drawing: Markup
    after: str  # data URI of the frame as the step made it; empty where it made none
    caption: str


@dataclass(frozen=True, kw_only=True)
class Samples:
    """One step's frames."""

    step: str
    colour: int | None  # of its lines; None without any
    samples: tuple[Sample, ...]
    found: int  # frames that were looked at and have something of it
    legend: str  # data URI; empty without one
    legend_text: str


def samples(
    picks: Sequence[Pick], pictures: Mapping[Key, Thumbnail], findings: Findings, stages: Mapping[str, Stage]
) -> list[Samples]:
    """Every step that has something to show, in their order."""
    shown = [pick for pick in picks if pick.key in pictures]
    made = (_samples(name, i, stage, shown, pictures, findings) for i, (name, stage) in enumerate(stages.items()))
    return [one for one in made if one is not None]


def _samples(
    name: str,
    colour: int,
    stage: Stage,
    picks: Sequence[Pick],
    pictures: Mapping[Key, Thumbnail],
    findings: Findings,
) -> Samples | None:
    found = [(pick, preview(stage, own)) for pick in picks if (own := findings.of(stage, pick.key)) is not None]
    some = [pair for pair in found if _draws(pair[1])] or [pair for pair in found if pair[1].caption]
    if not some:
        return None
    chosen = _of_many_files(some)
    legend = next((drawing.legend for _, drawing in chosen if drawing.legend), None)
    return Samples(
        step=name,
        colour=colour % COLOURS if any(drawing.lines or drawing.points for _, drawing in chosen) else None,
        samples=tuple(_sample(pick, drawing, pictures[pick.key], colour) for pick, drawing in chosen),
        found=len(some),
        legend=(picture_uri(legend.picture, LEGEND, LEGEND, see_through=True) or "") if legend else "",
        legend_text=legend.text if legend else "",
    )


def _of_many_files(found: Sequence[tuple[Pick, Drawing]]) -> list[tuple[Pick, Drawing]]:
    """Evenly spread, of different files as far as there are."""
    firsts = list({pick.media_id: (pick, drawing) for pick, drawing in reversed(found)}.values())[::-1]
    others = [pair for pair in found if all(pair is not one and pair[0] != one[0] for one in firsts)]
    chosen = [firsts[i] for i in spread(len(firsts), EACH)]
    chosen += [others[i] for i in spread(len(others), EACH - len(chosen))] if len(chosen) < EACH else []
    return sorted(chosen, key=lambda pair: pair[0].key)


def _draws(drawing: Drawing) -> bool:
    return bool(drawing.lines or drawing.points or drawing.areas or drawing.labels or drawing.overlay or drawing.after)


def _sample(pick: Pick, drawing: Drawing, picture: Thumbnail, colour: int) -> Sample:
    size = picture.width, picture.height
    after = safely(partial(picture_uri, drawing.after or b"", *size), None)
    return Sample(
        pick=pick,
        picture=picture,
        drawing=safely(partial(whole, drawing, *size, colour), Markup("")),
        after=after or "",
        caption=shorten(str(drawing.caption), LONGEST),
    )
