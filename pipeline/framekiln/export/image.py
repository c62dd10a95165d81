"""An image as every format takes it: a frame, its file in the destination, and what was found on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from framekiln.export.annotation import Annotation
from framekiln.export.request import WHOLE
from framekiln.media.media_ids import as_folder

PHOTO = "photo"


@dataclass(frozen=True, kw_only=True)
class ExportedImage:
    """A frame. `width` and `height` are of the exported picture; annotations are in its px."""

    media_id: str
    frame_index: int
    media_type: str  # photo, animation or video
    uri: str
    path: str | None  # of a local file
    width: int
    height: int
    time_s: float | None = None
    split: str = WHOLE
    name: str = ""  # of its file, below images/SPLIT/; the path or address of the original with `--images none`
    annotations: Sequence[Annotation] = ()
    values: Mapping[str, Any] = field(default_factory=dict)  # numbers, texts and flags of its row, by column
    embeddings: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by column; only when they were asked for

    def resized(self, width: int, height: int) -> "ExportedImage":
        """Return the image of another size, with its annotations."""
        x, y = width / self.width, height / self.height
        return replace(self, width=width, height=height, annotations=[item.scaled(x, y) for item in self.annotations])


def file_name(image: ExportedImage, suffix: str = "", *, unique_stem: bool = False) -> str:
    """Return the name of an image's file below images/SPLIT/.

    Photos keep theirs; frames of films and animations are numbers in a folder of their file's name.

    Args:
        image: the frame.
        suffix: of the file that is written, such as .jpg; of a photo empty for its own.
        unique_stem: whether `a.jpg` and `a.png` must differ without their suffix.
    """
    folder = as_folder(image.media_id)
    if image.media_type != PHOTO:
        return f"{folder}/{image.frame_index:06d}{suffix or '.jpg'}"
    own = PurePosixPath(image.media_id).suffix
    wanted = suffix or own
    return folder if own == wanted and folder.endswith(own) and not unique_stem else folder + wanted
