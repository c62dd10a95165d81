"""Photos of one scene: frames of films, so many a second, as people extract them, and strangers beside each other.

Limits were chosen on the three films of a camera in the hand, and on other strangers than the photos' tiles.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations, pairwise

import cv2
import numpy as np
import pyarrow as pa
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from benchmarks.accuracy import AccuracyFigure
from framekiln_stages.duplicates.hashes import thumbnail
from framekiln_stages.duplicates.scenes import find_neighbours
from tests.support.media.material import media, picture
from tests.support.media.photos import PHOTOS, photo

FILMS = {
    "camera in the hand": ("video/cockatoo.mp4", "vos/06_pingpong.mp4", "vos/bedroom.mp4"),
    "speaker before a wall": tuple(f"av/grid/{name}.mpg" for name in ("bbaf2n", "lbax4n", "lrwp9a", "sbwe5n")),
}
RATES = (4.0, 2.0, 1.0)  # photos a second
STRANGERS = (
    *("apple.jpg", "brick.png", "building.jpg", "chelsea.png", "coffee.png", "coins.png", "dragonfly.bmp"),
    *("fruits.jpg", "home.jpg", "hot_dog.jpg", "motorcycle_left.png", "parrot.jpg", "retina.jpg", "rocket.jpg"),
    *("hubble_deep_field.jpg", "sam_groceries.jpg", "sam_truck.jpg", "sunflower.bmp", "bird.bmp", "cat.bmp"),
)
TILES = 4  # of each side of a photo
_figure = partial(AccuracyFigure, "scenes")


def measure() -> list[AccuracyFigure]:
    """Return the shares of photos grouped with the next one of their scene, and of strangers that are linked."""
    figures = []
    for kind, names in FILMS.items():
        for rate in RATES:
            found = [hit for name in names for hit in _group(_read_film(name, rate))]
            data = f"{kind}, {rate:g} a second: {len(found)} photos"
            figures.append(_figure(data, "share in one scene with the next", float(np.mean(found))))
    parts = [tile for name in PHOTOS for row in np.array_split(photo(name), TILES) for tile in _split(row)]
    pictures = [_shrink(picture(f"categories/{name}")) for name in STRANGERS]
    for what, looks in (("photos", pictures), ("tiles of three photos", [_shrink(part) for part in parts])):
        pairs = list(combinations(looks, 2))
        rows = pa.table({"media_id": [f"{number}/{side}" for number in range(len(pairs)) for side in "ab"]})
        linked = len(find_neighbours(rows, np.array(pairs).reshape(-1, 32, 32))[0])
        data = f"{len(pairs):,} pairs of {len(looks)} {what}"
        figures.append(_figure(data, "strangers taken for one scene", float(linked), better="lower"))
    return figures


def _split(row: np.ndarray) -> list[np.ndarray]:
    return np.array_split(row, TILES, axis=1)


def _shrink(image: np.ndarray) -> np.ndarray:
    scale = 224 / min(image.shape[:2])
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return thumbnail(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))


def _read_film(name: str, rate: float) -> list[np.ndarray]:
    film = cv2.VideoCapture(str(media(name)))
    each, looks, number = max(1, round(film.get(cv2.CAP_PROP_FPS) / rate)), [], 0
    while film.grab():
        if number % each == 0:
            looks.append(_shrink(film.retrieve()[1]))
        number += 1
    return looks


def _group(looks: list[np.ndarray]) -> list[bool]:
    """Return for each photo but the last whether the next one is in its scene."""
    names = pa.table({"media_id": [f"{number}.jpg" for number in range(len(looks))]})
    links = find_neighbours(names, np.array(looks))
    graph = coo_matrix((np.ones(len(links[0])), links), shape=(len(looks),) * 2)
    return [bool(a == b) for a, b in pairwise(connected_components(graph, directed=False)[1].tolist())]
