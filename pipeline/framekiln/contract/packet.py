"""Packets: whole clips that travel between processes as one row of Ray Data.

Ray Data cuts and merges blocks freely, so that a stage could receive half a clip. A sealed packet is one row: each
column is a list of length one over the same buffers. It cannot be cut, and nothing is copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from framekiln.contract.columns import ON_REQUEST, PIXELS, SOURCE, field, is_pixel_column
from framekiln.contract.row_errors import Failure

RowSpan = tuple[int, int]
"""First row in a unit, and the row after the last."""

HALO = "halo"
_OWN = ("unit", "start", "stop")


@dataclass(frozen=True, kw_only=True)
class Packet:
    """Consecutive rows `start` to `stop` of a unit of media, cut between clips.

    Halo rows (`halo` is true, `clip_index` -1) may follow each clip: copies of the next clip's first frames, for stages
    that look ahead. `start` and `stop` do not count them. An empty packet (`start == stop`) marks the end of its unit.
    """

    unit: str
    start: int
    stop: int
    rows: pa.Table
    failures: tuple[Failure, ...] = ()
    share: float = 0.0  # share of the unit's bytes decoded for this packet, 0 to 1
    ends: bool = False  # true for the last packet before the empty one

    def seal(self) -> pa.Table:
        """Return the packet, without its failures, as one row that Ray Data cannot cut."""
        own = {"unit": pa.array([self.unit]), "start": pa.array([self.start]), "stop": pa.array([self.stop])}
        offsets = pa.array([0, self.rows.num_rows], pa.int64())
        columns = {name: _combine(self.rows[name]) for name in self.rows.column_names}
        lists = {name: pa.LargeListArray.from_arrays(offsets, column) for name, column in columns.items()}
        return pa.table(own | lists)

    @classmethod
    def open(cls, sealed: pa.Table) -> "Packet":
        """Return the packet of a sealed row, over the same buffers.

        Raises ValueError: the table does not have exactly one row.
        """
        if sealed.num_rows != 1:
            raise ValueError(f"a sealed packet is one row, not {sealed.num_rows}")
        own = {name: sealed[name][0].as_py() for name in _OWN}
        names = [name for name in sealed.column_names if name not in _OWN]
        return cls(**own, rows=pa.table({name: _combine(sealed[name]).flatten() for name in names}))


def packet_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a decoded packet's rows with the given columns: `SOURCE`, pixels, sound or tags."""
    others = [name for name in columns if name not in SOURCE.names]
    extra = [pa.field(name, PIXELS if is_pixel_column(name) else ON_REQUEST[name]) for name in others]
    return pa.schema([*SOURCE, *extra, field(HALO, pa.bool_(), "a copy of the next clip's frame", nullable=False)])


def _combine(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
