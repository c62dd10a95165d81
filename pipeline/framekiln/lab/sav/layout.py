"""Videos with true masks, in SA-V's or DAVIS's layout, and a generated one: discs that move over a textured ground.

DIR/JPEGImages_24fps/VIDEO/00000.jpg           frames
DIR/Annotations_6fps/VIDEO/000/00000.png       SA-V: a folder for each object, above 0 on the object
DIR/Annotations/480p/VIDEO/00000.png           DAVIS: one image of all objects, their numbers as palette indices

In the generated video, object 000 is visible from the first frame, and the PNG of one annotated frame is missing.
Object 001 appears late.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np

from framekiln.contract.columns import Image
from framekiln.contract.errors import InputError, MediaError, Reason
from framekiln.lab.sav.masks import Mask
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.images.pillow import read_labels
from framekiln.media.packets.decode import decode_frames

_NO_OBJECT = (0, 255)  # labels of DAVIS that are no object: background, void
NAME = "sav_made"
EVERY = 4  # frames between annotated ones: 24 and 6 a second
FRAMES = 17  # annotated at 0, 4, ..., 16; the fewest with which object 001 is scored and SAM's 16 pointers are all used
MISSING = 2 * EVERY  # frame without a PNG of object 000
COLORS = ((220, 60, 40), (40, 90, 230))
RADIUS = 0.12  # share of the height


@dataclass(frozen=True, kw_only=True)
class AnnotatedVideo:
    """Frames in order, and their true masks."""

    name: str
    frames: list[Path]
    masks: Mapping[str, Mapping[str, Path]]  # by object and frame's stem; "": images of all objects

    @cached_property
    def objects(self) -> list[str]:
        """Names of the objects: their folders or labels."""
        if "" not in self.masks:
            return sorted(self.masks)
        images = (read_labels(path) for path in self.masks[""].values())
        labels = {int(label) for image in images for label in np.unique(image)}
        return [str(label) for label in sorted(labels.difference(_NO_OBJECT))]

    def annotated(self, name: str) -> list[str]:
        """Return the stems of the frames with a mask of an object, in order; the mask may be empty."""
        return sorted(self.masks.get(name, self.masks.get("", {})))

    def truth(self, name: str, stem: str) -> Mask:
        """Return an object's mask in an annotated frame. Raises MediaError: the PNG cannot be read."""
        if name in self.masks:
            return read_labels(self.masks[name][stem]) > 0
        return read_labels(self.masks[""][stem]) == int(name)

    def first_visible(self, name: str) -> str | None:
        """Return the first frame with a pixel of an object, which gets its prompt; None without one."""
        return next((stem for stem in self.annotated(name) if self.truth(name, stem).any()), None)

    def images(self, start: str = "") -> Iterator[tuple[str, Image]]:
        """Yield stem and image (h w 3) of each frame, from one on, decoded on demand.

        Raises MediaError: a frame cannot be decoded.
        """
        for path in self.frames:
            if path.stem >= start:
                media = MediaFile(media_id=path.name, path=str(path.absolute()), size=path.stat().st_size, mtime_ns=0)
                frame = next(iter(decode_frames(media, ("frame",), DecodeConfig())), None)
                if frame is None:
                    raise MediaError(Reason.EMPTY, f"{path.name} has no image")
                yield path.stem, frame.images["frame"]


def annotated_videos(root: Path) -> list[AnnotatedVideo]:
    """Return the videos of a folder in the order of their names.

    Raises InputError: there are no frames, or none has masks.
    """
    images, notes = (sorted(root.glob(f"{kind}*")) for kind in ("JPEGImages", "Annotations"))
    folders = sorted({path.parent for path in images[0].rglob("*.jpg")}) if images and notes else []
    videos = []
    for folder in folders:
        masks: dict[str, dict[str, Path]] = {}
        own = notes[0] / folder.relative_to(images[0])
        for path in sorted(own.rglob("*.png")):
            masks.setdefault("" if path.parent == own else path.parent.name, {})[path.stem] = path
        videos.append(AnnotatedVideo(name=folder.name, frames=sorted(folder.glob("*.jpg")), masks=masks))
    found = [video for video in videos if video.masks]
    if not found:
        raise InputError(
            f"{str(root)!r} has no video with frames and masks in the layout of SA-V; give the folder that holds "
            "JPEGImages_24fps/VIDEO/*.jpg and Annotations_6fps/VIDEO/OBJECT/*.png.",
            code="FK-SAV-LAYOUT",
        )
    return found


def made_disc(number: int, frame: int, size: tuple[int, int]) -> Mask:
    """Return an object's true mask in a frame: a disc that moves by 0.4 % of the width a frame, and turns back."""
    height, width = size
    travelled = abs((0.2 + 0.5 * number + 0.004 * frame) % 1.2 - 0.6) + 0.2
    rows, columns = np.mgrid[:height, :width]
    x, y = travelled * width, (0.3 + 0.4 * number) * height
    return (rows - y) ** 2 + (columns - x) ** 2 <= (RADIUS * height) ** 2


def appears(number: int, frames: int) -> int:
    """Return the first frame of an object: 0, or for object 001 the annotated frame after a third of the video."""
    return number * -(-frames // (3 * EVERY)) * EVERY


def write_made_video(root: Path, *, frames: int = FRAMES, size: tuple[int, int] = (180, 320)) -> Path:
    """Write the video (at least 13 frames, height and width in px) and its masks, and return `root`."""
    images, notes = root / "JPEGImages_24fps" / NAME, root / "Annotations_6fps" / NAME
    images.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    ground = cv2.resize(rng.integers(60, 200, (12, 20, 3), dtype=np.uint8), size[::-1], interpolation=cv2.INTER_CUBIC)
    for frame in range(frames):
        picture = ground.copy()
        for number, color in enumerate(COLORS):
            if frame < appears(number, frames):
                continue
            mask = made_disc(number, frame, size)
            picture[mask] = color
            if frame % EVERY == 0 and (number, frame) != (0, MISSING):
                _write(notes / f"{number:03}" / f"{frame:05}.png", mask.astype(np.uint8) * 255)
        _write(images / f"{frame:05}.jpg", picture[:, :, ::-1])
    return root


def _write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image)
