"""Pictures of exported frames: linked, copied, made smaller, cut out, or left where they are."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from framekiln.export.image import ExportedImage
from framekiln.export.request import ExportRequest
from framekiln.output.object_store import Store


class Pictures:
    """Puts the pictures of images into a destination, as images/SPLIT/NAME."""

    def __init__(self, store: Store, destination: Store, request: ExportRequest, *, unique_stems: bool) -> None:
        self._store, self._destination, self._request = store, destination, request
        self._unique_stems = unique_stems
        self.notes: list[str] = []  # sentences about what could not be done

    def place(self, images: Sequence[ExportedImage]) -> Iterator[ExportedImage]:
        """Yield the images with the name and the size of their pictures; those that cannot be read are left out."""
        for image in images:
            yield replace(image, name=image.path or image.uri)
