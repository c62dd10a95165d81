"""Synthetic people: columns of poses with known identities."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from framekiln_stages.shared.skeleton import LANDMARKS, PERSON
from framekiln_stages.shots.stage import SHOTS
from framekiln_stages.tracks.stage import Tracks

HEIGHT, WIDTH, FPS = 360, 640, 25.0
# A standing body, feet at (0, 0), one unit tall: x, y of 33 landmarks in the order of MediaPipe's PoseLandmark.
_HALF = {0: (0, -0.93), 1: (0.01, -0.95), 3: (0.03, -0.95), 7: (0.05, -0.94), 9: (0.02, -0.9), 11: (0.11, -0.8)}
_HALF |= {13: (0.16, -0.62), 15: (0.18, -0.46), 17: (0.19, -0.42), 19: (0.18, -0.41), 21: (0.16, -0.43)}
_HALF |= {23: (0.07, -0.5), 25: (0.07, -0.27), 27: (0.07, -0.05), 29: (0.06, -0.01), 31: (0.1, 0.0)}
BODY = np.zeros((LANDMARKS, 2))
for _mark, (_x, _y) in _HALF.items():
    _other = {0: 0, 1: 4, 3: 6}.get(_mark, _mark + 1)
    BODY[_mark], BODY[_other] = (_x, _y), (-_x, _y)
BODY[2], BODY[5] = BODY[1], BODY[4]


def standing(x, y=300.0, tall=200.0, noise=0.0, rng=None):
    """Return landmarks in px (33 2) of a person with the feet at x, y."""
    points = BODY * tall + (x, y)
    return points if rng is None else points + rng.normal(0, noise, points.shape)


def poses(frames):
    """Return a column `poses` from landmarks in px: for each frame a list of people, or None if the stage failed."""
    return pa.array(
        [None if people is None else [_person(points) for points in people] for people in frames], pa.list_(PERSON)
    )


def _person(points):
    shares = points / (WIDTH, HEIGHT)
    marks = [{"x": x, "y": y, "z": 0.0, "visibility": 0.9, "presence": 0.9} for x, y in shares]
    box = dict(zip(("x0", "y0", "x1", "y1"), [*shares.min(0).clip(0, 1), *shares.max(0).clip(0, 1)], strict=True))
    world = [{"x": 0.0, "y": 0.0, "z": 0.0}] * LANDMARKS
    return {"score": 0.9, "box": box, "landmarks": marks, "world": world}


def batch(frames, times=None, media_id="a.mp4"):
    """Return the input of Tracks, from people in px or from a column of poses."""
    count = len(frames)
    return pa.table(
        {
            "media_id": [media_id] * count,
            "frame_index": pa.array(range(count), pa.int32()),
            "time_s": pa.array(np.arange(count) / FPS if times is None else times, pa.float64()),
            "height": pa.array([HEIGHT] * count, pa.int32()),
            "width": pa.array([WIDTH] * count, pa.int32()),
            "poses": frames if isinstance(frames, pa.Array) else poses(frames),
        }
    )


def shots(*starts, frames, media_id="a.mp4"):
    """Return a table of shots that begin at these frames."""
    ends = [*starts[1:], frames]
    rows = [
        (media_id, i, a, b - 1, b - a, a / FPS, (b - 1) / FPS)
        for i, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]
    named = [dict(zip(SHOTS.names, row, strict=True)) for row in rows]
    return {"shots": pa.Table.from_pylist(named, schema=SHOTS)}


def track(frames, *starts, times=None, **config):
    """Return both tables of Tracks, as rows."""
    stage = Tracks(Tracks.Config(**config))
    tables = stage(batch(frames, times), shots(*(starts or (0,)), frames=len(frames)))
    assert all(tables[name].schema.equals(table.schema) for name, table in stage.tables.items())
    return tables["tracks"].to_pylist(), tables["track_summary"].to_pylist()


def owners(rows, truth):
    """Return the people in each track; `truth` has the names of a frame's poses in order."""
    found = {}
    for row in rows:
        if row["pose_index"] is not None:
            found.setdefault(row["track"], set()).add(truth[row["frame_index"]][row["pose_index"]])
    return found


def middle(row):
    """Return the mean of a row's landmarks, in px."""
    return np.array([(mark["x"] * WIDTH, mark["y"] * HEIGHT) for mark in row["landmarks"]]).mean(0)
