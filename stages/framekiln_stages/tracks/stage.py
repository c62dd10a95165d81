"""Tracks of people from frame to frame within a shot, with smoothed landmarks and bridged gaps.

`Pose` detects people in each frame alone. `stages/framekiln_stages/tracks/tracking.py` has the rules that link them.

Shapes: n people of all frames, 33 landmarks; m frames of a track.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa

from framekiln.contract import FRAME_INDEX, MEDIA_ID, Drawing, Label, Scope, Stage, Table, annotates, field
from framekiln.contract.limits import Limits, NonNegative, Positive
from framekiln_stages.shared.skeleton import BODY_POINTS, BONES, LANDMARK, LANDMARKS, landmarks
from framekiln_stages.shared.tables import BODY, spans, struct_lists
from framekiln_stages.tracks import tracking
from framekiln_stages.tracks.tracking import Path, Values

TRACK = field("track", pa.int32(), "number of the person in the file, from 0, by first frame", nullable=False)
SHOT = field("shot", pa.int32(), "the shot that the track lies in", nullable=False)
ROWS = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        TRACK,
        SHOT,
        annotates(
            field("pose_index", pa.int32(), "index in the frame's `poses`; null if the person was missed"),
            of="poses",
            track="track",
        ),
        annotates(
            field(
                "landmarks",
                pa.list_(LANDMARK, LANDMARKS),
                f"{BODY}; smoothed, and interpolated if the person was missed",
                nullable=False,
            ),
            **{**BODY_POINTS, "kind": "tracks"},
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
        field("size", pa.float32(), "median diagonal of the box around all landmarks, in the image or not", "px"),
        field("jitter", pa.float32(), "trembling of detected landmarks; null under three consecutive frames", "size"),
        field("jitter_smoothed", pa.float32(), "trembling of the smoothed landmarks", "size"),
    ]
)


class Tracks(Stage):
    """People through the frames of each shot."""

    finds = (("track_summary", "track of a person", "tracks of people"),)
    version = 3
    scope = Scope.MEDIA
    inputs = ("media_id", "frame_index", "time_s", "height", "width", "poses")
    input_tables = ("shots",)
    tables: ClassVar[dict[str, Table]] = {
        "tracks": Table(
            schema=ROWS, keys=("media_id", "frame_index", "track"), description="people from frame to frame"
        ),
        "track_summary": Table(schema=SUMMARY, keys=("media_id", "track"), description="figures of each track"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Least similarity, longest gaps, least time and strength of smoothing."""

        # Least mean of keypoint similarity and overlap that continues a track: 0.25 after a move by a third of the
        # person's width, 0 for neighbours.
        least_likeness: Annotated[float, Limits(gt=0, le=1)] = 0.2
        # Longest gap; passing behind somebody takes 0.5 s, and later it may be another person.
        bridge_s: NonNegative = 0.5
        # Longest gap beside another visible person, as in an embrace.
        hidden_s: NonNegative = 3.0
        # Shortest track; a frame lasts until the next one. It is three frames at 25 and 30 a second, the fewest with a
        # jitter, and one at 10 or less. A shorter shot needs all its frames.
        least_s: NonNegative = 0.1
        # One-euro filter of positions, in body diagonals; 1 Hz at rest is the paper's start value. At 25 fps noise of 1
        # % falls to a fifth, and a move of a diagonal a second lags by 0.3 frames. beta 3: a seventh, 0.7 frames; 30: a
        # third, 0.1.
        min_cutoff: Positive = 1.0
        beta: NonNegative = 10.0

    def __call__(self, batch: pa.Table, tables: Mapping[str, pa.Table] = MappingProxyType({})) -> dict[str, pa.Table]:
        """Track the people of one file within its shots. Raises ValueError: the file has frames, but no shots."""
        rows = batch.sort_by("frame_index")
        parts: list[pa.Table] = [ROWS.empty_table()]
        figures: list[dict[str, Any]] = []
        for number, (shot, path, frames) in enumerate(self._find_paths(rows, tables)):
            part, own = self._track(rows, frames, path, {"track": number, "shot": shot})
            parts.append(part)
            figures.append(own)
        tracks = pa.concat_tables(parts).sort_by([("frame_index", "ascending"), ("track", "ascending")])
        return {"tracks": tracks, "track_summary": pa.Table.from_pylist(figures, schema=SUMMARY)}

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return smoothed skeletons with the numbers of their tracks; None without people."""
        tracks = row.get("tracks")
        if not tracks:
            return None
        bodies = [[(mark["x"], mark["y"]) for mark in track["landmarks"]] for track in tracks]
        names = [f"track {track['track']}" for track in tracks]
        return Drawing(
            lines=[(*body[a], *body[b]) for body in bodies for a, b in BONES],
            labels=[Label(x=body[0][0], y=body[0][1], text=name) for body, name in zip(bodies, names, strict=True)],
            caption=", ".join(names),
        )

    def _find_paths(self, rows: pa.Table, tables: Mapping[str, pa.Table]) -> "Iterator[tuple[int, Path, Frames]]":
        if not rows.num_rows:
            return
        frames = Frames.from_rows(rows)
        for shot, start, stop in spans(rows, tables["shots"]):
            part = frames.cut(start, stop)
            limits = tracking.TrackLimits(self.config.least_likeness, self.config.bridge_s, self.config.hidden_s)
            lasting = tracking.durations(part.times)
            least = min(self.config.least_s, float(lasting.sum())) - 1e-6  # times are rounded in files
            for path in tracking.follow(part.people, part.times, limits):
                if lasting[path.frames].sum() >= least:
                    yield shot, path, part

    def _track(
        self, rows: pa.Table, frames: "Frames", path: Path, numbers: Mapping[str, int]
    ) -> tuple[pa.Table, dict[str, Any]]:
        first, last = path.frames[0], path.frames[-1]
        times = frames.times[first : last + 1]
        seen = np.stack([frames.people[i][pose] for i, pose in zip(path.frames, path.poses, strict=True)])
        size = max(float(np.median(tracking.sizes(seen))), 1.0)
        raw = tracking.filled(seen, path.frames, times)
        smooth = raw.copy()
        smooth[..., :3] = size * tracking.one_euro(raw[..., :3] / size, times, self.config.min_cutoff, self.config.beta)
        part = rows.select(["media_id", "frame_index"]).slice(frames.start + first, len(times))
        poses = dict(zip(path.frames, path.poses, strict=True))
        columns = {
            **{name: part[name] for name in part.column_names},
            **{name: pa.array([value] * len(times), pa.int32()) for name, value in numbers.items()},
            "pose_index": pa.array([poses.get(i) for i in range(first, last + 1)], pa.int32()),
            "landmarks": struct_lists(smooth / frames.scale[first : last + 1, None], LANDMARK),
        }
        trembling = [tracking.jitter(points[..., :2] / size, path.frames, times) for points in (raw, smooth)]
        return pa.table(columns, schema=ROWS), {
            **numbers,
            "media_id": part["media_id"][0].as_py(),
            "first_frame": part["frame_index"][0].as_py(),
            "last_frame": part["frame_index"][-1].as_py(),
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
    scale: Values  # by frame, factors from fractions to px: width, height, width, 1, 1

    @classmethod
    def from_rows(cls, rows: pa.Table) -> "Frames":
        """Return all frames of a file; a frame with failed poses has no people."""
        width, height = (rows[name].to_numpy().astype(np.float64) for name in ("width", "height"))
        ones = np.ones_like(width)
        scale = np.stack([width, height, width, ones, ones], axis=1)
        poses = rows["poses"].combine_chunks()
        counts = poses.value_lengths().fill_null(0).to_numpy()
        marks = landmarks(poses.flatten()) * np.repeat(scale, counts, axis=0)[:, None]
        # A photo has no time, and one frame: 0 serves.
        times = rows["time_s"].fill_null(0.0).to_numpy().astype(np.float64)
        return cls(0, np.split(marks, np.cumsum(counts)[:-1]), times, scale)

    def cut(self, start: int, stop: int) -> "Frames":
        """Return the frames from `start` to before `stop`."""
        return Frames(start, self.people[start:stop], self.times[start:stop], self.scale[start:stop])
