"""Files spread over a collection, for a preview that stands for all of it.

The first files of a listing are one folder, or one camera. So each kind of file (by the end of its name) is sorted by
folder and size, and taken at evenly spread places. The choice depends on the files alone, and a larger preview holds
every file of a smaller one: nothing of the smaller one is computed again.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Sequence

from framekiln.media.files import MediaFile


def kind_of(media_id: str) -> str:
    """Return the end of a file's name, which stands for its type before it is opened.

    >>> kind_of("2024/IMG_01.JPG")
    '.jpg'
    """
    return posixpath.splitext(media_id)[1].lower()


def spread_over(files: Sequence[MediaFile], most: int) -> list[MediaFile]:
    """Return at most `most` files that are spread over folders, kinds and sizes, sorted by kind and `media_id`.

    A kind gets a share of the choice that is the mean of its shares of the files and of their bytes. So films count
    where they are few and long, and so do photos beside them. Shares are rounded by the method of Sainte-Lague, in
    which a larger choice never takes a file away.
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
    """Yield 0 to `count` - 1, each at the largest distance from those before: 0, 4, 2, 6, 1, 5, 3, 7 of eight."""
    bits = max(1, (count - 1).bit_length())
    for number in range(1 << bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < count:
            yield place
