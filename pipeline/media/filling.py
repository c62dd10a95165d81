"""Clips of many files are gathered into packets, and a packet is closed between clips before it grows too large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.columns import SOURCE, is_pixels, pack
from pipeline.failure import Failure
from pipeline.media.clips import Clip
from pipeline.media.frames import Frame, Opened, Sound
from pipeline.packet import HALO, Packet, packet_schema


class Filling:
    """The packet of a unit that is being filled; `failures` may be appended to at any time and ride on the next.

    Args:
        unit: its name.
        columns: source columns that stages ask for.
        most_rows: of one packet.
        most_bytes: of one packet's pixels.
        span: the unit's rows that are a segment's; its last packet has all that is left of them in its name, however
            many frames were lost, so that later rows keep their numbers. None: all rows of the unit, ended by an empty
            packet.
        start: the unit's row with which the first packet begins, where there is no span.
    """

    def __init__(
        self,
        *,
        unit: str,
        columns: Sequence[str],
        most_rows: int,
        most_bytes: int,
        span: tuple[int, int] | None = None,
        start: int = 0,
    ) -> None:
        self.failures: list[Failure] = []
        self._unit, self._schema = unit, packet_schema(columns)
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._span = span
        self._start = span[0] if span else start
        self._own = self._bytes = 0
        self._clear()

    def add(self, media_id: str, source: Opened, clip: Clip) -> Iterator[Packet]:
        """Take in a clip; yields the packets that are full, before or with it."""
        rows, size = len(clip.frames), clip.nbytes
        if self._own and (self._own + rows > self._most_rows or self._bytes + size > self._most_bytes):
            yield self._close()
        self._own, self._bytes = self._own + rows, self._bytes + size
        for frame in (*clip.frames, *clip.halo):
            self._frames.append(frame)
            values = (
                media_id,
                frame.index,
                source.media_type,
                clip.index,
                frame.time_s,
                source.fps,
                frame.height,
                frame.width,
            )
            for column, value in zip(self._values.values(), values, strict=True):
                column.append(value)
        self._values_halo.extend([False] * rows + [True] * len(clip.halo))
        full = self._own >= self._most_rows or self._bytes >= self._most_bytes
        if full and self._span is None:  # a segment's last packet waits for what is lost after it
            yield self._close()

    def finish(self, share: float = 0.0) -> Iterator[Packet]:
        """What is left, and where it has no span the empty packet that ends the unit.

        `share` of the unit's bytes have been decoded once that is done; the last packet says so.
        """
        if self._span is not None:
            if self._start < self._span[1]:
                yield replace(self._close(self._span[1]), share=share)
            return
        if self._own:
            yield replace(self._close(), ends=True)
        yield replace(self._close(), share=share)

    def _close(self, stop: int | None = None) -> Packet:
        columns = [self._column(name) for name in self._schema.names]
        failures = tuple(self.failures)
        packet = Packet(
            unit=self._unit,
            start=self._start,
            stop=self._start + self._own if stop is None else stop,
            rows=pa.Table.from_arrays(columns, schema=self._schema),
            failures=failures,
        )
        self._start = packet.stop
        self.failures.clear()
        self._clear()
        return packet

    def _clear(self) -> None:
        self._frames: list[Frame] = []
        self._values: dict[str, list[Any]] = {name: [] for name in SOURCE.names}
        self._values_halo: list[bool] = []
        self._own = self._bytes = 0

    def _column(self, name: str) -> pa.Array:
        if is_pixels(name):
            return pack([frame.images[name] for frame in self._frames])
        if name == "sound":
            return sound_column([frame.sound for frame in self._frames])
        values = self._values_halo if name == HALO else self._values[name]
        return pa.array(values, self._schema.field(name).type)


def sound_column(slices: Sequence[Sound | None]) -> pa.LargeListArray:
    """Slices of sound as a column of `columns.SOUND`; None is null."""
    offsets = np.zeros(len(slices) + 1, dtype=np.int64)
    np.cumsum([0 if part is None else len(part) for part in slices], out=offsets[1:])
    data = np.concatenate([np.zeros(0, np.int16), *(part for part in slices if part is not None)])
    mask = pa.array([part is None for part in slices], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(data), mask=mask)
