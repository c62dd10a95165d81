"""A packet: whole clips that travel between processes as one row of Ray Data.

Ray Data cuts and merges blocks as it sees fit, which would hand half a clip to a stage in silence. A sealed packet is
one row whose every column is a list of length one over the same buffers, so nothing can be cut, and nothing is
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.columns import SOURCE, field, source_type
from pipeline.failure import Failure

HALO = "halo"
_OWN = ("unit", "start", "stop")


@dataclass(frozen=True, kw_only=True)
class Packet:
    """Consecutive rows `start` to `stop` of a unit of media, cut between clips.

    The rows may be interleaved with halo rows (`halo` true): copies of the next clip's first frames that follow a
    clip for those stages that look ahead. They are not counted in `start` and `stop`. An empty packet (`start ==
    stop`) marks the end of its unit.
    """

    unit: str
    start: int
    stop: int
    rows: pa.Table
    failures: tuple[Failure, ...] = ()
    share: float = 0.0  # of the unit's bytes that its decoder is done with, once it has handed this packet on
    ends: bool = False  # whether only the empty one follows it in its unit

    def seal(self) -> pa.Table:
        """One row that Ray Data cannot cut; failures stay behind."""
        own = {"unit": pa.array([self.unit]), "start": pa.array([self.start]), "stop": pa.array([self.stop])}
        offsets = pa.array([0, self.rows.num_rows], pa.int64())
        lists = {
            name: pa.LargeListArray.from_arrays(offsets, _whole(self.rows[name])) for name in self.rows.column_names
        }
        return pa.table(own | lists)

    @classmethod
    def open(cls, sealed: pa.Table) -> Packet:
        """The packet in a sealed row, over the same buffers."""
        if sealed.num_rows != 1:
            raise ValueError(f"a sealed packet is one row, not {sealed.num_rows}")
        own = {name: sealed[name][0].as_py() for name in _OWN}
        names = [name for name in sealed.column_names if name not in _OWN]
        return cls(**own, rows=pa.table({name: _whole(sealed[name]).flatten() for name in names}))


def packet_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of a decoded packet's rows when the given source columns were asked for."""
    extra = [pa.field(name, source_type(name)) for name in columns if name not in SOURCE.names]
    return pa.schema([*SOURCE, *extra, field(HALO, pa.bool_(), "a copy of the next clip's frame", nullable=False)])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
