"""Pictures of exported frames as files: linked, copied, reduced, cropped, or left where they are.

They lie in images/SPLIT/NAME unless the format has other folders. Existing ones are not written again, so a killed
export continues.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from framekiln.contract.errors import MediaError
from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import PHOTO, ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.pictures import CROP, Pictured, PictureReader
from framekiln.media.files import local_path, printable_path
from framekiln.media.images.stills import read_still

_AT_ONCE = 8  # files: a bucket answers in some 50 ms, regardless of parallel requests


class Pictures:
    """Puts the pictures of images into a destination."""

    def __init__(self, reader: PictureReader, writer: Format, images: str) -> None:
        """Set the source of pictures, and the format that places them. `images`: as in the request."""
        self._reader, self._writer, self._images = reader, writer, images
        self._destination = writer.destination
        self._left_out = 0

    @property
    def notes(self) -> list[str]:
        return [f"{self._left_out:,} frames were left out: they are not readable any more."] if self._left_out else []

    def place(self, images: Sequence[ExportedImage]) -> Iterator[ExportedImage]:
        """Yield the images with their pictures' names and sizes; unreadable ones are left out."""
        if self._images == "none":
            yield from (replace(image, name=image.path or image.uri) for image in images)
            return
        there = [self._find_done(image) for image in images]
        found = self._reader.read([image for image, done in zip(images, there, strict=True) if done is None])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            writing: list[Future[None]] = []
            for done in there:
                if done is not None:
                    yield done
                    continue
                pictures = next(found)
                if isinstance(pictures, Failure):
                    self._left_out += 1
                    continue
                for number, pictured in enumerate(pictures):
                    image = self._name(pictured, number)
                    path = self._writer.path_of(image, image.name)
                    writing.append(pool.submit(self._destination.write, path, pictured[1].data))
                    yield image
        for future in writing:
            future.result()

    def _name(self, pictured: Pictured, number: int) -> ExportedImage:
        """Return an image with its file's name. `number`: of the picture within its frame."""
        image, still = pictured
        kept = still.is_own and PurePosixPath(image.media_id).suffix
        suffix = f".{number}{still.ending}" if self._images == CROP else "" if kept else still.ending
        return replace(image, name=self._writer.name_of(image, suffix))

    def _find_done(self, image: ExportedImage) -> ExportedImage | None:
        """Return an image whose picture exists, or is linked now; None if it must be written."""
        if self._images == CROP or self._reader.config.fast_mode:  # their rows have a smaller size than photos
            return None
        if self._images == "link" and image.media_type == PHOTO and (linked := self._link(image)):
            return linked
        for suffix in dict.fromkeys(("" if self._images == "copy" else ".jpg", ".jpg", ".png")):
            name = self._writer.name_of(image, suffix)
            if self._destination.exists(self._writer.path_of(image, name)):
                return replace(image.resized(*self._reader.find_size(image)), name=name)
        return None

    def _link(self, image: ExportedImage) -> ExportedImage | None:
        """Link a photo that every reader shows alike; None if it must be encoded again, or is not on a disk."""
        media = self._reader.media[image.media_id]
        source = printable_path(media.path)
        with suppress(MediaError):
            own = read_still(media, self._reader.config.max_pixels, content=False) if source else None
            if own is not None and source:
                name = self._writer.name_of(image)
                root = local_path(self._destination.root)
                link = Path(root or "") / self._writer.path_of(image, name)
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    link.symlink_to(source)
                return replace(image.resized(own.width, own.height), name=name)
        return None
