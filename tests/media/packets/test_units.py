"""Units and shards contain every file once, keep order and limits, and are stable when files are added."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from framekiln.media.discovery.listing import shard
from framekiln.media.files import MediaFile
from framekiln.media.units import MAX_BYTES, MAX_FILES, form_units
from tests.support.errors import fails


def media_of(sizes: list[int]) -> list[MediaFile]:
    return [MediaFile(media_id=quote(f"{i}.jpg"), path=f"/{i}", size=size, mtime_ns=i) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 2 * MAX_BYTES), max_size=600), st.integers(1, 9))
def test_units_keep_order_and_limits(sizes: list[int], slots: int) -> None:
    media = media_of(sizes)
    units = form_units(media, slots=slots)
    assert [item for unit in units for item in unit.media] == media
    for unit in units:
        assert len(unit.media) <= MAX_FILES
        assert sum(item.size for item in unit.media) <= MAX_BYTES or len(unit.media) == 1
    if len(media) >= 4 * slots:
        assert len(units) >= 4 * slots
    assert len({unit.name for unit in units}) == len(units)


def test_the_first_and_the_last_units_are_small() -> None:
    sizes = [len(unit.media) for unit in form_units(media_of([1] * 3000), slots=2)]
    assert sizes[:4] == [8, 8, 8, 12] and max(sizes) == MAX_FILES and sizes[-1] <= 15
    assert [len(unit.media) for unit in form_units(media_of([1] * 10**5), slots=16)][:20] == [8] * 17 + [8, 9, 9]


def test_unit_names_follow_their_members_only() -> None:
    media = media_of([10] * 20)
    before, after = form_units(media, slots=2), form_units(media, slots=2)
    assert [unit.name for unit in before] == [unit.name for unit in after]
    touched = [*media[:-1], MediaFile(media_id=media[-1].media_id, path="/x", size=10, mtime_ns=99)]
    changed = form_units(touched, slots=2)
    assert [unit.name for unit in changed][:-1] == [unit.name for unit in before][:-1]
    assert changed[-1].name != before[-1].name


def test_shards_contain_every_file_and_are_stable() -> None:
    media = [MediaFile(media_id=f"{i}.jpg", path=f"/{i}.jpg", size=1, mtime_ns=0) for i in range(300)]
    shards = [shard(media, index, 3) for index in range(3)]
    assert sorted(item.media_id for part in shards for item in part) == sorted(item.media_id for item in media)
    assert min(len(part) for part in shards) > 60
    assert shard(media[1:], 0, 3) == [item for item in shards[0] if item.media_id != "0.jpg"]
    with fails("FK-NO-SUCH-SHARD", "0 to 2"):
        shard(media, 3, 3)
