"""Who is who from frame to frame, so that a person's motion can be read and a flicker told from a movement.

Pose sees each frame by itself; here its people become paths in time, within a shot and never across a cut, with
landmarks smoothed and gaps bridged. `stages/nets/tracking.py` holds the rules.

Shapes: n people of all frames, 33 landmarks; m frames of a track.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import FRAME_INDEX, MEDIA_ID, field
from pipeline.stage import Drawing, Label, Scope, Stage, Table
from stages.nets.blazepose import LANDMARKS
from stages.nets.skeleton import BONES, LANDMARK
from stages.nets.spans import spans
from stages.nets.tracking import Path, Values, filled, follow, jitter, one_euro, sizes

TRACK = field("track", pa.int32(), "number of the person in the file, from 0, by first frame", nullable=False)
SHOT = field("shot", pa.int32(), "the shot that the track lies in", nullable=False)
ROWS = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        TRACK,
        SHOT,
        field("pose_index", pa.int32(), "which of the frame's `poses` it is; null where the person was missed"),
        field(
            "landmarks",
            pa.list_(LANDMARK, LANDMARKS),
            "as in `poses`, smoothed; interpolated where the person was missed",
            nullable=False,
        ),
    ]
)
SUMMARY = pa.schema(
    [
        MEDIA_ID,
        TRACK,
        SHOT,
        field("first_frame", pa.int32(), "frame_index of the first frame", nullable=False),
        field("last_frame", pa.int32(), "frame_index of the last frame", nullable=False),
        field("frames", pa.int32(), "frames in which the person was found", nullable=False),
        field("missing", pa.int32(), "frames between in which the person was missed", nullable=False),
        field("size", pa.float32(), "median diagonal of the person's box", "px"),
        field("jitter", pa.float32(), "trembling of landmarks as found; null under three frames in a row", "size"),
        field("jitter_smoothed", pa.float32(), "trembling of the smoothed landmarks", "size"),
    ]
)
MARKS = LANDMARK.num_fields  # x, y, z, visibility, presence


class Tracks(Stage):
    """People through the frames of each shot."""

    scope = Scope.MEDIA

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """How alike one must stay, for how long one may be missed, and how hard to smooth.

        Raises:
            ValueError: a likeness outside 0 to 1, or a time, cutoff or beta that makes no sense.
        """

        # Mean of keypoint similarity and overlap. Who moves by a third of the own width has .25; neighbours have 0.
        least_likeness: float = 0.2
        bridge_s: float = 0.5  # a step behind somebody else takes half a second; later it may be another person
        # One-euro, in body diagonals; 1 Hz at rest is what the paper starts from. With these, at 25 fps, noise of 1 %
        # falls to a fifth, and who moves by a diagonal a second lags by .3 frames (beta 3: to a seventh, .7 frames; 30:
        # to a third, .1).
        min_cutoff: float = 1.0
        beta: float = 10.0

        def __post_init__(self) -> None:
            if not 0 < self.least_likeness <= 1:
                raise ValueError(f"least_likeness must lie between 0 and 1, not {self.least_likeness}")
            if self.bridge_s < 0 or self.min_cutoff <= 0 or self.beta < 0:
                raise ValueError("bridge_s and beta must be at least 0, and min_cutoff above 0")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The people of all frames of a file, and when and how large the frames are."""
        return ("media_id", "frame_index", "time_s", "height", "width", "poses")

    @property
    def reads(self) -> tuple[str, ...]:
        """Where shots begin."""
        return ("shots",)

    @property
    def tables(self) -> dict[str, Table]:
        """One row a track and frame, and one row a track."""
        keys = ("media_id", "frame_index", "track")
        return {
            "tracks": Table(schema=ROWS, keys=keys, description="people from frame to frame"),
            "track_summary": Table(schema=SUMMARY, keys=("media_id", "track"), description="figures of each track"),
        }

    def __call__(self, batch: pa.Table, tables: Mapping[str, pa.Table] = MappingProxyType({})) -> dict[str, pa.Table]:
        """All frames of one file, in any order, and its shots.

        Raises:
            ValueError: there are frames, but no shots.
        """
        rows = batch.sort_by("frame_index")
        found: list[pa.Table] = []
        figures: list[dict[str, Any]] = []
        for number, (shot, path, frames) in enumerate(self._paths(rows, tables)):
            part, own = self._track(rows, frames, path)
            about = {"track": number, "shot": shot}
            found.append(_with(part, about))
            figures.append({"media_id": rows["media_id"][0].as_py()} | about | own)
        whole = pa.concat_tables([*found, ROWS.empty_table()]).sort_by(
            [("frame_index", "ascending"), ("track", "ascending")]
        )
        return {"tracks": whole, "track_summary": pa.Table.from_pylist(figures, schema=SUMMARY)}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Everybody's smoothed skeleton, with the number of the track; None without people."""
        tracks = row.get("tracks")
        if not tracks:
            return None
        bodies = [[(mark["x"], mark["y"]) for mark in one["landmarks"]] for one in tracks]
        names = [f"track {one['track']}" for one in tracks]
        return Drawing(
            lines=[(*body[a], *body[b]) for body in bodies for a, b in BONES],
            labels=[Label(x=body[0][0], y=body[0][1], text=name) for body, name in zip(bodies, names, strict=True)],
            caption=", ".join(names),
        )

    def _paths(self, rows: pa.Table, tables: Mapping[str, pa.Table]) -> Iterator[tuple[int, Path, Frames]]:
        if not rows.num_rows:
            return
        frames = Frames.of(rows)
        for shot, start, stop in spans(rows, tables["shots"]):
            part = frames.cut(start, stop)
            for path in follow(part.people, part.times, self.config.least_likeness, self.config.bridge_s):
                yield shot, path, part

    def _track(self, rows: pa.Table, frames: Frames, path: Path) -> tuple[pa.Table, dict[str, Any]]:
        first, last = path.frames[0], path.frames[-1]
        times = frames.times[first : last + 1]
        seen = np.stack([frames.people[i][pose] for i, pose in zip(path.frames, path.poses, strict=True)])
        size = max(float(np.median(sizes(seen))), 1.0)
        raw = filled(seen, path.frames, times)
        smooth = raw.copy()
        smooth[..., :3] = size * one_euro(raw[..., :3] / size, times, self.config.min_cutoff, self.config.beta)
        at = frames.start + first
        index = rows["frame_index"].slice(at, len(times)).combine_chunks()
        poses = dict(zip(path.frames, path.poses, strict=True))
        part = pa.table(
            {
                "media_id": rows["media_id"].slice(at, len(times)),
                "frame_index": index,
                "pose_index": pa.array([poses.get(i) for i in range(first, last + 1)], pa.int32()),
                "landmarks": landmarks(smooth / frames.scale[first : last + 1, None]),
            }
        )
        trembling = [jitter(points[..., :2] / size, path.frames, times) for points in (raw, smooth)]
        return part, {
            "first_frame": index[0].as_py(),
            "last_frame": index[-1].as_py(),
            "frames": len(seen),
            "missing": len(times) - len(seen),
            "size": size,
            "jitter": trembling[0],
            "jitter_smoothed": trembling[1],
        }


