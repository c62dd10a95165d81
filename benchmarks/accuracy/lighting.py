"""Exposure and direction of light against changes that were made by a known amount."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np

from benchmarks.accuracy import AccuracyFigure
from framekiln_stages.lighting.photometry import LINEAR
from tests.support.media.photos import PHOTOS
from tests.support.stages.lighting_factory import ball, even_scene, gain, light, photo

STOPS = (-6.0, -4.0, -2.0, -1.0)  # darker, so that nothing is clipped at the top
_figure = partial(AccuracyFigure, "lighting", better="lower")


def measure() -> list[AccuracyFigure]:
    """Return the figures of lighting."""
    return [_exposure(), _ties(), _direction(), *_spheres()]


def _exposure() -> AccuracyFigure:
    """Return the error of changes of exposure; OpenCV's mean of the grey image knows no linear light."""
    mine, theirs = [], []
    for name in PHOTOS:
        image = photo(name)
        before = light(image)[0]["exposure"]
        for stops in STOPS:
            darker = gain(image, 2**stops)
            mine.append(abs(light(darker)[0]["exposure"] - before - stops))
            means = [cv2.mean(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))[0] for frame in (darker, image)]
            theirs.append(abs(np.log2(max(means[0], 1e-3) / means[1]) - stops))
    data = f"{len(mine)} photos darkened by 1 to 6 stops"
    return _figure(data, "error of the change, stops", float(np.mean(mine)), float(np.mean(theirs)))


def _ties() -> AccuracyFigure:
    """Return the share of very dark photos that have the same exposure as another."""
    values = [light(gain(photo(name), 2.0**-stops))[0]["exposure"] for name in PHOTOS for stops in (9, 9.5, 10, 10.5)]
    known = [value for value in values if value is not None]
    ties = sum(known.count(value) > 1 for value in known) / max(len(known), 1)
    return _figure(f"{len(values)} photos darkened by 9 to 10.5 stops", "equal exposures, share", ties, None)


def _direction() -> AccuracyFigure:
    """Return the error of the direction from which an even scene was lit."""
    image, errors = even_scene(), []
    y, x = (axis / 112 - 1 for axis in np.mgrid[0:224, 0:224].astype(float))
    for angle in range(0, 360, 30):
        side = np.cos(np.radians(angle)) * x - np.sin(np.radians(angle)) * y
        found = light(gain(image, 0.5 * 2 ** side[..., None]))[0]["light_direction"]
        errors.append(abs((found - angle + 180) % 360 - 180))
    return _figure(
        f"a scene lit from {len(errors)} sides", "error of the direction, degrees", float(np.mean(errors)), None
    )


def _spheres() -> list[AccuracyFigure]:
    """Return the share of spheres with a direction, and that of a wrong one, before walls of three kinds."""
    chance, figures = np.random.default_rng(7), list[AccuracyFigure]()
    for name in ("even walls", "gradients", "blurred photos"):
        errors = []
        for _ in range(100):
            height, width = ((224, 398), (224, 299), (398, 224))[chance.integers(3)]
            angle, radius = chance.uniform(0, 360), chance.uniform(0.08, 0.35)
            y, x = np.mgrid[:height, :width]
            wall = np.full((height, width), chance.uniform(0.02, 0.7))
            if name == "gradients":
                wall = 0.15 + 0.4 * (x / width if chance.random() < 0.5 else y / height)
            if name == "blurred photos":
                image = cv2.resize(photo(PHOTOS[chance.integers(3)])[..., 1], (width, height))
                wall = LINEAR[cv2.GaussianBlur(image, (0, 0), chance.uniform(4, 16))]
            room = radius * min(height, width) / np.array([width, height])
            image = ball(height, width, angle, at=chance.uniform(room, 1 - room), radius=radius, wall=wall)
            found = light(image)[0]["light_direction"]
            errors.append(None if found is None else abs((found - angle + 180) % 360 - 180))
        data = f"{len(errors)} spheres before {name}"
        given = sum(error is not None for error in errors) / len(errors)
        wrong = sum(error is not None and error > 5 for error in errors) / len(errors)
        figures.append(AccuracyFigure("lighting", data, "share with a direction", given))
        figures.append(_figure(data, "share off by more than 5 degrees", wrong))
    return figures
