"""Packets, gathered from clips of many files and closed between clips before they grow too large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pipeline.contract.columns import SOUND, SOURCE, is_pixel_column, pack
from pipeline.contract.packet import HALO, Packet, packet_schema
from pipeline.contract.row_errors import Failure
from pipeline.media.frames import Frame, FrameSource
from pipeline.media.packets.clips import Clip


class PacketBuilder:
    """The growing packet of a unit; `failures` may be appended to at any time and go into the next packet.

    Args:
        unit: its name.
        columns: source columns of the packet.
        max_rows: of one packet.
        max_bytes: of one packet's pixels.
        span: the unit's rows in a segment. The name of its last packet covers all remaining rows, however many frames
            were lost, so that later rows keep their numbers. None: all rows of the unit, ended by an empty packet.
        start: the first row of the first packet, if there is no span.
    """

    def __init__(
        self,
        *,
        unit: str,
        columns: Sequence[str],
        max_rows: int,
        max_bytes: int,
        span: tuple[int, int] | None = None,
        start: int = 0,
    ) -> None:
        self.failures: list[Failure] = []
        self._unit, self._schema = unit, packet_schema(columns)
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._span = span
        self._start = span[0] if span else start
        self._rows = self._bytes = 0  # without halo rows; of pixels only
        self._clear()

    def add(self, media_id: str, source: FrameSource, clip: Clip) -> Iterator[Packet]:
        """Add a clip; yield the packets that are full before or with it."""
        rows, size = len(clip.frames), clip.nbytes
        if self._rows and (self._rows + rows > self._max_rows or self._bytes + size > self._max_bytes):
            yield self._close()
        self._rows, self._bytes = self._rows + rows, self._bytes + size
        for frame in (*clip.frames, *clip.halo):
            self._frames.append(frame)
            shape = (frame.height, frame.width)
            values = (media_id, frame.index, source.media_type, clip.index, frame.time_s, source.fps, *shape)
            for column, value in zip(self._values.values(), values, strict=True):
                column.append(value)
        self._halo.extend([False] * rows + [True] * len(clip.halo))
        full = self._rows >= self._max_rows or self._bytes >= self._max_bytes
        if full and self._span is None:  # a segment's last packet waits for losses after it
            yield self._close()

    def finish(self, share: float = 0.0) -> Iterator[Packet]:
        """Yield the remaining packet, and without a span the empty packet that ends the unit.

        Args:
            share: fraction of the unit's bytes decoded by then, stored in the last packet.
        """
        if self._span is not None:
            if self._start < self._span[1]:
                yield replace(self._close(self._span[1]), share=share)
            return
        if self._rows:
            yield replace(self._close(), ends=True)
        yield replace(self._close(), share=share)

    def _close(self, stop: int | None = None) -> Packet:
        columns = [self._column(name) for name in self._schema.names]
        packet = Packet(
            unit=self._unit,
            start=self._start,
            stop=self._start + self._rows if stop is None else stop,
            rows=pa.Table.from_arrays(columns, schema=self._schema),
            failures=tuple(self.failures),
        )
        self._start = packet.stop
        self.failures.clear()
        self._clear()
        return packet

    def _clear(self) -> None:
        self._frames: list[Frame] = []
        self._values: dict[str, list[Any]] = {name: [] for name in SOURCE.names}
        self._halo: list[bool] = []
        self._rows = self._bytes = 0

    def _column(self, name: str) -> pa.Array:
        if is_pixel_column(name):
            return pack([frame.images[name] for frame in self._frames])
        if name == "sound":
            return pa.array([frame.sound for frame in self._frames], SOUND)
        values = self._halo if name == HALO else self._values[name]
        return pa.array(values, self._schema.field(name).type)
