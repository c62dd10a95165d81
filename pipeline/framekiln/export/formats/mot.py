"""MOTChallenge: SPLIT/FILM/gt/gt.txt, img1/ and seqinfo.ini, as TrackEval and labelling tools read them.

A line is frame, track, left, top, width, height, 1, class, visibility. Frames, tracks and px begin at 1, as in
MOTChallenge; frame 1 is `frame_index` 0.
"""

import configparser
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from framekiln.contract.words import counted
from framekiln.export.annotation import PHOTO, Annotation, ExportedImage
from framekiln.export.formats.base import Format
from framekiln.media.media_ids import as_folder


class Writer(Format):
    """Two small files a video; one video is in memory at a time, as numbers."""

    kinds = frozenset({"tracks"})
    default = kinds
    needs_annotations = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._film: ExportedImage | None = None
        self._lines: list[str] = []
        self._tracks: dict[tuple[str, int], int] = {}
        self._last = self._photos = 0

    def folder_of(self, image: ExportedImage) -> str:
        return image.split

    def name_of(self, image: ExportedImage, suffix: str = "") -> str:
        """Return MOTChallenge's name of a frame's picture."""
        if image.media_type == PHOTO:
            return super().name_of(image, suffix)
        return f"{as_folder(image.media_id)}/img1/{image.frame_index + 1:06d}{suffix or '.jpg'}"

    def choose(self, images: Sequence[ExportedImage]) -> list[ExportedImage]:
        """See `Format`: frames of videos, with tracked objects."""
        films = [image for image in images if image.media_type != PHOTO]
        self._photos += len(images) - len(films)
        return [
            replace(image, annotations=[item for item in image.annotations if item.track is not None])
            for image in films
        ]

    def add(self, image: ExportedImage) -> None:
        if self._film is None or (self._film.media_id, self._film.split) != (image.media_id, image.split):
            self._end_film()
            self._film = image
        self._last = image.frame_index + 1
        self._lines += [self._describe(item, self._last) for item in image.annotations]

    def end(self) -> None:
        self._end_film()
        names = "".join(f"{number + 1} {name}\n" for number, (name, _) in enumerate(self.categories))
        self.destination.write("classes.txt", names.encode())
        if self._photos:
            self.notes.append(f"Left out, since MOT holds only videos: {counted(self._photos, 'photo')}.")

    def _describe(self, item: Annotation, frame: int) -> str:
        number = self._tracks.setdefault(item.track or ("", 0), len(self._tracks) + 1)
        x0, y0, x1, y1 = item.box
        box = (f"{value:.3f}".rstrip("0").rstrip(".") for value in (x0 + 1, y0 + 1, x1 - x0, y1 - y0))
        return ",".join([str(frame), str(number), *box, "1", str(self.categories.number(item.category) + 1), "1"])

    def _end_film(self) -> None:
        if self._film is not None:
            folder = f"{self._film.split}/{as_folder(self._film.media_id)}"
            lines = sorted(self._lines, key=lambda line: [int(number) for number in line.split(",")[:2]])
            self.destination.write(f"{folder}/gt/gt.txt", "".join(f"{line}\n" for line in lines).encode())
            self.destination.write(f"{folder}/seqinfo.ini", self._describe_film(self._film).encode())
        self._lines, self._tracks = [], {}

    def _describe_film(self, film: ExportedImage) -> str:
        facts = {
            "name": as_folder(film.media_id).rpartition("/")[2],
            "imDir": "img1",
            "frameRate": f"{film.values.get('fps') or 0:g}",
            "seqLength": str(self._last),
            "imWidth": str(film.width),
            "imHeight": str(film.height),
            "imExt": ".jpg",
        }
        parser = configparser.RawConfigParser()
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser["Sequence"] = facts
        text = io.StringIO()
        parser.write(text, space_around_delimiters=False)
        return text.getvalue()
