"""Spans of a video in which the picture stands still: a frozen stream, a title, a slide, or black.

All frames of such a span are equal, so one is enough for training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from framekiln.contract import MEDIA_ID, Drawing, NonNegative, Scope, Stage, Table, field
from framekiln_stages.shared.result_agreement import float_values

SPANS = pa.schema(
    [
        MEDIA_ID,
        field("first_frame", pa.int32(), "frame_index of the first frame", nullable=False),
        field("last_frame", pa.int32(), "frame_index of the last equal frame", nullable=False),
        field("start_s", pa.float64(), "time of the first frame", "s", nullable=False),
        field("end_s", pa.float64(), "time of the last frame", "s", nullable=False),
        field("is_black", pa.bool_(), "true if the first frame is black", nullable=False),
    ]
)


class Frozen(Stage):
    """Spans of frames that show the same picture."""

    finds = (("frozen", "still span", "still spans"),)
    scope = Scope.MEDIA
    inputs = ("media_id", "frame_index", "time_s", "change", "repeats", "is_black")
    tables: ClassVar[dict[str, Table]] = {
        "frozen": Table(
            schema=SPANS, keys=("media_id", "first_frame"), description="spans in which the picture stands still"
        )
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The shortest span, and a codec's change."""

        least_s: NonNegative = 2.0  # shortest span, as in ffmpeg's freezedetect and blackdetect
        # Largest `change` to a key frame of a still picture, in codes: 3 at CRF 20, 10 at 30, 17 at 36. A line of text
        # that appears has 60 and more.
        refresh: NonNegative = 20.0

    def __call__(self, batch: pa.Table) -> dict[str, pa.Table]:
        rows = batch.sort_by("frame_index")
        same = np.array(rows["repeats"].to_pylist(), np.bool_)  # null counts as false
        lone = np.zeros_like(same)  # a key frame between still ones shows the same
        lone[1:-1] = same[:-2] & same[2:] & (float_values(rows["change"])[1:-1] <= self.config.refresh)
        edges = np.flatnonzero(np.diff((same | lone).astype(np.int8), prepend=0, append=0)).clip(max=len(same) - 1)
        index, time, black = (rows[name].to_pylist() for name in ("frame_index", "time_s", "is_black"))
        spans = [
            {"first_frame": index[first], "last_frame": index[last], "start_s": time[first], "end_s": time[last]}
            | {"media_id": rows["media_id"][0].as_py(), "is_black": bool(black[first])}
            for first, last in edges.reshape(-1, 2).tolist()
            if time[first] is not None and _measure_span(time, first, last) >= self.config.least_s - 1e-6
        ]
        return {"frozen": pa.Table.from_pylist(spans, schema=SPANS)}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        spans = [f"still from {span['start_s']:.1f} to {span['end_s']:.1f} s" for span in row["frozen"]]
        return Drawing(caption="; ".join(spans)) if spans else None


def _measure_span(time: Sequence[float], first: int, last: int) -> float:
    """Return the seconds from one frame to the end of another; the last frame lasts as long as the one before."""
    end = time[last + 1] if last + 1 < len(time) else 2 * time[last] - time[last - 1]
    return end - time[first]