@dataclass(frozen=True)
class Frames:
    """Consecutive frames of a file."""

    start: int  # position of the first in the file's rows
    people: list[Values]  # by frame, p 33 5 with x, y, z in px
    times: Values  # seconds
    scale: Values  # by frame, what turns shares into px: width, height, width, 1, 1

    @classmethod
    def of(cls, rows: pa.Table) -> Frames:
        """All frames of a file; a frame whose poses failed has none."""
        width, height = (rows[name].to_numpy().astype(np.float64) for name in ("width", "height"))
        one = np.ones_like(width)
        scale = np.stack([width, height, width, one, one], axis=1)
        poses = rows["poses"].combine_chunks()
        counts = poses.value_lengths().fill_null(0).to_numpy()
        marks = bodies(poses) * np.repeat(scale, counts, axis=0)[:, None]
        # A photo has no time, and a frame needs none beside it.
        times = rows["time_s"].fill_null(0.0).to_numpy().astype(np.float64)
        return cls(0, np.split(marks, np.cumsum(counts)[:-1]), times, scale)

    def cut(self, start: int, stop: int) -> Frames:
        """Those from one position to before another."""
        return Frames(start, self.people[start:stop], self.times[start:stop], self.scale[start:stop])


def bodies(poses: pa.ListArray) -> Values:
    """Landmarks of all people of a column of poses: n 33 5, as stored."""
    people = poses.flatten()
    marks = people.flatten()[people.type.get_field_index("landmarks")].flatten()
    return (
        np.stack([column.to_numpy() for column in marks.flatten()], axis=1).reshape(-1, LANDMARKS, MARKS).astype(float)
    )


def landmarks(body: Values) -> pa.FixedSizeListArray:
    """Landmarks (m 33 5) as in `poses`."""
    flat: NDArray[np.float32] = body.reshape(-1, MARKS).astype(np.float32)
    marks = pa.StructArray.from_arrays([pa.array(np.ascontiguousarray(c)) for c in flat.T], fields=list(LANDMARK))
    return pa.FixedSizeListArray.from_arrays(marks, LANDMARKS)


def _with(part: pa.Table, about: Mapping[str, int]) -> pa.Table:
    """The rows of a track, with what is the same in all of them."""
    columns = {name: pa.array([value] * part.num_rows, pa.int32()) for name, value in about.items()}
    made = {name: part[name] for name in part.column_names} | columns
    return pa.table([made[name] for name in ROWS.names], schema=ROWS)
