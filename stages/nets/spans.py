"""Where each shot lies among a file's rows: for stages that must not reach across a cut."""

from __future__ import annotations

import pyarrow as pa


def spans(rows: pa.Table, shots: pa.Table) -> list[tuple[int, int, int]]:
    """Number, first position and end of each shot that has rows.

    Args:
        rows: of one file, at least one, by `frame_index`.
        shots: table `shots` of that file, in any order.

    Raises:
        ValueError: no shots are known.
    """
    if not shots.num_rows:
        raise ValueError(f"no shots are known of {rows['media_id'][0].as_py()!r}; its entry in errors/ says why")
    shots = shots.sort_by("first_frame")
    index = rows["frame_index"].to_numpy()
    edges = [*index.searchsorted(shots["first_frame"].to_numpy()).tolist(), len(index)]
    found = zip(shots["shot"].to_pylist(), edges[:-1], edges[1:], strict=True)
    return [(shot, start, stop) for shot, start, stop in found if stop > start]
