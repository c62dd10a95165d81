"""People found by `Pose` beside MediaPipe called directly.

Truth: the number of people that one sees in each photo, counted by hand, and none in the photos of categories. Small
people have exact truth: photos of people are shrunk onto photos without. Settings were chosen on `CHOSEN`, on every
second category and on the collages of both; the others are the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from benchmarks.accuracy import AccuracyFigure
from framekiln.contract.columns import Image
from framekiln.contract.placement import Placement
from framekiln.weights.resolver import resolve
from framekiln_stages.nets.mediapipe_tasks import BlazePose, Body
from framekiln_stages.pose.looks import SAME_BODY, distances
from framekiln_stages.pose.stage import Pose
from tests.support.media.material import ROOT, media

SHORT = 512  # short side of the pixels that the stage reads
SIZES = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25)  # heights of the shrunk photos, of the collage's height
PLACES = ((0.25, 0.3), (0.72, 0.35), (0.3, 0.78), (0.75, 0.8))  # their centres
CHOSEN = ("pose/test_image.bmp", "pose/squat.bmp", "pose/coco/000000000785.jpg", "inpaint/image.png")
KEPT_ASIDE = ("faces/obama/obama.jpg", "faces/biden/biden.jpg", "faces/single/astronaut.png", "faces/obama/obama2.jpg")
COUPLES = frozenset({"pose/test_image.bmp"})  # photos of two people; the others show one
BLURS = (0.05, 0.1, 0.2, 0.3)  # lengths of motion blur, of the image's height
Finder = Callable[[Image], Body]


def measure() -> list[AccuracyFigure]:
    """Return recall, false people, and wrong poses under motion blur."""
    weights = ROOT / "weights"
    stage = Pose()
    files = resolve(stage.weights, weights_dir=weights if weights.is_dir() else None)
    stage.setup(files, Placement())
    net = BlazePose(files[stage.config.model], count=8, min_detection=0.5, min_presence=0.5)
    ours, library = (lambda image: stage.find(image).body), (lambda image: net(image)[0])
    empty = [_read(f"categories/{path.name}") for path in sorted(media("categories").iterdir())]
    figures = []
    for name, names, scenes in (("chosen", CHOSEN, empty[::2]), ("check", KEPT_ASIDE, empty[1::2])):
        photos = [_read(each) for each in names]
        count = sum(2 if each in COUPLES else 1 for each in names)
        figures.append(_figure(f"{name}: {len(photos)} photos", "people found", count, photos, ours, library))
        figures.append(_figure(f"{name}: {len(scenes)} photos of things", "false people", None, scenes, ours, library))
        figures += _of_collages(name, [(photo, stage.find(photo).body) for photo in photos], scenes, ours, library)
        figures.append(_of_blur(name, photos, ours, library))
    return figures


def _figure(
    data: str, what: str, count: int | None, photos: Sequence[Image], ours: Finder, library: Finder
) -> AccuracyFigure:
    found = [sum(len(finder(photo)) for photo in photos) for finder in (ours, library)]
    share = count or 1
    better = "lower" if count is None else "higher"
    measure_ = what if count is None else f"{what}, of {count}"
    values = [min(number, share) / share if count else float(number) for number in found]
    return AccuracyFigure(
        subject="pose", data=data, measure=measure_, value=values[0], library=values[1], better=better
    )


def _of_collages(
    name: str, people: Sequence[tuple[Image, Body]], scenes: Sequence[Image], ours: Finder, library: Finder
) -> list[AccuracyFigure]:
    """Return recall of small people, and the number of poses that are nobody's."""
    collages = [collage(people, scene, size) for size, scene in zip(SIZES, scenes, strict=False)]
    hits, false = [], []
    for finder in (ours, library):
        results = [(finder(image), truth, image.shape[:2]) for image, truth in collages]
        hits.append(sum(_is_near(one, found, shape) for found, truth, shape in results for one in truth))
        false.append(sum(not _is_near(one, truth, shape) for found, truth, shape in results for one in found))
    count = sum(len(truth) for _, truth in collages)
    data = f"{name}: {len(collages)} collages, people in photos of 0.25 to 0.5 of the height"
    recall = [number / count for number in hits]
    figures = (f"people found, of {count}", recall, "higher"), ("false people", false, "lower")
    return [
        AccuracyFigure(subject="pose", data=data, measure=what, value=value, library=other, better=better)
        for what, (value, other), better in figures
    ]


def _of_blur(name: str, photos: Sequence[Image], ours: Finder, library: Finder) -> AccuracyFigure:
    """Return the number of poses that motion blur moved by more than a tenth of the box's diagonal."""
    wrong = [0, 0]
    for photo in photos:
        truth = ours(photo)
        for share in BLURS:
            image = blurred(photo, int(share * photo.shape[0]))
            for i, finder in enumerate((ours, library)):
                wrong[i] += sum(not _is_near(one, truth, photo.shape[:2]) for one in finder(image))
    data = f"{name}: {len(photos) * len(BLURS)} photos under motion blur"
    return AccuracyFigure(
        subject="pose", data=data, measure="wrong poses", value=wrong[0], library=wrong[1], better="lower"
    )


def collage(people: Sequence[tuple[Image, Body]], scene: Image, size: float) -> tuple[Image, Body]:
    """Return a scene with shrunk photos of people on it, and where their people are."""
    image = cv2.resize(scene, (SHORT * 3 // 2, SHORT))
    high, wide = image.shape[:2]
    bodies = []
    for (photo, body), (x, y) in zip(people, PLACES, strict=True):
        scale = size * SHORT / photo.shape[0]
        small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        height, width = small.shape[:2]
        left, top = (
            int(np.clip(x * wide - width / 2, 0, wide - width)),
            int(np.clip(y * high - height / 2, 0, high - height)),
        )
        image[top : top + height, left : left + width] = small
        placed = body.copy()
        placed[..., :2] = (body[..., :2] * [width, height] + [left, top]) / [wide, high]
        bodies.append(placed)
    return image, np.concatenate(bodies)


def blurred(image: Image, length: int) -> Image:
    """Return an image that moved horizontally by a length in px while it was exposed."""
    kernel = np.full((1, max(1, length)), 1 / max(1, length), np.float32)
    return np.asarray(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REPLICATE))


def _is_near(one: Body, others: Body, shape: tuple[int, ...]) -> bool:
    return bool((distances(one, others, shape[0], shape[1]) < SAME_BODY).any())


def _read(name: str) -> Image:
    image = cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)
    scale = SHORT / min(image.shape[:2])
    return image if scale >= 1 else cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
