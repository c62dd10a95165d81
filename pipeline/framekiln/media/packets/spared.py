"""Frames whose pixels no step needs: their rows are known from an earlier run, or are made without pixels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

from framekiln.contract.columns import is_pixel_column, wrap
from framekiln.contract.packet import HALO, Packet, RowSpan, packet_schema
from framekiln.media.config import DecodeConfig
from framekiln.media.frames import NO_PIXELS, Frame, FrameSource, FrameSpec, IsNeeded
from framekiln.media.packets.packet_builder import OpenClip

ReadRows = Callable[[], pa.Table | None]
"""Reads the rows of a packet, with the columns of `SOURCE`; None if it must be decoded."""


@dataclass(frozen=True, kw_only=True)
class Spared:
    """The frames of a unit that need no decoding, or no conversion."""

    files: Mapping[str, pa.Table] = field(default_factory=dict)  # unopened files' rows, as `SOURCE`
    spans: Mapping[RowSpan, ReadRows] = field(default_factory=dict)  # rows of packets, by their span in the unit
    needed: Mapping[str, Mapping[str, IsNeeded]] = field(default_factory=dict)  # for others, by file and pixel column

    def read(self, media_id: str, columns: tuple[str, ...], config: DecodeConfig) -> tuple[FrameSource, list[OpenClip]]:
        """Return an unopened file from its rows; its frames count in packets as if they had pixels."""
        spec = FrameSpec(pixels=(), dropped=tuple(filter(is_pixel_column, columns)), config=config)
        rows = self.files[media_id].to_pylist()
        source = FrameSource(media_type=rows[0]["media_type"], frames=iter(()), fps=rows[0]["fps"])
        clips = groupby(rows, lambda row: row["clip_index"])
        return source, [
            OpenClip(index=clip, frames=[_make_frame(row, spec, columns) for row in group]) for clip, group in clips
        ]

    def packets(
        self, unit: str, start: int, stop: int, columns: tuple[str, ...], share: float
    ) -> Iterator[Packet] | None:
        """Return packets of a segment's rows, without pixels; None unless all of them are known.

        `share`: of the unit's bytes at the segment's end.
        """
        found, at = list[tuple[RowSpan, pa.Table]](), start
        following = {span[0]: span for span in self.spans if span[1] <= stop}
        while at < stop:
            span = following.get(at)
            rows = None if span is None else self.spans[span]()
            if span is None or rows is None:
                return None
            found.append((span, rows))
            at = span[1]
        return (_make_packet(unit, span, rows, columns, share if span[1] == stop else 0.0) for span, rows in found)


NOTHING_SPARED = Spared()


def _make_packet(unit: str, span: RowSpan, rows: pa.Table, columns: tuple[str, ...], share: float) -> Packet:
    for name in columns:
        rows = rows.append_column(name, wrap([NO_PIXELS] * len(rows)))
    rows = rows.append_column(HALO, pa.array([False] * len(rows)))
    return Packet(unit=unit, start=span[0], stop=span[1], rows=rows.cast(packet_schema(columns)), share=share)


def _make_frame(row: Mapping[str, Any], spec: FrameSpec, columns: tuple[str, ...]) -> Frame:
    values = {name: row[name] for name in ("height", "width", "time_s", "color_space", "damaged")}
    return Frame(
        index=row["frame_index"],
        images=dict.fromkeys(columns, NO_PIXELS),
        dropped_bytes=spec.dropped_bytes(row["height"], row["width"]),
        **values,
    )
