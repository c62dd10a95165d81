"""Numbers of images and annotations that an export has written so far."""

from collections import Counter
from collections.abc import Iterable, Sequence

from framekiln.export.image import ExportedImage


class Tally:
    """Counts images by split, annotations by kind, and different tracks."""

    def __init__(self, splits: Iterable[str]) -> None:
        self.images = Counter(dict.fromkeys(splits, 0))
        self.annotations = Counter[str]()
        self.tracks = 0
        self._media_id = ""
        self._seen: set[tuple[str, int]] = set()  # tracks of this file, as those of all may be many

    def add(self, images: Sequence[ExportedImage]) -> None:
        """Count images. All images of a file come one after another."""
        self.images.update(image.split for image in images)
        for image in images:
            if image.media_id != self._media_id:
                self._media_id, self._seen = image.media_id, set()
            self.annotations.update(item.kind for item in image.annotations)
            found = {item.track for item in image.annotations if item.kind == "tracks" and item.track is not None}
            self.tracks += len(found - self._seen)
            self._seen |= found
