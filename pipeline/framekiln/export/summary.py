"""The numbers of what an export wrote."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from framekiln.export.request import CLIPS


@dataclass(frozen=True, kw_only=True)
class ExportSummary:
    """The result of an export."""

    to: str  # the format
    destination: str
    images: Mapping[str, int]  # by split; of the format clips, the clips
    annotations: Mapping[str, int]  # by kind; of tracks the boxes
    tracks: int = 0  # different ones
    notes: tuple[str, ...] = ()  # sentences: what was left out, what the format could not hold, that nothing leaks

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the summary for people."""
        splits = ", ".join(f"{name} {count:,}" for name, count in self.images.items())
        kinds = ", ".join(self._describe(*item) for item in self.annotations.items()) or "no annotations"
        number = sum(self.images.values())
        what = f"{number:,} clips ({splits})" if self.to == CLIPS else f"{number:,} images ({splits}), {kinds}"
        yield f"{what}: {self.destination}"
        yield from self.notes

    def _describe(self, kind: str, count: int) -> str:
        if kind != "tracks":
            return f"{count:,} {kind}"
        boxes, tracks = "box" if count == 1 else "boxes", "track" if self.tracks == 1 else "tracks"
        return f"{count:,} {boxes} of {self.tracks:,} {tracks}"
