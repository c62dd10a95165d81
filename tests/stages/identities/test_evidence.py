"""Evidence: what is no person, however similar the faces: copies, blurred strangers, two faces of one frame."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln_stages.faces.alignment import thumbnail
from framekiln_stages.identities.common_directions import leave_out_coverings, lost_detail
from framekiln_stages.identities.stage import Identities
from tests.support.stages.faces.identities_factory import MEASURED, identities, numbers, people, rows, unit


def reasons(tables):
    return tables["identities"]["reason"].to_pylist()


def drawn(count, seed=0):
    """Return pictures as different as aligned faces of two photos (n 112 112)."""
    cells = np.random.default_rng(seed).uniform(0, 255, (count, 6, 6)).astype(np.float32)
    return [cv2.resize(one, (112, 112), interpolation=cv2.INTER_LINEAR) for one in cells]


def small(pictures):
    return np.array([thumbnail(np.repeat(one[..., None], 3, axis=2).astype(np.uint8)) for one in pictures])


def photos(count, seed=0):
    return small(drawn(count, seed))


CHANGES = {
    "as it is": lambda one: one,
    "blurred": lambda one: cv2.GaussianBlur(one, (0, 0), 6),
    "small": lambda one: cv2.resize(cv2.resize(one, (28, 28), interpolation=cv2.INTER_AREA), (112, 112)),
    "darker": lambda one: 0.5 * one + 10,
    "found 3 px beside": lambda one: np.roll(one, 3, axis=1),
    "noisy": lambda one: np.clip(one + np.random.default_rng(0).normal(0, 20, one.shape), 0, 255),
    "mirrored": lambda one: one[:, ::-1],
    "larger": lambda one: cv2.warpAffine(one, cv2.getRotationMatrix2D((55.5, 55.5), 2, 1.04), (112, 112)),
}


def copies(count, seed=0):
    """Return thumbnails of one picture, changed in several ways."""
    return small([list(CHANGES.values())[i](drawn(1, seed)[0]) for i in range(count)])


# Copies


def test_copies_of_one_picture_are_nobody():
    tables = identities()(rows(people([8]), crops=copies(8), **MEASURED))
    assert numbers(tables) == [-1] * 8 and reasons(tables) == ["copies"] * 8
    assert numbers(identities()(rows(people([3]), crops=photos(3), **MEASURED))) == [0] * 3
    thumbs = np.concatenate([copies(2), photos(1, seed=1)])
    assert reasons(identities()(rows(people([2, 1]), crops=thumbs, **MEASURED))) == ["copies", "copies", "alone"]


def test_more_copies_than_a_face_has_neighbours_are_nobody():
    """Groups of copies that do not see each other at first are one."""
    batch = rows(people([40]), crops=np.concatenate([copies(8)] * 5), **MEASURED)
    assert set(reasons(identities(one_person=0.99, strangers=0.99)(batch))) == {"copies"}


def test_equal_embeddings_are_copies_where_thumbnails_are_not_known():
    tables = identities()(rows(np.repeat(people([1]), 40, axis=0)))
    assert reasons(tables) == ["copies"] * 40
    assert not np.isnan(tables["identities"]["outlier_score"].to_numpy()).any()


def test_frames_of_a_film_are_no_copies():
    batch = rows(people([4]), names=["film.mp4"] * 4, crops=copies(4), **MEASURED)
    batch = batch.set_column(1, "frame_index", pa.array(range(4), pa.int32()))
    assert numbers(identities()(batch)) == [0] * 4


# Pairs


def test_two_photos_of_a_person_are_an_identity_where_nobody_else_is_near():
    vectors, thumbs = people([2] * 10), photos(20)
    tables = identities()(rows(vectors, crops=thumbs, **MEASURED))
    found = numbers(tables)
    assert sorted(found) == sorted([*range(10)] * 2) and all(
        a == b for a, b in zip(found[::2], found[1::2], strict=True)
    )
    assert min(tables["identities"]["probability"].to_pylist()) > 0.95
    assert set(numbers(identities(min_cluster_size=3)(rows(vectors, crops=thumbs, **MEASURED)))) == {-1}
    assert set(numbers(identities()(rows(vectors, crops=thumbs, network="another")))) == {-1}, "it was not measured"


def test_two_copies_and_another_photo_are_an_identity_of_three():
    thumbs = np.concatenate([copies(2), photos(1, seed=1)])
    tables = identities()(rows(people([3]), crops=thumbs, **MEASURED))
    assert numbers(tables) == [0] * 3 and tables["identity_summary"]["several"].to_pylist() == [False]


def test_nobody_is_twice_in_a_frame_of_a_pair():
    thumbs = np.concatenate([copies(2), photos(1, seed=1)])
    vectors = people([3])
    both = rows(vectors[:2], per_frame=2, names=["a.jpg"], crops=thumbs[:2], **MEASURED)
    tables = identities()(pa.concat_tables([both, rows(vectors[2:], names=["b.jpg"], crops=thumbs[2:], **MEASURED)]))
    assert sorted(numbers(tables)[:2]) == [-1, 0] and numbers(tables)[2] == 0 and "twice" in reasons(tables)


def test_a_third_stranger_that_is_as_near_prevents_a_pair():
    one, two = people([1, 1])
    middle = unit(np.stack([one + 0.9 * two, two + 0.9 * one, one + two]))
    near = unit(middle + np.eye(64)[:3] * 0.6)
    thumbs = photos(3)
    tables = identities(strangers=0.999, one_person=0.999)(rows(near, crops=thumbs, **MEASURED))
    assert numbers(tables) == [-1] * 3


# Quality


def blurry(vectors, amount, common=None):
    """Return embeddings of blurred faces: they turn to one direction, whoever they are of."""
    common = unit(np.ones((1, vectors.shape[1]))) if common is None else common
    return unit(np.sqrt(1 - amount**2) * unit(vectors) + amount * common)


def test_blurred_strangers_are_nobody_whatever_their_pixels_say():
    """Motion blur leaves edges across it, and noise is sharp: the embedding says what is lost."""
    common = lost_detail("mobilefacenet", 128).sum(axis=1)
    film, strangers = (
        blurry(people(sizes, length=128, seed=seed), amount, unit(common[None]))
        for sizes, seed, amount in (([6], 0, 0.3), ([1] * 10, 1, 0.85))
    )
    vectors, names = (
        np.concatenate([film, strangers]),
        [f"a{i}.jpg" for i in range(6)] + [f"b{i}.jpg" for i in range(10)],
    )
    for settings in ({}, {"min_quality": 0.0}):
        tables = identities(**settings)(rows(vectors, names, crops=photos(16), **MEASURED))
        assert numbers(tables) == [0] * 6 + [-1] * 10, settings
        assert reasons(tables)[6:] == ["blurred"] * 10
    assert numbers(identities()(rows(vectors, names)))[6:] == [0] * 10, "by the cosines alone they are one person"


@pytest.mark.parametrize(
    ("reason", "numbers_"),
    [
        ("small", {"sharpness": 28, "yaw": 0}),  # quality 0.05 / 0.22 = 0.23
        ("blurred", {"sharpness": 3, "yaw": 0}),
        ("turned", {"sharpness": 110, "yaw": 80}),
    ],
)
def test_a_face_that_shows_too_little_says_why(reason, numbers_):
    quality = 0.025 if reason == "blurred" else 0.05
    more = {"network": "mobilefacenet", "strength": 12, "pitch": 0, **numbers_}
    assert reasons(identities()(rows(people([1] * 4), quality=quality, **more))) == [reason] * 4


def test_coverings_join_nobody_and_are_told():
    """Masks make people alike: four have them on half of their photos, five strangers on their only one."""
    bare, masked = people([3] * 4), blurry(people([3] * 4 + [1] * 5), 0.75)

    def run(contrast):
        names = [f"{i:02}.jpg" for i in range(29)]
        parts = [
            rows(bare, names[:12], crops=photos(12), contrast=0.6, **MEASURED),
            rows(masked, names[12:], crops=photos(17, seed=1), contrast=contrast, **MEASURED),
        ]
        return identities()(pa.concat_tables(parts))

    tables = run(0.05)
    found = numbers(tables)
    assert sorted(found[:12]) == sorted([*range(4)] * 3)
    assert all(given in (-1, own) for own, given in zip(found[:12], found[12:24], strict=True))
    assert found[24:] == [-1] * 5 and reasons(tables)[24:] == ["covered"] * 5
    joined = set(numbers(run(0.6))[24:])
    assert joined != {-1}, "without a look at the coverings strangers are one person"


def test_what_coverings_add_to_embeddings_joins_nobody():
    """Six people with one photo each wear hoods: their embeddings have a part in common that is nobody's."""
    some = unit(np.random.default_rng(5).normal(size=(1, 128))).astype(np.float32)
    rest = leave_out_coverings(some, "mobilefacenet")
    hood = unit(some - (some @ rest.T) * rest)
    vectors = unit(people([1] * 6 + [4], length=128)) + np.append(np.full(6, 1.2), np.zeros(4))[:, None] * hood
    assert numbers(identities()(rows(vectors, crops=photos(10), **MEASURED))) == [-1] * 6 + [0] * 4
    assert set(numbers(identities()(rows(vectors, crops=photos(10))))[:6]) == {0}, "another network: cosines of 0.6"


