"""Splits of the chosen frames such that no group of them is in two."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from framekiln.export.request import WHOLE, ExportRequest
from framekiln.output.object_store import Store

Chosen = Mapping[str, frozenset[int]]
"""Chosen frames of each file."""


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The split of each frame."""

    names: tuple[str, ...] = (WHOLE,)
    proof: str = ""  # the sentence for the summary: "0 people in two splits."
    by_media: Mapping[str, str] = field(default_factory=dict)

    def of(self, media_id: str, frame_index: int) -> str:  # noqa: ARG002
        """Return the split of a frame."""
        return self.by_media.get(media_id, WHOLE)


def make_splits(store: Store, request: ExportRequest, chosen: Chosen) -> Splits:  # noqa: ARG001
    """Return the splits of a request; all frames are in one where it asks for none."""
    return Splits()
