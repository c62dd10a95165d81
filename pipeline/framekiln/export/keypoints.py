"""Keypoints of a person as COCO names them, from a skeleton with more of them."""

from dataclasses import dataclass

from framekiln.export.annotation import Category
from framekiln.export.declared import Source

COCO_17 = (
    "nose",
    *(
        f"{side}_{part}"
        for part in ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
        for side in ("left", "right")
    ),
)
"""Names and order of COCO's person_keypoints_*.json."""
_BONES = (
    *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
    *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
)  # of the same file, from 0


@dataclass(frozen=True, kw_only=True)
class Keypoints:
    """The landmarks of a source that are exported, and their names there."""

    positions: tuple[int, ...]  # of the exported landmarks among those of the source
    names: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()

    def category(self, name: str) -> Category:
        """Return a category with these keypoints."""
        return Category(name=name, keypoints=self.names, skeleton=self.skeleton)


def choose_keypoints(source: Source, wanted: str) -> Keypoints:
    """Return the keypoints of a source: `all`, or with `coco17` COCO's 17 where it has these among others."""
    places = {name: place for place, name in enumerate(source.keypoints)}
    if wanted == "coco17" and places.keys() >= set(COCO_17):
        return Keypoints(positions=tuple(places[name] for name in COCO_17), names=COCO_17, skeleton=_BONES)
    return Keypoints(positions=tuple(places.values()), names=source.keypoints, skeleton=source.skeleton)
