"""Parts of films in changed copies, encoded again: how many are found, and how many wrong parts.

    [FRAMEKILN_FILMS=FOLDER] python -m benchmarks.accuracy --only film_copies

Each film has one copy of a part of a kind, in a collection with all films. Films are those of the folder, or else of
the test material.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa

from benchmarks.accuracy import AccuracyFigure
from framekiln.contract.columns import DIGEST, Image, pack
from framekiln_stages.duplicates.films import find_parts
from framekiln_stages.duplicates.fingerprint import Fingerprint
from tests.support.media.material import media

Change = Callable[[Image], Image]
MATERIAL = (
    *("video/cockatoo.mp4", "video/test_clip_10s.mp4", "video/av1_video.mkv", "vos/06_pingpong.mp4"),
    *("vos/bedroom.mp4", "av/nasa_13013.mp4", "av/grid/bbaf2n.mpg", "av/grid/lbax4n.mpg", "av/grid/lrwp9a.mpg"),
)
SIDE = 224  # px, the short side that `fingerprint` sees
MOST_S, BEGIN, PART = 12.0, 0.15, 0.7  # s read of a film; a part's begin and length as shares of it
LEAST_S, NEAR_S, COVERED = 3.0, 0.5, 0.8  # of `duplicates`; of two begins; share of a part
_figure = partial(AccuracyFigure, "film_copies")


@dataclass(frozen=True, eq=False, kw_only=True)
class Film:
    """Frames of one size, and their times in s."""

    frames: Sequence[Image]
    time: np.ndarray

    @property
    def fps(self) -> float:
        return float(1 / np.median(np.diff(self.time)))


def _pad(image: Image, rows: float, columns: float) -> Image:
    edges = [(round(side * part),) * 2 for side, part in zip(image.shape, (rows, columns, 0), strict=True)]
    return np.pad(image, edges)


def _crop(image: Image, rows: float, columns: float, top: float = 0.5, left: float = 0.5) -> Image:
    """Cut out a window of these shares of both sides; `top` and `left` say where in the room around it."""
    (height, width), cut = image.shape[:2], (round(image.shape[0] * rows), round(image.shape[1] * columns))
    y, x = round((height - cut[0]) * top), round((width - cut[1]) * left)
    return image[y : y + cut[0], x : x + cut[1]]


def _cover(image: Image, share: float) -> Image:
    """Put a logo with two tones into a corner."""
    covered, (height, width) = image.copy(), (round(side * share) for side in image.shape[:2])
    covered[8 : 8 + height, -width - 8 : -8] = (200, 60, 30)
    covered[8 + height // 4 : 8 + height // 2, -width : -width // 4 - 8] = 255
    return covered


def _subtitle(image: Image) -> Image:
    height, width = image.shape[:2]
    marked, at = image.copy(), (width // 8, round(height * 0.92))
    for colour, thick in ((0, 5), (255, 2)):
        cv2.putText(marked, "what was said there", at, 0, width / 420, [colour] * 3, thick)
    return marked


CHANGES: Mapping[str, Change] = {
    "encoded again": lambda image: image,
    "half size": lambda image: np.asarray(cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)),
    "brighter by 1.4": lambda image: np.asarray(np.minimum(image * 1.4, 255), np.uint8),
    "grey": lambda image: np.repeat(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2),
    "mirrored": lambda image: image[:, ::-1],
    "letterboxed by an eighth": partial(_pad, rows=0.125, columns=0),
    "pillarboxed by an eighth": partial(_pad, rows=0, columns=0.125),
    "with a subtitle": _subtitle,
    "with a logo of an eighth of both sides": partial(_cover, share=0.125),
    "with a logo of a quarter of both sides": partial(_cover, share=0.25),
    "cropped to 0.95 in the middle": partial(_crop, rows=0.95, columns=0.95),
    "cropped to 0.9 in the middle": partial(_crop, rows=0.9, columns=0.9),
    "cropped to 0.9 off the middle": partial(_crop, rows=0.9, columns=0.9, top=0.2, left=0.85),
    "cropped to 0.9 of the height": partial(_crop, rows=0.9, columns=1),
    "mirrored and cropped to 0.9": lambda image: _crop(image, 0.9, 0.9)[:, ::-1],
}
RATES = {"at half the rate": 0.5, "at twice the rate": 2.0, "at 0.83 of the rate": 0.83}


def measure() -> list[AccuracyFigure]:
    """Return the share of parts of each kind that are found, and wrong parts in all collections."""
    folder = os.environ.get("FRAMEKILN_FILMS")
    films = [_read(path) for path in (sorted(Path(folder).iterdir()) if folder else map(media, MATERIAL))]
    originals = [_describe(f"film {number}", film) for number, film in enumerate(films)]
    kinds = [(kind, change, 1.0) for kind, change in CHANGES.items()]
    kinds += [(kind, CHANGES["encoded again"], rate) for kind, rate in RATES.items()]
    figures, wrong = list[AccuracyFigure](), 0
    for kind, change, rate in kinds:
        parts = [_copy(film, change, rate) for film in films]
        copies = [_describe(f"part {number}", part) for number, part in enumerate(parts)]
        hits = set[str]()
        for row in find_parts(pa.concat_tables([*originals, *copies]), LEAST_S):
            number = int(row["media_id"].split()[1])
            is_own = row["media_id"] == f"film {number}" and row["other_media_id"] == f"part {number}"
            begin = BEGIN * (films[number].time[-1] - films[number].time[0])
            is_right = is_own and abs(row["start_s"] - row["other_start_s"] - begin) < NEAR_S
            wrong += not is_right
            if is_right and row["other_end_s"] - row["other_start_s"] >= COVERED * parts[number].time[-1]:
                hits.add(row["media_id"])
        figures.append(_figure(f"parts of {len(films)} films, {kind}", "parts found, share", len(hits) / len(films)))
    every = f"{len(kinds)} collections of {len(films)} films and their parts"
    return [*figures, _figure(every, "wrong parts", wrong, better="lower")]


def _read(source: Path | io.BytesIO) -> Film:
    """Read the first seconds of a film, reduced to `SIDE`."""
    frames, times = list[Image](), list[float]()
    with av.open(str(source) if isinstance(source, Path) else source, "r") as container:
        for frame in container.decode(video=0):
            if times and frame.time - times[0] >= MOST_S:
                break
            scale = min(1.0, SIDE / min(frame.width, frame.height))
            width, height = (round(side * scale) for side in (frame.width, frame.height))
            image = frame.to_ndarray(format="rgb24", width=width, height=height, interpolation="AREA")
            frames.append(np.asarray(image, np.uint8))
            times.append(frame.time)
    return Film(frames=frames, time=np.array(times) - times[0])


def _copy(film: Film, change: Change, rate: float) -> Film:
    """Return a part of a film, changed and encoded at a multiple of its rate."""
    span = film.time[-1] - film.time[0]
    fps = film.fps * rate
    times = BEGIN * span + np.arange(round(PART * span * fps)) / fps
    shown = np.searchsorted(film.time, times + 0.25 / film.fps, side="right") - 1
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as out:
        track = out.add_stream("libx264", rate=round(fps), options={"preset": "veryfast", "crf": "28"})
        height, width = (side // 2 * 2 for side in change(film.frames[0]).shape[:2])
        track.pix_fmt, track.height, track.width = "yuv420p", height, width
        for at in shown:
            even = np.ascontiguousarray(change(film.frames[at])[:height, :width])
            out.mux(track.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        out.mux(track.encode(None))
    stream.seek(0)
    part = _read(stream)
    return Film(frames=part.frames, time=np.arange(len(part.frames)) / fps)


def _describe(name: str, film: Film) -> pa.Table:
    """Return what the step reads of a film."""
    count = len(film.frames)
    keys = {"media_id": pa.array([name] * count), "frame_index": pa.array(range(count), pa.int32())}
    kinds = {"media_type": pa.array(["video"] * count), "digest": pa.nulls(count, DIGEST)}
    times = {"time_s": pa.array(film.time), "fps": pa.array([film.fps] * count, pa.float32())}
    prints = Fingerprint()(pa.table({"frame_224": pack(film.frames), **times, **kinds}))
    columns = dict(zip(prints.column_names, prints.columns, strict=True))
    return pa.table(keys | {"time_s": times["time_s"]} | columns)
