"""Positions of shots in a file's rows, for stages that must not read across a cut."""

import pyarrow as pa


def spans(rows: pa.Table, shots: pa.Table) -> list[tuple[int, int, int]]:
    """Return the number, first position and end of each shot that has rows.

    Args:
        rows: at least one row of one file, sorted by `frame_index`.
        shots: the file's rows of table `shots`, in any order.

    Raises:
        ValueError: the file has no shots.
    """
    if not shots.num_rows:
        raise ValueError(f"no shots are known of {rows['media_id'][0].as_py()!r}; its entry in errors/ says why")
    shots = shots.sort_by("first_frame")
    index = rows["frame_index"].to_numpy()
    edges = [*index.searchsorted(shots["first_frame"].to_numpy()).tolist(), len(index)]
    shots_with_edges = zip(shots["shot"].to_pylist(), edges[:-1], edges[1:], strict=True)
    return [(shot, start, stop) for shot, start, stop in shots_with_edges if stop > start]
