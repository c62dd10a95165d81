"""Files spread over a collection, so that a preview represents all of it.

The first files of a listing come from one folder, or one camera. So each kind of file (by its ending) is sorted by
folder and size, and taken at evenly spread places. The choice depends on the files alone. A larger preview holds every
file of a smaller one, so that nothing is computed again.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Sequence

from framekiln.media.files import MediaFile


def kind_of(media_id: str) -> str:
    """Return the ending of a file's name, which stands for its type before it is opened.

    >>> kind_of("2024/IMG_01.JPG")
    '.jpg'
    """
    return posixpath.splitext(media_id)[1].lower()


def spread_over(files: Sequence[MediaFile], most: int) -> list[MediaFile]:
    """Return at most `most` files, spread over folders, kinds and sizes, sorted by kind and `media_id`.

    A kind's share of the choice is the mean of its shares of the files and of their bytes. So few long videos count,
    and so do photos beside them. Shares are rounded by the method of Sainte-Lague: a larger choice never drops a file.
    """
    if len(files) <= most:
        return list(files)
    kinds: dict[str, list[MediaFile]] = defaultdict(list)
    for media in files:
        kinds[kind_of(media.media_id)].append(media)
    whole = sum(media.size for media in files) or 1
    turns: list[tuple[float, str, MediaFile]] = []
    for kind, members in kinds.items():
        share = (len(members) / len(files) + sum(media.size for media in members) / whole) / 2
        ordered = sorted(members, key=lambda media: (posixpath.dirname(media.media_id), media.size, media.media_id))
        places = _spread_places(len(ordered))
        turns += [((turn + 0.5) / share, kind, ordered[place]) for turn, place in enumerate(places)]
    turns.sort(key=lambda turn: (turn[0], turn[1]))
    chosen = [media for _, _, media in turns[:most]]
    return sorted(chosen, key=lambda media: (kind_of(media.media_id), media.media_id))


def _spread_places(count: int) -> Iterator[int]:
    """Yield 0 to `count` - 1, each farthest from all before: 0, 4, 2, 6, 1, 5, 3, 7 of eight."""
    bits = max(1, (count - 1).bit_length())
    for number in range(1 << bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < count:
            yield place