def test_two_people_are_not_one_by_a_single_pair_of_faces():
    vectors = unit(people([8, 8], spread=0.3))
    vectors[7:9] += 0.9 * vectors[[12, 0]]
    found = numbers(identities()(rows(vectors, crops=photos(16), **MEASURED)))
    assert len(set(found[:7])) == len(set(found[9:])) == 1 and found[0] != found[15]


def test_probability_falls_with_the_number_of_people():
    def least(count):
        vectors = people([4] * count, spread=0.8)
        return identities()(rows(vectors, crops=photos(len(vectors)), **MEASURED))["identities"]["probability"][0]

    assert least(2).as_py() > least(40).as_py()


# Frames


def test_nobody_is_twice_in_one_frame():
    vectors = people([8, 8])
    twins = rows(vectors[[0, 8, 1, 9, 2, 10, 3, 4]], per_frame=2, names=[f"{i}.jpg" for i in range(4)], **MEASURED)
    others = rows(vectors[[5, 6, 7, 11, 12, 13, 14, 15]], names=[f"z{i}.jpg" for i in range(8)], **MEASURED)
    tables = identities()(pa.concat_tables([twins, others]))
    found = numbers(tables)
    last = found[6:8]  # both are the first person
    assert -1 in last and len(set(last)) == 2 and reasons(tables)[6 + last.index(-1)] == "twice"
    assert -1 not in found[:6] + found[8:]


@pytest.mark.parametrize("poor", [0.9, 0.01])
def test_single_faces_of_one_frame_are_not_both_a_known_person(poor):
    vectors = people([6])
    before = identities()(rows(vectors[:4], **MEASURED))
    tables = identities()(rows(vectors[4:], per_frame=2, quality=poor, **MEASURED), {SUMMARY: before[SUMMARY]})
    assert sorted(numbers(tables)) == [-1, 0] and "twice" in reasons(tables)


SUMMARY = next(name for name in Identities.tables if name != "identities")
